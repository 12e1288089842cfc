//! What a limiter can be told beyond policy and store. All of it is in one place, which a plain limiter does not have.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{RateLimiter, Taken};
use crate::background::contained;
use crate::observe::Observer;
use crate::{
    Action, AnyLimiter, Breaker, BreakerState, Clock, Decision, ErrorKind, FailurePolicy, KeyList, Source,
    Store, Timestamp,
};

/// Clones share the breaker, the lists, the observers and the counts.
#[derive(Clone, Default)]
pub(super) struct Options {
    pub(super) clock: Option<Arc<dyn Clock>>,
    /// Whether there is anything else.
    pub(super) is_attended: bool,
    pub(super) failure: FailurePolicy,
    also_on: Vec<ErrorKind>,
    pub(super) deadline: Option<Duration>,
    pub(super) breaker: Option<Breaker>,
    allowed: Option<Arc<KeyList>>,
    blocked: Option<Arc<KeyList>>,
    pub(super) shadow: bool,
    observers: Vec<Arc<dyn Observer>>,
    counters: Arc<Counters>,
}

impl<S: Store> RateLimiter<S> {
    /// Lets `policy` answer while the store is out of service. Default: [`FailurePolicy::Propagate`].
    ///
    /// With any other policy comes a [breaker](Self::breaker) as [`Breaker::default`] makes it, unless there is one
    /// already: a store that is gone costs a few failures, not one per call. Set a [deadline](Self::deadline) too, or
    /// each of them takes as long as the backend waits.
    ///
    /// ```
    /// use std::time::Duration;
    /// use throttle_core::{ErrorKind, FailurePolicy, Policy, RateLimiter, Rule, Source};
    /// use throttle_testkit::{Fault, FaultyBackend, ReferenceBackend};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = FaultyBackend::new(ReferenceBackend::default());
    /// store.faults().inject(Fault::refuse(ErrorKind::Connection).always());
    ///
    /// let policy = Policy::new("api", [Rule::gcra("100/s")?])?;
    /// let local = RateLimiter::new(policy.share(1, 4)?, ReferenceBackend::default());
    /// let limiter = RateLimiter::new(policy, store)
    ///     .deadline(Duration::from_millis(100))
    ///     .on_failure(FailurePolicy::fallback(local));
    ///
    /// let decision = limiter.check("alice").await?;
    /// assert_eq!((decision.source(), decision.remaining()), (Source::Fallback, 24));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_failure(self, policy: FailurePolicy) -> Self {
        self.with_options(|options| {
            if !matches!(policy, FailurePolicy::Propagate) {
                options.breaker.get_or_insert_default();
            }
            options.failure = policy;
        })
    }

    /// Lets failure policy and breaker treat these kinds of errors as outages too, beside those that
    /// [are](ErrorKind::is_outage). With all of [`ErrorKind::ALL`] no error of the store reaches a caller, those that
    /// somebody has to mend included.
    #[must_use]
    pub fn also_on(self, kinds: impl IntoIterator<Item = ErrorKind>) -> Self {
        self.with_options(|options| options.also_on.extend(kinds))
    }

    /// Waits for the store at most `span` per question; `acquire` may ask several times, and waits for room in between.
    /// Default: as long as the backend does.
    ///
    /// **What becomes of the question.** It is dropped, and not asked again. The key is charged or not, the
    /// [effect](crate::StoreUnavailableError::effect) is unknown, whatever the failure policy answers then; what was
    /// charged comes back with time. Nothing goes on in the background.
    ///
    /// The time is that of the limiter's [clock](Self::with_clock), or of the current tokio runtime. Where there is
    /// neither, as for a [blocking](Self::blocking) caller without a runtime, only the backend's own deadlines hold.
    #[must_use]
    pub fn deadline(self, span: Duration) -> Self {
        self.with_options(|options| options.deadline = Some(span))
    }

    /// Keeps calls from a store that does not answer; see [`Breaker`]. `None` for no breaker.
    #[must_use]
    pub fn breaker(self, breaker: impl Into<Option<Breaker>>) -> Self {
        self.with_options(|options| options.breaker = breaker.into())
    }

    /// Always allows the keys on `list`, without asking the store. They win over [blocked](Self::block) ones.
    ///
    /// [`reset`](Self::reset) still goes to the store.
    #[must_use]
    pub fn allow(self, list: KeyList) -> Self {
        self.with_options(|options| options.allowed = Some(Arc::new(list)))
    }

    /// Never allows the keys on `list`, without asking the store. The decision [says never](Decision::is_never).
    #[must_use]
    pub fn block(self, list: KeyList) -> Self {
        self.with_options(|options| options.blocked = Some(Arc::new(list)))
    }

    /// Decides, counts and reports, and denies nobody: neither by the policy nor by the block list nor while the store is
    /// out of service. [`Decision::would_deny`] says who would have been denied, [`counts`](Self::counts) how many.
    ///
    /// Nobody waits either: `acquire` asks once, and would have denied or waited if the decision says so. What is
    /// admitted is charged as it would be, on the same state as a limiter of that policy that enforces. Errors that no
    /// failure policy answers are returned.
    #[must_use]
    pub fn shadow(self) -> Self {
        self.with_options(|options| options.shadow = true)
    }

    /// Tells `observer` of every call; several are told in the order in which they came.
    #[must_use]
    pub fn observe(self, observer: impl Observer) -> Self {
        self.with_options(|options| options.observers.push(Arc::new(observer)))
    }

    /// What the breaker does with calls at present; none without a breaker.
    #[must_use]
    pub fn breaker_state(&self) -> Option<BreakerState> {
        self.options.as_ref()?.breaker.as_ref().map(Breaker::state)
    }

    /// How many calls were answered by something else than the policy on the store. Clones count together.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.options.as_ref().map(|options| options.counters.read()).unwrap_or_default()
    }

    fn with_options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        let options = Arc::make_mut(self.options.get_or_insert_default());
        options.is_attended = true;
        change(options);
        self
    }
}

