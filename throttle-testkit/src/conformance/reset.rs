//! Forgetting.

use std::sync::Arc;

use throttle_core::{Action, Policy, Store, StoreBackend};

use super::check::{Checked, equal};
use super::group::{Case, Group, trials};
use super::lab::{Lab, SECOND, at, told};
use super::scene::after;
use super::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "reset");
        a_reset_key_is_as_good_as_new,
        a_reset_says_whether_there_was_anything,
        a_reset_leaves_other_keys_and_policies_alone,
        o_62_a_reset_forgets_the_previous_window_too,
        resetting_a_policy_forgets_all_its_keys_and_no_others,
        resetting_a_policy_finds_hostile_keys_too,
        ping_is_answered,
    )
    .into_cases()
}

async fn reset<B: StoreBackend>(
    lab: &Lab<B>,
    policy: &Policy,
    key: &str,
) -> Result<bool, libtest_mimic::Failed> {
    lab.store().reset(policy.name(), key).await.map_err(|error| told(&error))
}

async fn remaining<B: StoreBackend>(
    lab: &Lab<B>,
    policy: &Policy,
    key: &str,
) -> Result<u32, libtest_mimic::Failed> {
    Ok(lab.decide(&Action::peek(policy, key).with_cost(0).at(Some(at(0)))).await?.remaining())
}

async fn take<B: StoreBackend>(lab: &Lab<B>, policy: &Policy, key: &str) -> Checked {
    lab.decide(&Action::consume(policy, key).at(Some(at(0)))).await.map(drop)
}

/// Every algorithm, alone and together.
async fn a_reset_key_is_as_good_as_new<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let texts = [
        "token_bucket 5/h",
        "leaky_bucket 5/h",
        "gcra 5/h",
        "fixed_window 5/h",
        "sliding_window 5/h",
        "sliding_window_log 5/h",
        "gcra 5/h; fixed_window 7/h; sliding_window_log 9/h",
    ];
    for text in texts {
        let policy = lab.policy(text)?;
        let fresh = remaining(&lab, &policy, "key").await?;
        take(&lab, &policy, "key").await?;
        reset(&lab, &policy, "key").await?;
        equal(text, &remaining(&lab, &policy, "key").await?, &fresh)?;
    }
    Ok(())
}

async fn a_reset_says_whether_there_was_anything<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("gcra 5/h")?;
    equal("a key that was never used", &reset(&lab, &policy, "key").await?, &false)?;
    take(&lab, &policy, "key").await?;
    equal("a key that was used", &reset(&lab, &policy, "key").await?, &true)?;
    equal("a key that was reset", &reset(&lab, &policy, "key").await?, &false)
}

/// Obligation 4.
async fn a_reset_leaves_other_keys_and_policies_alone<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let (policy, other) = (lab.policy("gcra 5/h")?, lab.policy("gcra 5/h")?);
    for (policy, key) in [(&policy, "key"), (&policy, "key2"), (&policy, ""), (&other, "key")] {
        take(&lab, policy, key).await?;
    }
    reset(&lab, &policy, "key").await?;
    equal("the key", &remaining(&lab, &policy, "key").await?, &5)?;
    equal("another key", &remaining(&lab, &policy, "key2").await?, &4)?;
    equal("the empty key", &remaining(&lab, &policy, "").await?, &4)?;
    equal("the key under another policy", &remaining(&lab, &other, "key").await?, &4)
}

/// O-62: sliding 5 per 10, full in both windows; after a reset, 5 hits are allowed.
async fn o_62_a_reset_forgets_the_previous_window_too<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let mut scene = lab.scene("sliding_window 5 per 10s")?;
    scene.play(&[after(0).take(5).allowed().remaining(0)]).await?;
    scene
        .play(&[after(18 * SECOND).take(4).allowed().remaining(0), after(18 * SECOND).take(1).denied()])
        .await?;
    equal("there was something", &reset(&lab, scene.policy(), "key").await?, &true)?;
    scene.forget();
    let last = after(18 * SECOND);
    scene
        .play(&[last.take(0).remaining(5).reset(0), last.take(5).allowed().remaining(0), last.denied()])
        .await
}

/// Only under a policy of its own can a trial count on how many keys there are.
async fn resetting_a_policy_forgets_all_its_keys_and_no_others<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let base = lab.policy("gcra 5/h")?;
    let longer = Policy::new(&format!("{}.b", base.name()), base.rules().iter().copied())?;
    let keys: Vec<String> = (0..300).map(|number| format!("key {number}")).collect();
    let actions: Vec<_> = keys.iter().map(|key| Action::consume(&base, key).at(Some(at(0)))).collect();
    for outcome in lab.store().decide_many(&actions).await {
        outcome.map_err(|error| told(&error))?;
    }
    take(&lab, &longer, "key 1").await?;
    let forgotten = lab.store().reset_policy(base.name()).await.map_err(|error| told(&error))?;
    equal("keys that were forgotten", &forgotten, &300)?;
    for key in ["key 0", "key 1", "key 299"] {
        equal(key, &remaining(&lab, &base, key).await?, &5)?;
    }
    equal("a policy with a longer name", &remaining(&lab, &longer, "key 1").await?, &4)?;
    let again = lab.store().reset_policy(base.name()).await.map_err(|error| told(&error))?;
    equal("keys that were left", &again, &0)
}

/// A policy is not found by a pattern that its keys, or its name, could spoil.
async fn resetting_a_policy_finds_hostile_keys_too<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("gcra 5/h")?;
    let neighbour = Policy::new(&format!("{}_", policy.name()), policy.rules().iter().copied())?;
    let long = "k".repeat(10_000);
    let keys = ["", "*", "%", "_", "a:b", "{b}", "\\", "\n", "\0", "#", &long, "\u{9375}"];
    for key in keys {
        take(&lab, &policy, key).await?;
    }
    take(&lab, &neighbour, "*").await?;
    let forgotten = lab.store().reset_policy(policy.name()).await.map_err(|error| told(&error))?;
    equal("keys that were forgotten", &forgotten, &12)?;
    for key in keys {
        equal(&format!("{key:?}"), &remaining(&lab, &policy, key).await?, &5)?;
    }
    equal("the neighbour", &remaining(&lab, &neighbour, "*").await?, &4)
}

async fn ping_is_answered<B: StoreBackend>(lab: Lab<B>) -> Checked {
    lab.store().ping().await.map_err(|error| told(&error))
}
