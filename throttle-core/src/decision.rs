//! [`Decision`]: what a caller is told. A denial is a value, not an error; [`Decision::into_result`] makes it one.

use std::time::Duration;

use crate::kernel::{PolicyState, Report, Verdict, decide, explain};
use crate::per_rule::PerRule;
use crate::{Action, Outcome, Policy, Rule, Timestamp};

/// The answer to one request. Times are exact: durations are rounded up to whole microseconds, units down.
///
/// ```
/// # use throttle_core::{kernel::{decide, PolicyState}, Action, Decision, Policy, Rule, Timestamp};
/// # use std::time::Duration;
/// # let policy = Policy::new("api", [Rule::gcra("2/s")?])?;
/// # let mut state = PolicyState::fresh(&policy);
/// # let now = Timestamp::from_micros(1_700_000_000_000_000)?;
/// # let action = Action::consume(&policy, "alice");
/// # let outcome = decide(&action, now, &mut state);
/// let decision = Decision::of(&action, &outcome, 0);
/// assert!(decision.is_allowed());
/// assert_eq!((decision.limit(), decision.remaining()), (2, 1));
/// assert_eq!(decision.reset_after(), Duration::from_millis(500));
/// assert_eq!(decision.retry_after(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a denial is a value: look at `is_allowed`, or make it an error with `into_result`"]
pub struct Decision {
    kind: Kind,
    source: Source,
    capacity: u32,
    rules: PerRule<RuleDecision>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Allowed,
    /// Allowed in place of a denial.
    Shadow,
    Denied,
    Never,
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store; or nobody needed to be asked, because the answer could not be another.
    Store,
    /// Another limiter, while the store is unavailable.
    Fallback,
    /// A rule of the failure policy, while the store is unavailable. Nothing was taken. Allowed: what a key that nobody
    /// has used would be told. Denied: nothing remains, and the times are a hint, when the store is asked again.
    Policy,
    /// The key is on the list of those always allowed: what a key that nobody has used would be told. Nothing was taken.
    AllowList,
    /// The key is on the list of those never allowed.
    BlockList,
}

impl Source {
    /// Its name in metrics, such as `allow_list`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Fallback => "fallback",
            Self::Policy => "policy",
            Self::AllowList => "allow_list",
            Self::BlockList => "block_list",
        }
    }
}

impl Decision {
    /// The answer to the `nth` (from 0) of the requests that `action` asked for at once. Whatever a store said to a cost
    /// above the capacity, the answer is [never](Self::is_never).
    pub fn of(action: &Action<'_>, outcome: &Outcome, nth: u32) -> Self {
        if action.is_hopeless() {
            return Self::never(action.policy().capacity());
        }
        Self {
            kind: if nth < outcome.granted() { Kind::Allowed } else { Kind::Denied },
            source: Source::Store,
            capacity: action.policy().capacity(),
            rules: explain(action, outcome, nth),
        }
    }

    /// The answer of the only rule.
    #[inline]
    pub(crate) fn of_one(rule: RuleDecision) -> Self {
        let kind = if rule.allowed { Kind::Allowed } else { Kind::Denied };
        Self { kind, source: Source::Store, capacity: rule.limit, rules: PerRule::one(rule) }
    }

    /// The answer to a request that costs more than `capacity`: no wait helps, and no store is asked.
    pub fn never(capacity: u32) -> Self {
        Self { kind: Kind::Never, source: Source::Store, capacity, rules: PerRule::from_iter([]) }
    }

    /// What a key that nobody has used would be told. A cost that can never fit counts as all there is.
    pub(crate) fn as_if_fresh(action: &Action<'_>, now: Timestamp, source: Source) -> Self {
        let capacity = action.policy().capacity();
        let units = action.cost().saturating_mul(action.times()).min(capacity);
        let action = action.with_times(1).with_cost(units);
        let outcome = decide(&action, now, &mut PolicyState::fresh(action.policy()));
        Self { source, ..Self::of(&action, &outcome, 0) }
    }

    /// A denial by every rule, to be asked again after `wait`.
    pub(crate) fn refused(policy: &Policy, wait: Duration, source: Source) -> Self {
        let wait = crate::time::floor_micros(wait).max(1);
        let refuse = |rule: &Rule| RuleDecision {
            limit: rule.capacity(),
            remaining: 0,
            allowed: false,
            wait,
            reset_after: wait,
        };
        let rules = policy.rules().iter().map(refuse).collect();
        Self { kind: Kind::Denied, source, capacity: policy.capacity(), rules }
    }

    /// The answer to a key that is never allowed.
    pub(crate) fn blocked(capacity: u32) -> Self {
        Self { source: Source::BlockList, ..Self::never(capacity) }
    }

    pub(crate) fn with_source(self, source: Source) -> Self {
        Self { source, ..self }
    }

    /// The denial of an admission that comes later than the `left` that its caller can still wait, as if it had been asked
    /// for with no more. What remains is what remained while it was held.
    pub(crate) fn too_late(self, left: Duration) -> Self {
        let left = crate::time::floor_micros(left);
        let late = |rule: &RuleDecision| match rule.wait.saturating_sub(left) {
            0 => *rule,
            wait => RuleDecision { allowed: false, wait, ..*rule },
        };
        let rules = self.rules().iter().map(late).collect();
        Self { kind: Kind::Denied, rules, ..self }
    }