impl Options {
    /// Whether an error of `kind` is an outage: the failure policy answers, and the breaker counts it.
    pub(super) fn is_outage(&self, kind: ErrorKind) -> bool {
        kind.is_outage() || self.also_on.contains(&kind)
    }

    pub(super) const fn fallback(&self) -> Option<&AnyLimiter> {
        match &self.failure {
            FailurePolicy::Fallback(limiter) => Some(limiter),
            FailurePolicy::Propagate | FailurePolicy::FailOpen | FailurePolicy::FailClosed => None,
        }
    }

    /// The answer of the lists, if the key is on one.
    pub(super) fn listed(&self, action: &Action<'_>, now: impl FnOnce() -> Timestamp) -> Option<Taken> {
        let has = |list: &Option<Arc<KeyList>>| list.as_ref().is_some_and(|list| list.contains(action.key()));
        if has(&self.allowed) {
            let decision = Decision::as_if_fresh(action, now(), Source::AllowList);
            return Some(Taken { units: action.times(), decision });
        }
        let denied = || Taken { units: 0, decision: Decision::blocked(action.policy().capacity()) };
        has(&self.blocked).then(denied)
    }

    pub(super) fn is_observed(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Tells every observer, whatever the others do.
    pub(super) fn tell(&self, mut event: impl FnMut(&dyn Observer)) {
        for observer in &self.observers {
            if contained(|| event(&**observer)) {
                add_one(&self.counters.observer_panics);
            }
        }
    }

    /// Counts a decision that the store did not make, or that shadow mode changed.
    pub(super) fn count(&self, decision: &Decision) {
        match decision.source() {
            Source::Store => {}
            Source::Fallback => add_one(&self.counters.fell_back),
            Source::AllowList => add_one(&self.counters.allow_listed),
            Source::BlockList => add_one(&self.counters.block_listed),
            Source::Policy if matches!(self.failure, FailurePolicy::FailOpen) => {
                add_one(&self.counters.failed_open);
            }
            Source::Policy => add_one(&self.counters.failed_closed),
        }
        if decision.would_deny() {
            add_one(&self.counters.would_deny);
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("clock", &self.clock)
            .field("failure", &self.failure)
            .field("also_on", &self.also_on)
            .field("deadline", &self.deadline)
            .field("breaker", &self.breaker)
            .field("allowed", &self.allowed)
            .field("blocked", &self.blocked)
            .field("shadow", &self.shadow)
            .field("observers", &self.observers.len())
            .finish_non_exhaustive()
    }
}

/// How many calls of a limiter something else than its policy on its store has answered. See [`RateLimiter::counts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Of keys on the allow list.
    pub allow_listed: u64,
    /// Of keys on the block list.
    pub block_listed: u64,
    /// Allowed only because of shadow mode.
    pub would_deny: u64,
    /// Allowed by [`FailurePolicy::FailOpen`].
    pub failed_open: u64,
    /// Denied by [`FailurePolicy::FailClosed`].
    pub failed_closed: u64,
    /// Decided by a [fallback](FailurePolicy::Fallback).
    pub fell_back: u64,
    /// How often an observer panicked.
    pub observer_panics: u64,
}

#[derive(Default)]
struct Counters {
    allow_listed: AtomicU64,
    block_listed: AtomicU64,
    would_deny: AtomicU64,
    failed_open: AtomicU64,
    failed_closed: AtomicU64,
    fell_back: AtomicU64,
    observer_panics: AtomicU64,
}

impl Counters {
    fn read(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            allow_listed: read(&self.allow_listed),
            block_listed: read(&self.block_listed),
            would_deny: read(&self.would_deny),
            failed_open: read(&self.failed_open),
            failed_closed: read(&self.failed_closed),
            fell_back: read(&self.fell_back),
            observer_panics: read(&self.observer_panics),
        }
    }
}

fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
