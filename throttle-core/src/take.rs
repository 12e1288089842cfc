//! [`Take`]: the most frequent action by itself, so that it can be answered without a detour.

use crate::kernel::{Algorithm, NarrowBucket, PolicyState, StoredState, Verdict};
use crate::{Action, Decision, Operand, RuleDecision, Timestamp};

/// An [`Action`] that is one request to one bucket: what nearly every action is. It brings the numbers of the bucket
/// along, and its answer fits two registers.
#[derive(Debug, Clone, Copy)]
pub struct Take<'a> {
    action: Action<'a>,
    bucket: NarrowBucket,
}

/// What a store answers to a [`Take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakeOutcome {
    granted: bool,
    /// What the key owes now, in ticks of the bucket.
    debt: u64,
}

impl TakeOutcome {
    /// Whether the request was admitted.
    #[must_use]
    #[inline]
    pub const fn is_granted(&self) -> bool {
        self.granted
    }
}

impl<'a> Take<'a> {
    /// `action`, if it consumes for one request, from a policy of one rule, a bucket, that can hold so much.
    #[must_use]
    #[inline(always)]
    pub fn new(action: Action<'a>) -> Option<Self> {
        let [rule] = action.policy().rules() else { return None };
        let bucket = rule.kernel().narrow_bucket()?;
        let simple = action.operand() == Operand::Consume && action.times() == 1 && !action.is_hopeless();
        simple.then_some(Self { action, bucket })
    }

    /// The action.
    #[must_use]
    #[inline]
    pub const fn action(&self) -> &Action<'a> {
        &self.action
    }

    /// Decides as [`kernel::decide`](crate::kernel::decide) does. `None` says that what is stored is of several rules,
    /// or of another algorithm, and that nothing happened.
    #[inline(always)]
    pub fn decide(&self, now: Timestamp, stored: &mut PolicyState) -> Option<TakeOutcome> {
        let [StoredState::Bucket(state)] = stored.states_mut() else { return None };
        let request = self.action.request(now);
        let debt = self.bucket.view(Some(state), now);
        let Some(after) = self.bucket.admit(debt, &request) else {
            return Some(TakeOutcome { granted: false, debt });
        };
        if request.cost > 0 {
            *state = self.bucket.state(after, now);
        }
        Some(TakeOutcome { granted: true, debt: after })
    }

    /// What the caller is told.
    #[inline(always)]
    pub(crate) fn explain(&self, outcome: TakeOutcome) -> Decision {
        let (bucket, TakeOutcome { granted, debt }) = (&self.bucket, outcome);
        let verdict = match granted {
            true => Verdict::allowed_after(bucket.delay(debt)),
            false => bucket.verdict(debt, &self.action.request(Timestamp::EPOCH)),
        };
        let report = bucket.report(debt, Timestamp::EPOCH);
        Decision::of_one(RuleDecision::new(bucket.capacity(), verdict, report))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::kernel::{BucketState, decide};
    use crate::{Policy, Quota, Rule};

    proptest! {
        #[test]
        fn a_take_is_decided_and_explained_as_its_action(
            limit in 1..1_000_u32, period in 1..1_u64 << 36, burst in 1..100_u32, queue in 0..1_u64 << 36,
            tat in 0..1_u64 << 37, fraction: u32, denominator in 1..1_000_u32, now in 0..1_u64 << 37,
            cost in 0..120_u32, wait in 0..1_u64 << 37,
        ) {
            let quota = Quota::per(limit, Duration::from_micros(period)).burst(burst);
            let rule = Rule::gcra(quota).and_then(|rule| rule.max_queue(Duration::from_micros(queue)));
            let Ok(rule) = rule else { return Ok(()) };
            let policy = Policy::new("p", [rule]).unwrap();
            let action = Action::consume(&policy, "k").with_cost(cost).with_max_wait(Duration::from_micros(wait));
            let Some(take) = Take::new(action) else {
                prop_assert!(action.is_hopeless() || rule.kernel().narrow_bucket().is_none());
                return Ok(());
            };
            let (now, fraction) = (Timestamp::from_micros(now).unwrap(), fraction % denominator);
            let stored = StoredState::Bucket(BucketState { tat_micros: tat, fraction, denominator });
            let mut by_take = PolicyState::new(vec![stored]);
            let mut by_action = by_take.clone();
            let taken = take.explain(take.decide(now, &mut by_take).unwrap());
            let outcome = decide(&action, now, &mut by_action);
            prop_assert_eq!(taken, Decision::of(&action, &outcome, 0));
            prop_assert_eq!(by_take, by_action);
        }
    }

    #[test]
    fn what_is_not_one_request_to_one_bucket_is_not_a_take() {
        let of = |rules: &[&str]| Policy::new("p", rules.iter().map(|rule| rule.parse().unwrap())).unwrap();
        let (one, two, window) =
            (of(&["gcra 5/s"]), of(&["gcra 5/s", "gcra 9/m"]), of(&["fixed_window 5/s"]));
        assert!(Take::new(Action::consume(&one, "k").with_cost(5)).is_some());
        assert!(Take::new(Action::consume(&one, "k").with_cost(6)).is_none());
        assert!(Take::new(Action::consume(&one, "k").with_times(2)).is_none());
        for action in [Action::peek(&one, "k"), Action::refund(&one, "k")] {
            assert!(Take::new(action).is_none());
        }
        for policy in [&two, &window] {
            assert!(Take::new(Action::consume(policy, "k")).is_none());
        }
        let mut other = PolicyState::fresh(&two);
        let take = Take::new(Action::consume(&one, "k")).unwrap();
        assert_eq!(take.decide(Timestamp::EPOCH, &mut other), None, "and nothing happened");
        assert_eq!(other, PolicyState::fresh(&two));
    }
}
