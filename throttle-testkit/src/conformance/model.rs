//! The definition as a model: whatever is generated, the store answers as the kernels do.

use std::collections::HashMap;
use std::sync::Arc;

use libtest_mimic::Failed;
use throttle_core::kernel::{PolicyState, decide};
use throttle_core::{Action, Decision, Outcome, Policy, StoreBackend, Timestamp};

use super::check::{Checked, ensure, equal};
use super::group::{Case, Group, properties};
use super::lab::Lab;
use super::property::Clockwork;
use super::variant::Variant;
use crate::strategies;

/// What the definition says is stored for one key.
pub(super) struct Model {
    state: PolicyState,
}

impl Model {
    pub(super) fn fresh(policy: &Policy) -> Self {
        Self { state: PolicyState::fresh(policy) }
    }

    pub(super) fn decide(&mut self, action: &Action<'_>) -> Result<Outcome, Failed> {
        let now: Timestamp = action.now().ok_or("a model has no clock")?;
        Ok(decide(action, now, &mut self.state))
    }

    /// Whether `outcome` says the same as the definition about each request in it.
    pub(super) fn agrees_on_all(&mut self, action: &Action<'_>, outcome: &Outcome) -> Checked {
        let expected = self.decide(action)?;
        same_answers(action, outcome, &expected)
    }
}

/// Two outcomes must tell the callers the same: how many are admitted, and what each is told.
pub(super) fn same_answers(action: &Action<'_>, got: &Outcome, expected: &Outcome) -> Checked {
    equal("granted", &got.granted(), &expected.granted())?;
    equal("time of the decision", &got.now(), &expected.now())?;
    ensure(got.states().len() == action.policy().rules().len(), || "one state per rule".to_owned())?;
    let granted = expected.granted();
    for nth in [0, 1, granted / 2, granted.saturating_sub(1), granted] {
        if nth < action.times() {
            let (got, expected) = (Decision::of(action, got, nth), Decision::of(action, expected, nth));
            equal(&format!("request {nth} of {}", action.times()), &got, &expected)?;
        }
    }
    Ok(())
}

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    properties!(Group::new(variant, "model");
        any_history_is_answered_as_defined,
        several_requests_at_once_are_as_many_single_ones,
        keys_of_one_policy_have_histories_of_their_own,
        a_policy_may_change_at_any_time,
    )
    .into_cases()
}

/// Obligation 2: consuming, peeking and refunding, with queues, several rules and a clock that steps back and forth.
fn any_history_is_answered_as_defined<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&strategies::story(), async |story| {
        let policy = lab.policy_of(story.rules)?;
        let (mut model, mut clock) = (Model::fresh(&policy), Clockwork::default());
        for step in &story.steps {
            let action = step.action(&policy, "key", clock.move_by(step, &policy));
            let outcome = lab.outcome(&action).await?;
            model.agrees_on_all(&action, &outcome).map_err(|failed| told(&action, &failed))?;
            clock.note(&Decision::of(&action, &outcome, 0));
        }
        Ok(())
    })
}

/// The `times` of an action: what is granted at once is what single requests at that instant would be granted, each
/// with its own delay.
fn several_requests_at_once_are_as_many_single_ones<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&strategies::story_of(strategies::rules(), 8), async |story| {
        let policy = lab.policy_of(story.rules)?;
        let mut clock = Clockwork::default();
        for step in &story.steps {
            let now = clock.move_by(step, &policy);
            let times = step.times.min(12);
            let together = step.action(&policy, "together", now).with_times(times);
            let outcome = lab.outcome(&together).await?;
            // The first that is not granted is asked for, too.
            for nth in 0..together.times().min(outcome.granted() + 1) {
                let single = step.action(&policy, "single", now).with_times(1);
                let alone = lab.decide(&single).await?;
                let expected = Decision::of(&together, &outcome, nth);
                equal("alone and together", &alone, &expected).map_err(|failed| told(&single, &failed))?;
            }
            clock.note(&Decision::of(&together, &outcome, 0));
        }
        Ok(())
    })
}

/// Obligation 4, law 10: what happens to one key does not matter to another.
fn keys_of_one_policy_have_histories_of_their_own<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&strategies::crowd(), async |(story, keys)| {
        let policy = lab.policy_of(story.rules)?;
        let (mut models, mut clock) = (HashMap::new(), Clockwork::default());
        for (step, key) in story.steps.iter().zip(keys.iter().cycle()) {
            let action = step.action(&policy, key, clock.move_by(step, &policy));
            let outcome = lab.outcome(&action).await?;
            let model = models.entry(key).or_insert_with(|| Model::fresh(&policy));
            model.agrees_on_all(&action, &outcome).map_err(|failed| told(&action, &failed))?;
        }
        Ok(())
    })
}

/// Law 9: the new rules apply to the stored debt or count from the next request on.
fn a_policy_may_change_at_any_time<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&strategies::changing_story(), async |stories| {
        let first = lab.policy_of(stories.iter().flat_map(|story| &story.rules).take(1).copied())?;
        let (mut model, mut clock) = (Model::fresh(&first), Clockwork::default());
        for story in stories {
            let policy = Policy::new(first.name().as_str(), story.rules)?;
            for step in &story.steps {
                let action = step.action(&policy, "key", clock.move_by(step, &policy));
                let outcome = lab.outcome(&action).await?;
                model.agrees_on_all(&action, &outcome).map_err(|failed| told(&action, &failed))?;
                clock.note(&Decision::of(&action, &outcome, 0));
            }
        }
        Ok(())
    })
}

/// A failure with the question it came from.
fn told(action: &Action<'_>, failed: &Failed) -> Failed {
    format!("{action:?}\n{}", failed.message().unwrap_or_default()).into()
}
