//! [`RateLimiter`]: a policy on a store, with everything a caller can ask of it.

mod acquire;
mod answer;
mod blocking;
mod check;
mod course;
mod detached;
mod options;
mod reserve;
mod taker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::blocking::Blocking;
use self::check::Check;
use self::course::Course;
pub use self::options::Counts;
use self::options::Options;
pub use self::reserve::{Reservation, Reserve};
pub(crate) use self::taker::Taker;

use crate::observe::Call;
use crate::{
    Action, Clock, Decision, Guarded, Operation, Outcome, Policy, Store, StoreBackend, StoreUnavailableError,
    SystemClock, Take, Timestamp,
};

/// A [`Policy`] on a store. Cheap to clone; clones share everything.
///
/// A key is any string: whose allowance it is. A denial is a value, not an error; the only error is
/// [`StoreUnavailableError`], and a [failure policy](Self::on_failure) can answer in its place.
///
/// **Cancellation.** A dropped call leaves its key charged or not, never in between; which of the two is not known if
/// the store had been asked. [`acquire`](Self::acquire) and [`reserve`](Self::reserve) give back what nobody waits
/// for.
pub struct RateLimiter<S> {
    inner: Arc<Inner<S>>,
    /// What a plain limiter has none of, so that it costs one look.
    options: Option<Arc<Options>>,
}

struct Inner<S> {
    store: S,
    policy: Policy,
}

impl<B: StoreBackend> RateLimiter<Guarded<B>> {
    /// Limits by `policy` on `backend`.
    #[must_use]
    pub fn new(policy: Policy, backend: B) -> Self {
        Self::on(policy, Guarded::new(backend))
    }
}

impl<S: Store> RateLimiter<S> {
    /// Limits by `policy` on a store that is guarded already, such as an [`AnyStore`](crate::AnyStore).
    #[must_use]
    pub fn on(policy: Policy, store: S) -> Self {
        Self { inner: Arc::new(Inner { store, policy }), options: None }
    }

