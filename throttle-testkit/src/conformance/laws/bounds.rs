//! How much a bucket admits, over any time.

use std::time::Duration;

use proptest::prelude::Strategy;
use throttle_core::{Action, Algorithm, Decision, Operand, Rule, StoreBackend, Timestamp};

use super::hold;
use crate::conformance::check::{Checked, equal};
use crate::conformance::lab::{Lab, at};
use crate::conformance::property::Clockwork;
use crate::strategies;

fn bucket_rule() -> impl Strategy<Value = Rule> {
    strategies::bucket_algorithm().prop_flat_map(strategies::rule_of)
}

/// floor(t·n/P)
fn units_in(rule: &Rule, span: Duration) -> u64 {
    let quota = rule.quota();
    let units = span.as_micros() * u128::from(quota.limit()) / quota.period().as_micros();
    u64::try_from(units).unwrap_or(u64::MAX)
}

/// Law 4: over any interval t, at most b + floor(t·n/P) units, and floor(W·n/P) more where there is a queue.
pub(super) fn law_4_a_bucket_admits_what_its_rate_allows<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    let one_bucket = bucket_rule().prop_map(|rule| vec![rule]);
    lab.forall(&strategies::forward_story_of(one_bucket, 20), async |story| {
        let policy = lab.policy_of(story.rules)?;
        let Some(rule) = policy.rules().first() else { return Ok(()) };
        let (mut clock, mut admitted, mut start) = (Clockwork::default(), 0, None);
        for step in &story.steps {
            let now = clock.move_by(step, &policy);
            let action = step.action(&policy, "key", now);
            if action.operand() == Operand::Refund {
                continue;
            }
            let outcome = lab.outcome(&action).await?;
            clock.note(&Decision::of(&action, &outcome, 0));
            if outcome.changes_state(&action) {
                admitted += u64::from(outcome.granted()) * u64::from(action.cost());
                let span = now.saturating_since(*start.get_or_insert(now));
                let bound = u64::from(rule.capacity()) + units_in(rule, span + rule.queue());
                hold(&policy, admitted <= bound, || {
                    format!("{admitted} units in {span:?}, more than {bound}")
                })?;
            }
        }
        Ok(())
    })
}

/// Law 4: who takes all there is and always retries as advised gets b + floor(t·n/P), not one less. Waits are whole
/// microseconds, so the bucket must have room for what flows in one of them, or be paid for in whole ones.
pub(super) fn law_4_retrying_as_advised_gets_exactly_the_rate<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    let roomy = bucket_rule().prop_filter("overflows within a microsecond", |rule| {
        let quota = rule.quota();
        let (period, limit) = (quota.period().as_micros(), u128::from(quota.limit()));
        period.is_multiple_of(limit) || u128::from(rule.capacity() - 1) * period >= limit
    });
    lab.forall(&roomy, async |rule| {
        let policy = lab.policy_of([rule])?;
        let (start, mut now, mut admitted) = (at(0), at(0), 0);
        for _ in 0..20 {
            let action = Action::consume(&policy, "key").with_times(1 << 20).at(Some(now));
            let outcome = lab.outcome(&action).await?;
            admitted += u64::from(outcome.granted());
            if outcome.granted() == action.times() {
                continue;
            }
            let expected = u64::from(rule.capacity()) + units_in(&rule, now.saturating_since(start));
            equal(&format!("{policy:?}: admitted until {now:?}"), &admitted, &expected)?;
            let denial = Decision::of(&action, &outcome, outcome.granted());
            now = later(now, denial.retry_after());
        }
        Ok(())
    })
}

fn later(now: Timestamp, wait: Option<Duration>) -> Timestamp {
    now.saturating_add(wait.unwrap_or_default())
}

/// Token bucket, leaky bucket and GCRA of one quota and burst decide alike.
pub(super) fn the_three_buckets_decide_alike<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    let one_bucket = bucket_rule().prop_map(|rule| vec![rule]);
    lab.forall(&strategies::story_of(one_bucket, 10), async |story| {
        let alike = story.rules.iter().flat_map(|rule| {
            [Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::Gcra].map(|algorithm| {
                let quota = rule.quota();
                let quota = throttle_core::Quota::per(quota.limit(), quota.period()).burst(rule.capacity());
                Rule::new(algorithm, quota).and_then(|twin| twin.max_queue(rule.queue()))
            })
        });
        let policies = alike.map(|rule| lab.policy_of([rule?])).collect::<Result<Vec<_>, _>>()?;
        let mut clock = Clockwork::default();
        for step in &story.steps {
            let Some(first) = policies.first() else { continue };
            let now = clock.move_by(step, first);
            let mut answers = Vec::new();
            for policy in &policies {
                let action = step.action(policy, "key", now);
                answers.push(Decision::of(&action, &lab.outcome(&action).await?, 0));
            }
            answers.dedup();
            equal(&format!("different answers to {step:?}: {answers:?}"), &answers.len(), &1)?;
            answers.first().into_iter().for_each(|answer| clock.note(answer));
        }
        Ok(())
    })
}