    /// Allowed, whatever it was.
    pub(crate) fn in_shadow(self) -> Self {
        if self.is_allowed() { self } else { Self { kind: Kind::Shadow, ..self } }
    }

    /// Whether the request may go ahead, once [`delay`](Self::delay) has passed.
    #[must_use]
    #[inline]
    pub fn is_allowed(&self) -> bool {
        matches!(self.kind, Kind::Allowed | Kind::Shadow)
    }

    /// Whether it is allowed only because the limiter is in [shadow mode](crate::RateLimiter::shadow). Units and
    /// [`rules`](Self::rules) are those of the denial; there is nothing to wait for.
    #[must_use]
    pub fn would_deny(&self) -> bool {
        self.kind == Kind::Shadow
    }

    /// Whether no wait helps: the cost is above the capacity, or the key is [blocked](Source::BlockList). Nothing was
    /// asked of the store; limit is the capacity, everything else is zero.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.kind == Kind::Never
    }

    /// How long to wait before going ahead: more than zero only for an admission from the queue.
    #[must_use]
    pub fn delay(&self) -> Duration {
        match self.kind {
            Kind::Allowed => self.longest(|rule| rule.wait),
            Kind::Shadow | Kind::Denied | Kind::Never => Duration::ZERO,
        }
    }

    /// The capacity of the rule with the least [`remaining`](Self::remaining) units; the first of several.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.rules().iter().min_by_key(|rule| rule.remaining).map_or(self.capacity, |rule| rule.limit)
    }

    /// Units left after this request, at the rule with the least.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.rules().iter().map(|rule| rule.remaining).min().unwrap_or(0)
    }

    /// With no other traffic, the same request is allowed after this wait and not a microsecond before. None if it was
    /// allowed, or if no wait helps. Only a hint where the [source](Self::source) is [`Source::Policy`].
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        (self.kind == Kind::Denied).then(|| self.longest(|rule| if rule.allowed { 0 } else { rule.wait }))
    }

    /// Time until the key is as good as new.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.longest(|rule| rule.reset_after)
    }

    /// Each rule's own answer, in the order of the policy; none if no wait helps.
    #[must_use]
    pub fn rules(&self) -> &[RuleDecision] {
        self.rules.as_slice()
    }

    /// Who decided.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// For those who want `?`: the decision if it is allowed.
    ///
    /// # Errors
    ///
    /// [`Limited`], which holds the decision, if it is not.
    pub fn into_result(self) -> Result<Self, Limited> {
        if self.is_allowed() { Ok(self) } else { Err(Limited::of(self)) }
    }

    fn longest(&self, micros: impl Fn(&RuleDecision) -> u64) -> Duration {
        Duration::from_micros(self.rules().iter().map(micros).max().unwrap_or(0))
    }
}

/// One rule's own answer, also when another rule denied the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleDecision {
    limit: u32,
    remaining: u32,
    allowed: bool,
    /// The delay of a request that was allowed, the time to retry of one that was not; in microseconds.
    wait: u64,
    /// In microseconds.
    reset_after: u64,
}

impl RuleDecision {
    #[inline]
    pub(crate) const fn new(limit: u32, verdict: Verdict, report: Report) -> Self {
        Self {
            limit,
            remaining: report.remaining,
            allowed: verdict.allowed,
            wait: verdict.wait,
            reset_after: report.reset_after,
        }
    }

    /// Whether this rule allowed the request.
    #[must_use]
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// The rule's capacity.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Units left.
    #[must_use]
    pub const fn remaining(&self) -> u32 {
        self.remaining
    }

    /// How long this rule's queue delays the request.
    #[must_use]
    pub const fn delay(&self) -> Duration {
        Duration::from_micros(if self.allowed { self.wait } else { 0 })
    }

    /// The wait after which this rule allows the same request; none if it did.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        if self.allowed { None } else { Some(Duration::from_micros(self.wait)) }
    }

    /// Time until this rule is as good as new.
    #[must_use]
    pub const fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_after)
    }
}

/// A denial as an error, for `?`. See [`Decision::into_result`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rate limited: {}", self.advice())]
pub struct Limited(Box<Decision>);

impl Limited {
    pub(crate) fn of(denial: Decision) -> Self {
        Self(Box::new(denial))
    }

    /// The denial.
    pub fn decision(&self) -> &Decision {
        &self.0
    }

    /// The denial.
    pub fn into_decision(self) -> Decision {
        *self.0
    }

    /// The wait after which the same request is allowed; none if no wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }

    fn advice(&self) -> String {
        match self.0.retry_after() {
            Some(wait) => format!("retry after {wait:?}"),
            None if self.0.source == Source::BlockList => "the key is blocked".to_owned(),
            None => format!("the cost is above the capacity of {}", self.0.capacity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{PolicyState, decide};
    use crate::{Policy, Timestamp};

    #[test]
    fn a_cost_above_the_capacity_is_never_even_if_a_store_was_asked() {
        for rule in ["gcra 2/s", "gcra 1 per 1099511627776us", "gcra 2/s queue 5s", "fixed_window 2/s"] {
            let policy = Policy::new("p", [rule.parse().unwrap()]).unwrap();
            for cost in [3, u32::MAX] {
                let action = Action::consume(&policy, "k").with_cost(cost);
                let outcome = decide(&action, Timestamp::MAX, &mut PolicyState::fresh(&policy));
                let decision = Decision::of(&action, &outcome, 0);
                assert!(decision.is_never() && decision.retry_after().is_none(), "{rule} {cost}");
            }
        }
    }
}
