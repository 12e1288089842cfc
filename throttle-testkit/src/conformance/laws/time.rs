//! Clocks that step back.

use std::time::Duration;

use proptest::prelude::Strategy;
use throttle_core::{Action, Algorithm, Decision, Rule, StoreBackend};

use super::hold;
use crate::conformance::check::{Checked, equal};
use crate::conformance::lab::{Lab, at};
use crate::strategies;

/// Any rule, the moment within its period at which it is used up, and how far the clock steps back then.
fn used_up_rule() -> impl Strategy<Value = (Rule, u64, u64)> {
    strategies::rule().prop_flat_map(|rule| {
        let period = u64::try_from(rule.quota().period().as_micros()).unwrap_or(u64::MAX);
        let back = proptest::prop_oneof![1..=period, 1..=4 * period, 1..=86_400_000_000_u64];
        (proptest::prelude::Just(rule), 0..period, back)
    })
}

/// Law 7: a key that is used up stays so when the clock steps back, by whatever amount; and when the clock is where it
/// was, nothing has been gained.
pub(super) fn law_7_a_step_back_on_a_full_key_admits_nothing<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&used_up_rule(), async |(rule, moment, back)| {
        let policy = lab.policy_of([rule])?;
        let now = at(moment);
        let all = Action::consume(&policy, "key").with_cost(rule.capacity()).at(Some(now));
        equal("granted", &lab.outcome(&all).await?.granted(), &1)?;
        let earlier = now.saturating_sub(Duration::from_micros(back));
        for moment in [earlier, now] {
            let more = Action::consume(&policy, "key").with_times(1_000).at(Some(moment));
            let granted = lab.outcome(&more).await?.granted();
            hold(&policy, granted == 0, || format!("{granted} more at {moment:?}, used up at {now:?}"))?;
        }
        Ok(())
    })
}

/// Law 7: after a step back nobody waits longer than for the capacity a key could owe: b·P/n + W for buckets, two
/// periods for a fixed window, one period for a log. A sliding window that was filled just before it began waits for
/// the rest of the present period on top of its own two.
pub(super) fn law_7_a_step_back_delays_no_more_than_owed<B: StoreBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&used_up_rule(), async |(rule, moment, back)| {
        let policy = lab.policy_of([rule])?;
        let now = at(moment);
        let action = Action::consume(&policy, "key").with_times(1 << 20).with_max_wait(rule.queue());
        lab.outcome(&action.at(Some(now))).await?;
        let earlier = now.saturating_sub(Duration::from_micros(back));
        for cost in [1, rule.capacity()] {
            let peek = Action::peek(&policy, "key").with_cost(cost).at(Some(earlier));
            let decision: Decision = lab.decide(&peek).await?;
            let (wait, most) = (decision.retry_after().unwrap_or_default(), longest_wait(&rule));
            hold(&policy, wait <= most, || format!("{cost} units wait {wait:?}, more than {most:?}"))?;
            let reset = decision.reset_after();
            hold(&policy, reset <= most, || format!("as good as new after {reset:?}, not {most:?}"))?;
        }
        Ok(())
    })
}

fn longest_wait(rule: &Rule) -> Duration {
    let quota = rule.quota();
    match rule.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra => {
            let full = quota.period().as_micros() * u128::from(rule.capacity());
            let full = full.div_ceil(u128::from(quota.limit()));
            Duration::from_micros(u64::try_from(full).unwrap_or(u64::MAX)) + rule.queue()
        }
        Algorithm::FixedWindow => 2 * quota.period(),
        Algorithm::SlidingWindow => 3 * quota.period(),
        Algorithm::SlidingWindowLog => quota.period(),
    }
}
