//! Keys as they come: any string is one, and no two are the same.

use std::collections::HashSet;
use std::sync::Arc;

use throttle_core::{Action, Policy, Store, StoreBackend, stored_key};

use super::check::{Checked, ensure, equal};
use super::group::{Case, Group, trials};
use super::lab::{Lab, at, told};
use super::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "keys");
        hostile_keys_work_and_are_distinct,
        o_64_colons_and_control_characters,
        o_65_long_keys_are_not_cut,
        o_66_policy_and_key_never_run_together,
        o_68_braces_are_plain_characters,
        o_102_kinds_of_keys_have_policies_of_their_own,
        policies_that_share_a_prefix_are_distinct,
        a_policy_name_of_64_characters_works,
        policies_may_be_called_what_means_something_elsewhere,
    )
    .into_cases()
}

/// Each key alone: the first call finds it fresh, the second one finds it used, and nobody else's call did that.
async fn distinct<B: StoreBackend>(lab: &Lab<B>, keys: &[&str]) -> Checked {
    equal("keys in this trial", &keys.iter().collect::<HashSet<_>>().len(), &keys.len())?;
    let policy = lab.policy("token_bucket 1000/h")?;
    for (cost, key) in (1..).zip(keys) {
        let action = Action::consume(&policy, key).with_cost(cost).at(Some(at(0)));
        let left = lab.decide(&action).await?.remaining();
        equal(&format!("left of fresh key {key:?}"), &left, &(1_000 - cost))?;
    }
    for (cost, key) in (1..).zip(keys) {
        let look = Action::peek(&policy, key).with_cost(0).at(Some(at(0)));
        equal(&format!("left of key {key:?}"), &lab.decide(&look).await?.remaining(), &(1_000 - cost))?;
    }
    Ok(())
}

/// What is nearly nothing, or not to be seen.
const BLANK: &[&str] = &["", " ", "  ", "\0", "\0\0", "\n", "\r\n", "\t", "\u{1}", "\u{7f}", "\u{feff}"];

/// What differs by a blank, a letter's case or a zero only.
const ALIKE: &[&str] = &["a", "A", "a ", " a", "a\0", "a\n", "0", "00", "-1", "-0", "null", "NULL", "nan"];

/// What some language or store would read as more than a character.
const SPECIAL: &[&str] =
    &["%", "%00", "_", "*", "?", "[a]", "\\", "\\0", "/", "//", "..", "$1", "${a}", "{}", "{}a"];

/// What ends a text, a statement or a script.
const QUOTES: &[&str] =
    &["'", "''", "\"", "`", "'; DROP TABLE throttle; --", "]] os.exit()", "{", "}", "a{b}c"];

/// One letter in two ways, a family of joined signs, a change of direction, the ends of the planes.
const UNICODE: &[&str] =
    &["\u{e9}", "e\u{301}", "\u{1f469}\u{200d}\u{1f680}", "\u{202e}a", "\u{ffff}", "\u{10ffff}"];

/// All of them.
pub(super) fn plain_keys<'a>() -> impl Iterator<Item = &'a str> {
    [BLANK, ALIKE, SPECIAL, QUOTES, UNICODE].into_iter().flatten().copied()
}

/// Obligation 4.
async fn hostile_keys_work_and_are_distinct<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let long = "k".repeat(300);
    let longer = format!("{long}'");
    let posing =
        [stored_key(&long).into_owned(), stored_key(&longer).into_owned(), stored_key("#").into_owned()];
    let hashed = posing.iter().map(String::as_str).chain(["#", "#a", &long, &longer]);
    distinct(&lab, &plain_keys().chain(hashed).collect::<Vec<_>>()).await
}

/// O-64: IPv6 addresses, control characters, other scripts and the empty key.
async fn o_64_colons_and_control_characters<B: StoreBackend>(lab: Lab<B>) -> Checked {
    distinct(&lab, &["a:b", "2800:1::1", "\u{43a}\u{43b}\u{44e}\u{447} \u{9375}", "\u{1}", ""]).await
}

