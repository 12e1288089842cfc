//! Several actions in one call.

use std::sync::Arc;

use libtest_mimic::Failed;
use throttle_core::{Action, Decision, Outcome, Policy, Store, StoreBackend};

use super::check::{Checked, equal};
use super::group::{Case, Group, properties, trials};
use super::lab::{Lab, at, told};
use super::model::{Model, same_answers};
use super::property::Clockwork;
use super::variant::Variant;
use crate::strategies;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    let group = trials!(Group::new(variant, "batch");
        an_empty_batch_is_answered_by_nothing,
        one_key_is_decided_in_order,
        policies_and_operands_mix,
        a_thousand_actions_are_answered_in_order,
    );
    properties!(group; a_batch_is_answered_as_its_actions_alone).into_cases()
}

async fn batch<B: StoreBackend>(lab: &Lab<B>, actions: &[Action<'_>]) -> Result<Vec<Outcome>, Failed> {
    let outcomes = lab.store().decide_many(actions).await;
    equal("answers", &outcomes.len(), &actions.len())?;
    outcomes.into_iter().map(|outcome| outcome.map_err(|error| told(&error))).collect()
}

/// Obligation 1.
async fn an_empty_batch_is_answered_by_nothing<B: StoreBackend>(lab: Lab<B>) -> Checked {
    batch(&lab, &[]).await.map(drop)
}

/// Obligation 1: actions on one key are decided in the order of the batch.
async fn one_key_is_decided_in_order<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("token_bucket 10 per 10s")?;
    let costs = [6, 5, 3, 2, 1, 0];
    let actions = costs.map(|cost| Action::consume(&policy, "key").with_cost(cost).at(Some(at(0))));
    let granted: Vec<u32> = batch(&lab, &actions).await?.iter().map(Outcome::granted).collect();
    equal("granted, one after the other", &granted, &vec![1, 0, 1, 0, 1, 1])
}

/// Obligation 1: what is consumed, refunded and peeked at in one batch is seen by what comes later in it.
async fn policies_and_operands_mix<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let (hits, log) =
        (lab.policy("fixed_window 2 per 60s")?, lab.policy("sliding_window_log 2 per 60s; gcra 5/m")?);
    let now = Some(at(0));
    let actions = [
        Action::consume(&hits, "a").with_times(5).at(now),
        Action::consume(&log, "a").with_cost(2).at(now),
        Action::peek(&hits, "a").at(now),
        Action::refund(&hits, "a").at(now),
        Action::peek(&hits, "a").at(now),
        Action::consume(&hits, "b").at(now),
        Action::consume(&log, "a").at(now),
        Action::refund(&log, "a").with_cost(2).at(now),
        Action::consume(&log, "a").with_times(3).at(now),
    ];
    let granted: Vec<u32> = batch(&lab, &actions).await?.iter().map(Outcome::granted).collect();
    equal("granted", &granted, &vec![2, 1, 0, 1, 1, 1, 0, 1, 2])
}

/// Obligation 1: a large batch over many keys, each of which comes again.
async fn a_thousand_actions_are_answered_in_order<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("gcra 3/h")?;
    let keys: Vec<String> = (0..250).map(|number| format!("key {number}")).collect();
    let actions: Vec<_> = (0..1_000_u32)
        .zip(keys.iter().cycle())
        .map(|(number, key)| Action::consume(&policy, key).with_cost(1 + number % 2).at(Some(at(0))))
        .collect();
    let mut models: Vec<Model> = keys.iter().map(|_| Model::fresh(&policy)).collect();
    let outcomes = batch(&lab, &actions).await?;
    for (number, (action, outcome)) in actions.iter().zip(&outcomes).enumerate() {
        if let Some(model) = models.get_mut(number % 250) {
            model.agrees_on_all(action, outcome)?;
        }
    }
    Ok(())
}

/// Obligation 1: a batch over several keys and policies is answered as its actions are alone, one after the other.
fn a_batch_is_answered_as_its_actions_alone<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    let stories = (strategies::crowd(), strategies::rules());
    lab.forall(&stories, async |((story, keys), others)| {
        let policies = [lab.policy_of(story.rules.clone())?, lab.policy_of(others.clone())?];
        let twins = [lab.policy_of(story.rules)?, lab.policy_of(others)?];
        let (mut clock, mut batched, mut alone) = (Clockwork::default(), Vec::new(), Vec::new());
        for (number, (step, key)) in story.steps.iter().zip(keys.iter().cycle()).enumerate() {
            let (Some(policy), Some(twin)) = (policies.get(number % 2), twins.get(number % 2)) else {
                continue;
            };
            let now = clock.move_by(step, policy);
            batched.push(step.action(policy, key, now));
            alone.push(step.action(twin, key, now));
        }
        let outcomes = batch(lab, &batched).await?;
        for (outcome, action) in outcomes.iter().zip(&alone) {
            same_answers(action, outcome, &lab.outcome(action).await?)?;
        }
        same_ends(lab, &batched, &alone).await
    })
}

/// What is left stored must be the same, too.
async fn same_ends<B: StoreBackend>(lab: &Lab<B>, batched: &[Action<'_>], alone: &[Action<'_>]) -> Checked {
    for (one, other) in batched.iter().zip(alone) {
        let look = |policy: &Policy, key: &str| {
            let (policy, key, now) = (policy.clone(), key.to_owned(), one.now());
            async move {
                let action = Action::peek(&policy, &key).with_cost(0).at(now);
                lab.decide(&action).await
            }
        };
        let left: Decision = look(one.policy(), one.key()).await?;
        let right = look(other.policy(), other.key()).await?;
        equal("where the key stands in the end", &left, &right)?;
    }
    Ok(())
}
