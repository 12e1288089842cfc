//! From the outcome of requests that were asked for at once to what some of them would have got by themselves.

use super::{Algorithm, Kernel, LogSummary, RuleState, StoredState};
use crate::{Action, Operand, Outcome, Rule, Timestamp};

impl Outcome {
    /// What an action of its own for `times` of the requests that `action` asked for, those after the first `skip`,
    /// would have been answered at that instant: bit for bit, as if the requests before them had been decided first.
    ///
    /// Requests of several callers are merged by adding up their [`times`](Action::times), and told apart again by
    /// this. Past what `action` asked for there is nothing to share: `skip` and `times` together are at most its
    /// `times`, and `times` is at least 1.
    ///
    /// ```
    /// use throttle_core::kernel::{PolicyState, decide};
    /// use throttle_core::{Action, Policy, Rule, Timestamp};
    ///
    /// let policy = Policy::new("api", [Rule::gcra("3/s")?])?;
    /// let now = Timestamp::from_micros(1_700_000_000_000_000)?;
    /// let one = Action::consume(&policy, "alice");
    ///
    /// let merged = one.with_times(4);
    /// let together = decide(&merged, now, &mut PolicyState::fresh(&policy));
    /// let mut state = PolicyState::fresh(&policy);
    /// for nth in 0..4 {
    ///     assert_eq!(together.share(&merged, nth, 1), decide(&one, now, &mut state));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn share(&self, action: &Action<'_>, skip: u32, times: u32) -> Self {
        if action.operand() != Operand::Consume {
            return self.clone();
        }
        let before = skip.min(self.granted());
        let granted = times.min(self.granted() - before);
        let units = u64::from(before) * u64::from(action.cost());
        // Logs say when the first request that was not granted would fit. That is also the one after this share only
        // if no other stands between.
        let is_last = before + granted == self.granted();
        let rules = action.policy().rules().iter().zip(self.states());
        let states = rules.map(|(rule, state)| match (advance(rule, &state, self.now(), units), is_last) {
            (RuleState::SlidingLog(log), false) => RuleState::SlidingLog(LogSummary { fits_at: None, ..log }),
            (state, _) => state,
        });
        Self::new(granted, self.now(), states)
    }
}

/// What is reported of the state that `units` more leave behind.
fn advance(rule: &Rule, state: &RuleState, now: Timestamp, units: u64) -> RuleState {
    if units == 0 {
        return *state;
    }
    let stored = match rule.kernel() {
        Kernel::Bucket(kernel) => {
            let kernel = kernel.exact::<u128>();
            StoredState::Bucket(kernel.state(kernel.charge(kernel.view(state.bucket(), now), units), now))
        }
        Kernel::FixedWindow(kernel) => kernel.store(kernel.charge(state.fixed_window(kernel, now), units)),
        Kernel::SlidingWindow(kernel) => {
            kernel.store(kernel.charge(state.sliding_window(kernel, now), units))
        }
        Kernel::SlidingLog(kernel) => {
            let log = kernel.charge(state.sliding_log(), units);
            return RuleState::SlidingLog(LogSummary { newest: now.as_micros(), ..log });
        }
    };
    stored.without_log()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::kernel::{PolicyState, decide};
    use crate::{Algorithm, Policy, Quota};

    const NOW: u64 = 1_700_000_000_000_000;

    fn rule() -> impl Strategy<Value = Rule> {
        let period = prop_oneof![1..20_u64, 1_000..3_000_000_u64];
        (prop::sample::select(&Algorithm::ALL[..]), 1..30_u32, period, 1..30_u32, 0..2_000_000_u64).prop_map(
            |(algorithm, limit, period, burst, queue)| {
                let quota = Quota::per(limit, Duration::from_micros(period));
                if !algorithm.is_bucket() {
                    return Rule::new(algorithm, quota.build().unwrap()).unwrap();
                }
                let rule = Rule::new(algorithm, quota.burst(burst).build().unwrap()).unwrap();
                rule.max_queue(Duration::from_micros(queue)).unwrap()
            },
        )
    }

    /// Rules under one name, so that each finds the states that the others left.
    fn policies() -> impl Strategy<Value = Vec<Policy>> {
        let policy = prop::collection::vec(rule(), 1..4).prop_map(|rules| Policy::new("p", rules).unwrap());
        prop::collection::vec(policy, 1..3)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn shares_are_what_single_calls_get(
            policies in policies(),
            steps in prop::collection::vec(
                (any::<prop::sample::Index>(), -3_000_000..3_000_000_i64, 0..8_u32, 0..1_000_000_u64,
                 prop::collection::vec(1..4_u32, 1..8)),
                1..12,
            ),
        ) {
            let mut merged = PolicyState::fresh(&policies[0]);
            let mut single = merged.clone();
            let mut now = NOW;
            for (policy, step, cost, wait, parts) in steps {
                now = now.saturating_add_signed(step);
                let at = Timestamp::from_micros(now).unwrap();
                let one = Action::consume(policy.get(&policies), "k")
                    .with_cost(cost)
                    .with_max_wait(Duration::from_micros(wait));
                let all = one.with_times(parts.iter().sum());
                let outcome = decide(&all, at, &mut merged);
                let mut skip = 0;
                for times in parts {
                    let alone = decide(&one.with_times(times), at, &mut single);
                    prop_assert_eq!(outcome.share(&all, skip, times), alone);
                    skip += times;
                }
                prop_assert_eq!(&merged, &single);
            }
        }
    }

    #[test]
    fn peeks_and_refunds_are_shared_by_nobody() {
        let policy = Policy::new("p", [Rule::gcra("3/s").unwrap()]).unwrap();
        let now = Timestamp::from_micros(NOW).unwrap();
        for action in [Action::peek(&policy, "k"), Action::refund(&policy, "k")] {
            let outcome = decide(&action, now, &mut PolicyState::fresh(&policy));
            assert_eq!(outcome.share(&action, 0, 1), outcome);
        }
    }
}
