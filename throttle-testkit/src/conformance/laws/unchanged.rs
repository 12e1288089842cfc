//! What must not change, and what is charged together.

use throttle_core::{Action, Decision, Operand, StoreBackend};

use super::hold;
use crate::conformance::check::{Checked, equal};
use crate::conformance::lab::Lab;
use crate::conformance::property::Clockwork;
use crate::strategies;

/// Law 1, obligation 2: a history and the same history without what was denied, probed or peeked at give the same
/// answers to all the rest.
pub(super) fn law_1_denials_probes_and_peeks_change_nothing<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&strategies::story(), async |story| {
        let policy = lab.policy_of(story.rules)?;
        let mut clock = Clockwork::default();
        for step in &story.steps {
            let now = clock.move_by(step, &policy);
            let action = step.action(&policy, "everything", now);
            let outcome = lab.outcome(&action).await?;
            clock.note(&Decision::of(&action, &outcome, 0));
            if outcome.changes_state(&action) {
                let times = outcome.granted();
                let charged = step.action(&policy, "charged", now).with_times(times);
                let again = lab.outcome(&charged).await?;
                equal("granted", &again.granted(), &times)?;
                let (left, right) = (Decision::of(&action, &outcome, 0), Decision::of(&charged, &again, 0));
                equal(&format!("{charged:?}"), &right, &left)?;
            }
        }
        let now = clock.now();
        let left = lab.decide(&Action::peek(&policy, "everything").with_cost(0).at(Some(now))).await?;
        let right = lab.decide(&Action::peek(&policy, "charged").with_cost(0).at(Some(now))).await?;
        equal("where the keys stand in the end", &left, &right)
    })
}

/// Law 5: what one rule denies, no rule is charged for.
pub(super) fn law_5_all_rules_are_charged_or_none<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    let several = proptest::collection::vec(strategies::rule(), 2..=3);
    lab.forall(&strategies::story_of(several, 12), async |story| {
        let policy = lab.policy_of(story.rules)?;
        let mut clock = Clockwork::default();
        for step in &story.steps {
            let now = clock.move_by(step, &policy);
            let look = Action::peek(&policy, "key").with_cost(0).at(Some(now));
            let before = lab.decide(&look).await?;
            let action = step.action(&policy, "key", now);
            let outcome = lab.outcome(&action).await?;
            let after = lab.decide(&look).await?;
            if !outcome.changes_state(&action) {
                equal(&format!("untouched by {action:?}"), &after, &before)?;
            } else if action.operand() == Operand::Consume {
                let last = Decision::of(&action, &outcome, outcome.granted() - 1);
                let told = last.rules().iter().map(|rule| (rule.remaining(), rule.reset_after()));
                let seen = after.rules().iter().map(|rule| (rule.remaining(), rule.reset_after()));
                equal(&format!("charged by {action:?}"), &seen.collect::<Vec<_>>(), &told.collect())?;
            }
            clock.note(&Decision::of(&action, &outcome, 0));
        }
        Ok(())
    })
}

/// Law 6: a store that is asked for more than the capacity all the same grants nothing and stores nothing.
pub(super) fn law_6_more_than_the_capacity_is_never_stored<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&strategies::story_of(strategies::rules(), 6), async |story| {
        let policy = lab.policy_of(story.rules)?;
        let Some(beyond) = policy.capacity().checked_add(1) else { return Ok(()) };
        let mut clock = Clockwork::default();
        for step in &story.steps {
            let now = clock.move_by(step, &policy);
            let look = Action::peek(&policy, "key").with_cost(0).at(Some(now));
            let before = lab.decide(&look).await?;
            let hopeless = Action::consume(&policy, "key").with_cost(beyond).with_times(step.times);
            let hopeless = hopeless.with_max_wait(std::time::Duration::MAX).at(Some(now));
            equal("granted", &lab.outcome(&hopeless).await?.granted(), &0)?;
            equal("untouched", &lab.decide(&look).await?, &before)?;
            lab.outcome(&step.action(&policy, "key", now)).await?;
        }
        Ok(())
    })
}

/// A refund of any size leaves a key at most as good as new, and never worse than it was.
pub(super) fn refund_never_lifts_a_key_above_full<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&strategies::forward_story_of(strategies::rules(), 8), async |story| {
        let policy = lab.policy_of(story.rules)?;
        let mut clock = Clockwork::default();
        for step in &story.steps {
            let now = clock.move_by(step, &policy);
            lab.outcome(&step.action(&policy, "key", now)).await?;
            let look = Action::peek(&policy, "key").with_cost(0).at(Some(now));
            let before = lab.decide(&look).await?;
            let refund = Action::refund(&policy, "key").with_cost(step.cost).at(Some(now));
            let refunded = lab.decide(&refund).await?;
            for (was, is) in before.rules().iter().zip(refunded.rules()) {
                let fair = was.remaining() <= is.remaining() && is.remaining() <= is.limit();
                hold(&policy, fair, || format!("{refund:?}: from {was:?} to {is:?}"))?;
            }
            equal("seen afterwards", &lab.decide(&look).await?.remaining(), &refunded.remaining())?;
        }
        Ok(())
    })
}