    /// Decides at the time of `clock` and waits on it, in place of the store's clock and the tokio timer. Clones made
    /// before keep to theirs.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        Arc::make_mut(self.options.get_or_insert_default()).clock = Some(Arc::new(clock));
        self
    }

    /// What is limited.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.inner.policy
    }

    /// Where it is counted.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.inner.store
    }

    /// The same limiter for callers without async.
    #[must_use]
    pub fn blocking(&self) -> Blocking<S> {
        Blocking::new(self.clone())
    }

    /// Takes one unit of `key`'s allowance, now or not at all.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    #[inline]
    pub fn check(&self, key: &str) -> impl Future<Output = Result<Decision, StoreUnavailableError>> + Send {
        self.check_n(key, 1)
    }

    /// Takes `cost` units at once, now or not at all. A cost of 0 is a probe: allowed, and nothing changes.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    #[inline]
    pub fn check_n(
        &self,
        key: &str,
        cost: u32,
    ) -> impl Future<Output = Result<Decision, StoreUnavailableError>> + Send {
        let later = move || async move { self.decide(Call::Check, &self.consume(key, cost)).await };
        Check { limiter: self, key, cost, later: Some(later), call: None }
    }

    /// What [`check`](Self::check) would answer. Nothing changes.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub async fn peek(&self, key: &str) -> Result<Decision, StoreUnavailableError> {
        self.peek_n(key, 1).await
    }

    /// What [`check_n`](Self::check_n) would answer. Nothing changes.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub async fn peek_n(&self, key: &str, cost: u32) -> Result<Decision, StoreUnavailableError> {
        let action = Action::peek(&self.inner.policy, key).with_cost(cost).at(self.now());
        self.decide(Call::Peek, &action).await
    }

    /// Takes as many units as there are, at most `most` and at most
    /// [`MAX_TIMES`](crate::MAX_TIMES), in one step.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub async fn take_up_to(&self, key: &str, most: u32) -> Result<Taken, StoreUnavailableError> {
        if most == 0 {
            let decision = self.decide(Call::TakeUpTo, &self.consume(key, 0)).await?;
            return Ok(Taken::from_nobody(0, decision));
        }
        let action = Action::consume(&self.inner.policy, key).with_times(most).at(self.now());
        self.take(Call::TakeUpTo, &action, None).await
    }

    /// Gives `cost` units back, never above full. The decision says where the key stands then.
    ///
    /// To whoever answers at present: while a [fallback](crate::FailurePolicy::Fallback) does, they are given back there.
    /// A [reservation](Self::reserve) remembers who took them.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub async fn refund(&self, key: &str, cost: u32) -> Result<Decision, StoreUnavailableError> {
        let action = Action::refund(&self.inner.policy, key).with_cost(cost).at(self.now());
        self.decide(Call::Refund, &action).await
    }

    /// Forgets what `key` has used; whether there was anything to forget.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub async fn reset(&self, key: &str) -> Result<bool, StoreUnavailableError> {
        let at_store = self.inner.store.reset(self.inner.policy.name(), key);
        if self.attended().is_none() {
            return at_store.await;
        }
        let course = Course::begin(self, Call::Reset, key, 0);
        self.forget(course, Operation::Reset, at_store, async |fallback| fallback.reset(key).await).await
    }

    /// Forgets what every key has used under this policy; how many keys that were.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub async fn reset_all(&self) -> Result<u64, StoreUnavailableError> {
        let at_store = self.inner.store.reset_policy(self.inner.policy.name());
        if self.attended().is_none() {
            return at_store.await;
        }
        let course = Course::begin(self, Call::ResetAll, "", 0);
        self.forget(course, Operation::ResetPolicy, at_store, async |fallback| fallback.reset_all().await)
            .await
    }

    #[inline(always)]
    fn consume<'a>(&'a self, key: &'a str, cost: u32) -> Action<'a> {
        Action::consume(&self.inner.policy, key).with_cost(cost).at(self.now())
    }

    /// The most frequent case by itself.
    #[inline(always)]
    fn decide_now(&self, action: &Action<'_>) -> Option<Decision> {
        if self.attended().is_some() {
            return None;
        }
        let take = Take::new(*action)?;
        Some(take.explain(self.inner.store.decide_now(&take)?))
    }

    async fn decide(&self, call: Call, action: &Action<'_>) -> Result<Decision, StoreUnavailableError> {
        if let Some(options) = self.attended() {
            if let Some(decision) = self.attend_now(options, call, action) {
                return Ok(decision);
            }
            return Ok(self.attend(call, action, None).await?.decision);
        }
        if action.is_hopeless() {
            return Ok(Decision::never(action.policy().capacity()));
        }
        let outcome: Outcome = self.inner.store.decide(action).await?;
        Ok(Decision::of(action, &outcome, 0))
    }

    #[inline]
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.clock().map(|clock| clock.now())
    }

    #[inline]
    fn clock(&self) -> Option<&Arc<dyn Clock>> {
        self.options.as_ref()?.clock.as_ref()
    }

    /// What is set, if it is more than a clock.
    #[inline]
    fn attended(&self) -> Option<&Arc<Options>> {
        self.options.as_ref().filter(|options| options.is_attended)
    }

    /// The clock that waits are measured on.
    fn wait_clock(&self) -> Arc<dyn Clock> {
        self.clock().cloned().unwrap_or_else(|| Arc::new(SystemClock))
    }
}

impl<S> Clone for RateLimiter<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), options: self.options.clone() }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("policy", &self.inner.policy)
            .field("store", &self.inner.store)
            .field("options", &self.options)
            .finish()
    }
}

/// What [`RateLimiter::take_up_to`] took.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it may have taken fewer than were asked for"]
pub struct Taken {
    units: u32,
    decision: Decision,
    /// Who took them; none if nothing was taken.
    taker: Option<Taker>,
}

impl Taken {
    fn of(action: &Action<'_>, outcome: &Outcome) -> Self {
        let units = outcome.granted();
        let last = if units < action.times() { units } else { units.saturating_sub(1) };
        let taker = (units > 0).then_some(Taker::STORE);
        Self { units, decision: Decision::of(action, outcome, last), taker }
    }

    fn never(action: &Action<'_>) -> Self {
        Self::from_nobody(0, Decision::never(action.policy().capacity()))
    }

    /// Units that were denied, or allowed without being taken.
    const fn from_nobody(units: u32, decision: Decision) -> Self {
        Self { units, decision, taker: None }
    }

    /// Denied, because what was granted comes later than the caller can wait.
    fn too_late(self, left: Duration) -> Self {
        Self::from_nobody(0, self.decision.too_late(left))
    }

    /// All of `most` units, if it were denied.
    fn in_shadow(self, most: u32) -> Self {
        let units = if self.decision.is_allowed() { self.units } else { most };
        Self { units, decision: self.decision.in_shadow(), taker: self.taker }
    }

    /// How many units were taken.
    #[must_use]
    pub const fn units(&self) -> u32 {
        self.units
    }

    /// The decision on the last unit: allowed if all were taken, else the denial of the first that was not.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }
}