/// O-65: keys of 300 and of 10,000 bytes that differ in their last byte only, and around the length that is hashed.
async fn o_65_long_keys_are_not_cut<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let keys: Vec<String> = [63, 64, 65, 199, 200, 201, 255, 256, 300, 512, 10_000]
        .iter()
        .flat_map(|length| ["a", "b"].map(|last| format!("{}{last}", "k".repeat(length - 1))))
        .collect();
    distinct(&lab, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// O-66: nothing is a part of something else.
async fn o_66_policy_and_key_never_run_together<B: StoreBackend>(lab: Lab<B>) -> Checked {
    distinct(&lab, &["10.0.0.1:1/x", "10.0.0.11:/x", "10.0.0.1", "10.0.0.11", "0123456789a", "0123456789b"])
        .await
}

/// O-68: on a cluster, braces choose a slot; here they are characters like any other.
async fn o_68_braces_are_plain_characters<B: StoreBackend>(lab: Lab<B>) -> Checked {
    distinct(&lab, &["a:b", "a{b}c", "{}x", "a{b", "b", "{b}", "x{}", "{{b}}"]).await
}

/// O-102: a user called `127.0.0.1` is not that address.
async fn o_102_kinds_of_keys_have_policies_of_their_own<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let (users, addresses) = (lab.policy("gcra 1/h")?, lab.policy("gcra 1/h")?);
    for policy in [&users, &addresses] {
        let action = Action::consume(policy, "127.0.0.1").at(Some(at(0)));
        let decision = lab.decide(&action).await?;
        ensure(decision.is_allowed(), || format!("{policy:?} shares the key of another policy"))?;
    }
    Ok(())
}

/// Obligation 4: `a` with key `b:c`, `a.b` with key `c`, and what else a separator could be taken for.
async fn policies_that_share_a_prefix_are_distinct<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let base = crate::name::fresh();
    let rules = super::lab::rules("fixed_window 1 per 60s")?;
    for ending in ["", ".b", "-b", "_b", ".b.c", "1", ".1"] {
        let policy = Policy::new(&format!("{base}{ending}"), rules.clone())?;
        for key in ["", "b", "b:c", ":b:c", "c", ":c", "-b", "_b", ".b", "1:", "1"] {
            let action = Action::consume(&policy, key).at(Some(at(0)));
            let decision = lab.decide(&action).await?;
            ensure(decision.is_allowed(), || format!("{policy:?} with {key:?} is the key of another pair"))?;
        }
    }
    Ok(())
}

/// The longest name a policy may have.
async fn a_policy_name_of_64_characters_works<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let base = crate::name::fresh();
    let rules = super::lab::rules("gcra 1/h")?;
    for last in ["x", "y"] {
        let name = format!("{base}{}{last}", "-".repeat(63 - base.len()));
        let policy = Policy::new(&name, rules.clone())?;
        let decision = lab.decide(&Action::consume(&policy, "key").at(Some(at(0)))).await?;
        ensure(decision.is_allowed(), || format!("{name} shares state with another policy"))?;
    }
    Ok(())
}

/// Names that a store may read as nothing, as a number or as a place: looked at, alone, and in one batch.
async fn policies_may_be_called_what_means_something_elsewhere<B: StoreBackend>(lab: Lab<B>) -> Checked {
    // The names are everybody's; the key is ours.
    let (key, rules) = (crate::name::fresh(), super::lab::rules("token_bucket 1000/h")?);
    let names = ["null", "NULL", "nil", "nan", "true", "t", "0", "-1", "1e9", "-", "--", "_", ".", ".."];
    let policies =
        names.iter().map(|name| Policy::new(name, rules.clone())).collect::<Result<Vec<_>, _>>()?;
    let consume = |policy| Action::consume(policy, &key).at(Some(at(0)));
    let look = |policy| Action::peek(policy, &key).with_cost(0).at(Some(at(0)));
    for policy in &policies {
        let left = lab.decide(&consume(policy)).await?.remaining();
        equal(&format!("left of fresh policy {:?}", policy.name()), &left, &999)?;
    }
    let once: Vec<_> = policies.iter().map(consume).collect();
    let thrice: Vec<_> =
        policies.iter().flat_map(|policy| [consume(policy), look(policy), consume(policy)]).collect();
    for outcome in [lab.store().decide_many(&once).await, lab.store().decide_many(&thrice).await].concat() {
        equal("granted in a batch", &outcome.map_err(|error| told(&error))?.granted(), &1)?;
    }
    for policy in &policies {
        let left = lab.decide(&look(policy)).await?.remaining();
        equal(&format!("left of policy {:?}", policy.name()), &left, &996)?;
        let reset = lab.store().reset(policy.name(), &key).await.map_err(|error| told(&error))?;
        equal(&format!("there was something of {:?}", policy.name()), &reset, &true)?;
    }
    Ok(())
}
