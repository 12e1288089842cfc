//! [`Action`]: what a store is asked, in one round trip. [`Outcome`]: what it answers.

use std::time::Duration;

use crate::kernel::{Request, RuleState};
use crate::per_rule::PerRule;
use crate::{Policy, Timestamp};

/// The most identical requests in one [`Action`]: 2^20. Their spans, added up, still fit the numbers of every store.
pub const MAX_TIMES: u32 = 1 << 20;

/// How long after its expiry a state may still be stored.
pub const EXPIRY_MARGIN: Duration = Duration::from_secs(1);

/// The same for actions that bring their own time: a clock that the caller moves may step back, and must then find how
/// far it has been.
pub const EXPIRY_MARGIN_OWN_TIME: Duration = Duration::from_secs(60);

/// What is done with the cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// Charge it, if all rules allow.
    Consume,
    /// Say what consuming would answer, and change nothing.
    Peek,
    /// Give it back, never above full.
    Refund,
}

/// One question to a store: decide this atomically.
///
/// ```
/// use throttle_core::{Action, Policy, Rule};
///
/// let policy = Policy::new("api", [Rule::gcra("10/s")?])?;
/// let action = Action::consume(&policy, "alice").with_cost(2).with_times(3);
/// assert_eq!((action.key(), action.cost(), action.times()), ("alice", 2, 3));
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Action<'a> {
    policy: &'a Policy,
    key: &'a str,
    cost: u32,
    times: u32,
    max_wait_micros: u64,
    operand: Operand,
    now: Option<Timestamp>,
}

impl<'a> Action<'a> {
    /// Consume one unit of `key`'s allowance under `policy`.
    #[must_use]
    pub const fn consume(policy: &'a Policy, key: &'a str) -> Self {
        Self::new(Operand::Consume, policy, key)
    }

    /// Say what consuming one unit would answer.
    #[must_use]
    pub const fn peek(policy: &'a Policy, key: &'a str) -> Self {
        Self::new(Operand::Peek, policy, key)
    }

    /// Give one unit back.
    #[must_use]
    pub const fn refund(policy: &'a Policy, key: &'a str) -> Self {
        Self::new(Operand::Refund, policy, key)
    }

    #[inline]
    const fn new(operand: Operand, policy: &'a Policy, key: &'a str) -> Self {
        Self { policy, key, cost: 1, times: 1, max_wait_micros: 0, operand, now: None }
    }

    /// Units one request takes; 0 is a probe.
    #[must_use]
    pub const fn with_cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// Up to how many identical requests to consume for, at one instant: 1 to [`MAX_TIMES`], other values are moved
    /// there. Only consuming has more than one.
    #[must_use]
    pub const fn with_times(mut self, times: u32) -> Self {
        self.times = match (self.operand, times) {
            (Operand::Peek | Operand::Refund, _) | (_, 0) => 1,
            (_, times) if times > MAX_TIMES => MAX_TIMES,
            (_, times) => times,
        };
        self
    }

    /// How much later the caller will take an admission from the queue; rounded down to whole microseconds.
    #[must_use]
    pub fn with_max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait_micros = crate::time::floor_micros(max_wait);
        self
    }

    /// Decide at this moment instead of the store's own.
    #[must_use]
    pub const fn at(mut self, now: Option<Timestamp>) -> Self {
        self.now = now;
        self
    }

    /// The same question about another key.
    #[must_use]
    pub const fn for_key<'b>(&self, key: &'b str) -> Action<'b>
    where
        'a: 'b,
    {
        Action {
            policy: self.policy,
            key,
            cost: self.cost,
            times: self.times,
            max_wait_micros: self.max_wait_micros,
            operand: self.operand,
            now: self.now,
        }
    }

    /// The same question under another policy.
    pub(crate) const fn under<'b>(&self, policy: &'b Policy) -> Action<'b>
    where
        'a: 'b,
    {
        let Self { policy: _, key, cost, times, max_wait_micros, operand, now } = *self;
        Action { policy, key, cost, times, max_wait_micros, operand, now }
    }

    /// The rules.
    #[must_use]
    pub const fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Whose allowance it is: any string.
    #[must_use]
    pub const fn key(&self) -> &'a str {
        self.key
    }

    /// Units one request takes.
    #[must_use]
    pub const fn cost(&self) -> u32 {
        self.cost
    }

    /// Up to how many identical requests: 1 to [`MAX_TIMES`].
    #[must_use]
    pub const fn times(&self) -> u32 {
        self.times
    }

    /// How much later the caller will take an admission from the queue, in microseconds.
    #[must_use]
    pub const fn max_wait_micros(&self) -> u64 {
        self.max_wait_micros
    }

    /// What is done with the cost.
    #[must_use]
    pub const fn operand(&self) -> Operand {
        self.operand
    }

    /// The moment to decide at, if not the store's own.
    #[must_use]
    pub const fn now(&self) -> Option<Timestamp> {
        self.now
    }

    /// How long after its expiry the state this action leaves is still stored: [`EXPIRY_MARGIN`], or
    /// [`EXPIRY_MARGIN_OWN_TIME`] if the action brings its time.
    #[must_use]
    pub const fn expiry_margin(&self) -> Duration {
        match self.now {
            None => EXPIRY_MARGIN,
            Some(_) => EXPIRY_MARGIN_OWN_TIME,
        }
    }

    /// Whether no wait helps: it consumes or peeks at more than the policy can ever hold.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        self.operand != Operand::Refund && self.cost > self.policy.capacity()
    }

    #[inline]
    pub(crate) const fn request(&self, now: Timestamp) -> Request {
        Request { now, cost: self.cost, max_wait_micros: self.max_wait_micros }
    }
}

/// What a store answers to an [`Action`]: raw, so that stores cannot differ in what is derived from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    granted: u32,
    now: Timestamp,
    states: PerRule<RuleState>,
}

impl Outcome {
    /// `granted` requests were admitted at `now`, on these `states`: one per rule, from **before** the action, or from
    /// after it for a refund. For a peek, `granted` says whether consuming would be admitted; a refund always is.
    #[must_use]
    pub fn new(granted: u32, now: Timestamp, states: impl IntoIterator<Item = RuleState>) -> Self {
        Self { granted, now, states: states.into_iter().collect() }
    }

    /// How many requests were admitted.
    #[must_use]
    pub const fn granted(&self) -> u32 {
        self.granted
    }

    /// When it was decided.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// One state per rule.
    #[must_use]
    pub fn states(&self) -> impl ExactSizeIterator<Item = RuleState> {
        self.states.as_slice().iter().copied()
    }

    /// Whether the state of `action`'s key is another one now, and has to be kept.
    #[must_use]
    pub const fn changes_state(&self, action: &Action<'_>) -> bool {
        match action.operand {
            Operand::Consume => self.granted > 0 && action.cost > 0,
            Operand::Refund => true,
            Operand::Peek => false,
        }
    }
}
