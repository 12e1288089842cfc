//! Waits that are exact from both sides.
//!
//! Exact while the clock does not step back: a key that is seen from an earlier time than it was charged at owes at most
//! its capacity (law 7), and what it owes beyond that is still there when the time comes.

use std::time::Duration;

use throttle_core::{Action, Decision, Operand, Policy, RuleDecision, StoreBackend, Timestamp};

use super::hold;
use crate::conformance::check::{Checked, equal};
use crate::conformance::lab::Lab;
use crate::conformance::property::Clockwork;
use crate::strategies;

const MICRO: Duration = Duration::from_micros(1);

/// Law 2: with no other traffic, the same request is allowed at now + `retry_after`, and denied a microsecond before.
pub(super) fn law_2_retry_after_is_exact<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&strategies::forward_story_of(strategies::rules(), 12), async |story| {
        let policy = lab.policy_of(story.rules)?;
        let mut clock = Clockwork::default();
        for step in &story.steps {
            let now = clock.move_by(step, &policy);
            let action = step.action(&policy, "key", now).with_times(1);
            if action.is_hopeless() {
                continue;
            }
            let decision = lab.decide(&action).await?;
            clock.note(&decision);
            let Some(retry) = decision.retry_after() else { continue };
            hold(&policy, retry >= MICRO, || format!("{action:?} is denied for no time"))?;
            let ask_at = |moment| peek_like(&action, &policy, moment);
            let due = lab.decide(&ask_at(now.saturating_add(retry))).await?;
            hold(&policy, due.is_allowed(), || format!("{action:?} is not allowed after {retry:?}"))?;
            let early = lab.decide(&ask_at(now.saturating_add(retry - MICRO))).await?;
            hold(&policy, !early.is_allowed(), || format!("{action:?} is allowed before {retry:?}"))?;
        }
        Ok(())
    })
}

fn peek_like<'a>(action: &Action<'a>, policy: &'a Policy, now: Timestamp) -> Action<'a> {
    let wait = Duration::from_micros(action.max_wait_micros());
    Action::peek(policy, action.key()).with_cost(action.cost()).with_max_wait(wait).at(Some(now))
}

/// Law 3: at now + `reset_after` the key is as good as new, and a microsecond before it is not.
pub(super) fn law_3_reset_after_is_exact<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&strategies::forward_story_of(strategies::rules(), 12), async |story| {
        let policy = lab.policy_of(story.rules)?;
        let mut clock = Clockwork::default();
        for step in &story.steps {
            let now = clock.move_by(step, &policy);
            let action = step.action(&policy, "key", now);
            if action.is_hopeless() {
                continue;
            }
            let outcome = lab.outcome(&action).await?;
            let decision = Decision::of(&action, &outcome, outcome.granted().saturating_sub(1));
            clock.note(&Decision::of(&action, &outcome, 0));
            let reset = decision.reset_after();
            let all = |key, moment| Action::peek(&policy, key).with_cost(policy.capacity()).at(Some(moment));
            let due = now.saturating_add(reset);
            let seen = lab.decide(&all("key", due)).await?;
            let fresh = lab.decide(&all("fresh", due)).await?;
            equal(&format!("{action:?} after {reset:?}"), &seen, &fresh)?;
            if reset > Duration::ZERO {
                let early =
                    Action::peek(&policy, "key").with_cost(0).at(Some(now.saturating_add(reset - MICRO)));
                let left = lab.decide(&early).await?.reset_after();
                equal(&format!("{action:?} just before {reset:?}"), &left, &MICRO)?;
            }
        }
        Ok(())
    })
}

/// Law 5: each rule answers what it would answer alone, also when another denies; the policy answers with the largest
/// waits and the smallest remaining.
pub(super) fn law_5_rules_answer_for_themselves<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    let several = proptest::collection::vec(strategies::rule(), 2..=3);
    lab.forall(&strategies::story_of(several, 10), async |story| {
        let policy = lab.policy_of(story.rules)?;
        let alone = policy.rules().iter().map(|rule| lab.policy_of([*rule]));
        let alone = alone.collect::<Result<Vec<_>, _>>()?;
        let mut clock = Clockwork::default();
        for step in &story.steps {
            let now = clock.move_by(step, &policy);
            let together = step.action(&policy, "key", now).with_times(1);
            if together.is_hopeless() {
                continue;
            }
            let outcome = lab.outcome(&together).await?;
            let decision = Decision::of(&together, &outcome, 0);
            clock.note(&decision);
            let charged = outcome.changes_state(&together);
            for (policy, answer) in alone.iter().zip(decision.rules()) {
                let single = step.action(policy, "key", now).with_times(1);
                let single = match charged || single.operand() != Operand::Consume {
                    true => single,
                    false => peek_like(&single, policy, now),
                };
                let own = lab.decide(&single).await?;
                equal(&format!("{single:?}, denied by another or not"), &Some(answer), &own.rules().first())?;
            }
            aggregated(&decision)?;
        }
        Ok(())
    })
}

fn aggregated(decision: &Decision) -> Checked {
    let rules = decision.rules();
    equal("remaining", &Some(decision.remaining()), &rules.iter().map(RuleDecision::remaining).min())?;
    equal("reset_after", &Some(decision.reset_after()), &rules.iter().map(RuleDecision::reset_after).max())?;
    match decision.is_allowed() {
        true => equal("delay", &Some(decision.delay()), &rules.iter().map(RuleDecision::delay).max()),
        false => {
            let longest = rules.iter().filter_map(RuleDecision::retry_after).max();
            equal("retry_after", &decision.retry_after(), &longest)
        }
    }
}
