//! [`Denial`]: what a store said when it denied something, and what that answers.

use std::time::Duration;

use throttle_core::kernel::{Kernel, LogSummary, PolicyState, RuleState, SlidingLog, StoredState};
use throttle_core::{Action, Decision, Operand, Outcome, Policy, Take, TakeOutcome, Timestamp};

use crate::moment::Moment;

/// One denial.
#[derive(Debug)]
pub(crate) struct Denial {
    policy: Policy,
    /// What a log said of itself is true for this cost alone.
    cost: u32,
    /// When it was decided, by the clock that decided.
    decided: Timestamp,
    /// Whether that was the store's own clock, not a time that was injected.
    is_own_time: bool,
    moment: Moment,
    lives: Duration,
    states: Box<[RuleState]>,
    /// The same for one bucket alone.
    bucket: Option<PolicyState>,
}

impl Denial {
    /// The denial in the answer to `action`, which was asked and answered at these times of our clock.
    pub(crate) fn of(
        action: &Action<'_>,
        outcome: &Outcome,
        (asked, answered): (Timestamp, Timestamp),
        max_stale: Duration,
    ) -> Option<Self> {
        let wanted = action.times();
        if action.operand() == Operand::Refund || outcome.granted() >= wanted {
            return None;
        }
        // What the first request that was denied would have got alone.
        let denied = outcome.share(action, outcome.granted(), wanted - outcome.granted());
        let retry_after = Decision::of(&action.with_times(1), &denied, 0).retry_after()?;
        let states: Box<[RuleState]> = denied.states().collect();
        let bucket = match *states {
            [RuleState::Bucket(bucket)] => Some(PolicyState::new(vec![StoredState::Bucket(bucket)])),
            _ => None,
        };
        Some(Self {
            policy: action.policy().clone(),
            cost: action.cost(),
            decided: outcome.now(),
            is_own_time: action.now().is_none(),
            moment: Moment::new(outcome.now(), asked, answered),
            lives: retry_after.min(max_stale),
            states,
            bucket,
        })
    }

    /// For how long after it was asked it is worth keeping.
    pub(crate) const fn lives(&self) -> Duration {
        self.lives
    }

    /// How long ago the store was asked. `None` if our clock stepped back.
    pub(crate) fn age(&self, now: Timestamp) -> Option<Duration> {
        self.moment.age(now)
    }

    /// What the store would answer to `action`, if that is another denial. `clock` is ours.
    pub(crate) fn answer(&self, action: &Action<'_>, clock: impl FnOnce() -> Timestamp) -> Option<Outcome> {
        let (told, latest) = self.now(action, clock)?;
        let outcome = |now| Outcome::new(0, now, self.states.iter().copied());
        let denies = |now| {
            let decision = Decision::of(action, &outcome(now), 0);
            self.is_exact(action, now) && decision.rules().iter().any(|rule| !rule.is_allowed())
        };
        denies(latest).then(|| outcome(told))
    }

    /// What the store answered when it denied, at the time when it did, if that denies `action`.
    pub(crate) fn old_answer(&self, action: &Action<'_>) -> Option<Outcome> {
        let outcome = Outcome::new(0, self.decided, self.states.iter().copied());
        let decision = Decision::of(action, &outcome, 0);
        let denies =
            self.policy == *action.policy() && decision.rules().iter().any(|rule| !rule.is_allowed());
        denies.then_some(outcome)
    }

    /// The [answer](Self::answer) to one request to one bucket.
    #[inline]
    pub(crate) fn answer_take(
        &self,
        take: &Take<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Option<TakeOutcome> {
        let (told, latest) = self.now(take.action(), clock)?;
        let decide = |now| take.decide(now, &mut self.bucket.clone()?);
        if decide(latest)?.is_granted() { None } else { decide(told) }
    }

    /// When `action` is decided: the time to tell, and the latest that it may be. None if that is not known, or if these
    /// are not its rules, or if this has been remembered for too long.
    #[inline]
    fn now(&self, action: &Action<'_>, clock: impl FnOnce() -> Timestamp) -> Option<(Timestamp, Timestamp)> {
        let now = clock();
        if self.moment.age(now)? >= self.lives || self.policy != *action.policy() {
            return None;
        }
        match action.now() {
            Some(now) => Some((now, now)),
            None if self.is_own_time => Some((self.moment.earliest(now), self.moment.latest(now)?)),
            None => None,
        }
    }

    /// Whether the states say at `now` what the store would say. A log reports a summary, which is true when it was made.
    fn is_exact(&self, action: &Action<'_>, now: Timestamp) -> bool {
        let rules = self.policy.rules().iter().zip(&self.states);
        let mut logs = rules.filter_map(|(rule, state)| match (rule.kernel(), state) {
            (Kernel::SlidingLog(log), RuleState::SlidingLog(summary)) => Some((log, summary)),
            _ => None,
        });
        logs.all(|(log, summary)| {
            action.cost() == self.cost && (now == self.decided || self.is_full_at(log, summary, now))
        })
    }

    /// Whether nothing has left the log. If one unit less would have been admitted, the request fits as soon as the oldest
    /// entry has left: until then, all are there.
    fn is_full_at(&self, log: &SlidingLog, summary: &LogSummary, now: Timestamp) -> bool {
        let lacks_one = u64::from(summary.used) + u64::from(self.cost) == u64::from(log.limit()) + 1;
        let is_of_the_past = summary.newest <= self.decided.as_micros();
        let until = summary.fits_at.map_or(0, std::num::NonZeroU64::get);
        lacks_one && is_of_the_past && self.decided <= now && now.as_micros() < until
    }
}
