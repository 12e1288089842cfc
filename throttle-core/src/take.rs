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
