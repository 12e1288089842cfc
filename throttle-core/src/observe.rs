//! What a limiter does, for those who watch: logs, metrics, or whatever implements [`Observer`].
//!
//! | feature | observer | what it writes |
//! |---|---|---|
//! | `tracing` | `TracingObserver` | an event per call, per outage, per change of a breaker |
//! | `metrics` | `MetricsObserver` | the metrics of the next table, through the `metrics` crate |
//!
//! | metric | kind | labels | what it says |
//! |---|---|---|---|
//! | [`throttle_requests_total`](metrics::REQUESTS) | counter | `policy`, `backend`, `call`, `result`, `source` | how calls ended: `allowed`, `denied`, `never`, `would_deny`, `failed` |
//! | [`throttle_store_seconds`](metrics::STORE_SECONDS) | histogram | `policy`, `backend` | how long a call waited for the store |
//! | [`throttle_unavailable_total`](metrics::UNAVAILABLE) | counter | `policy`, `backend`, `operation`, `kind`, `asked` | calls in which the store did not answer |
//! | [`throttle_breaker_state`](metrics::BREAKER_STATE) | gauge | `breaker`, `backend` | 0 closed, 1 half-open, 2 open |
//! | [`throttle_cache_hits_total`](metrics::CACHE_HITS) | counter | `backend` | decisions that a cache answered |
//! | [`throttle_batch_callers`](metrics::BATCH_CALLERS) | histogram | `backend` | callers per batch of a `GroupCommit` |
//! | [`throttle_batch_actions`](metrics::BATCH_ACTIONS) | histogram | `backend` | actions per batch |
//!
//! No label ever holds a key. The last three come from the backends themselves, without an observer.

pub mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
#[cfg(feature = "tracing")]
pub use self::tracing::TracingObserver;

use std::sync::Arc;
use std::time::Duration;

use crate::{BreakerState, Decision, Policy, StoreUnavailableError};

/// Watches a limiter. Every method does nothing unless it is written.
///
/// A call of the limiter that runs to its end is told once, however often it waited and asked: first
/// [`on_unavailable`](Self::on_unavailable) if the store did not answer, then [`on_decision`](Self::on_decision) if there
/// is a decision, whoever made it. A call that is dropped is not told. What is decided is decided before an observer
/// hears of it: one that panics is [counted](crate::Counts::observer_panics), and nothing else happens.
///
/// Observers run where the call runs: they should be quick, and must not block.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use throttle_core::observe::{DecisionEvent, Observer};
///
/// #[derive(Default)]
/// struct Denials(AtomicU64);
///
/// impl Observer for Denials {
///     fn on_decision(&self, event: &DecisionEvent<'_>) {
///         if !event.decision.is_allowed() {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// # use throttle_core::{Policy, RateLimiter, Rule};
/// # use throttle_testkit::ReferenceBackend;
/// let denials = Arc::new(Denials::default());
/// let policy = Policy::new("api", [Rule::gcra("1/h")?])?;
/// let limiter = RateLimiter::new(policy, ReferenceBackend::default()).observe(Arc::clone(&denials)).blocking();
/// for _ in 0..3 {
///     let _ = limiter.check("alice")?;
/// }
/// assert_eq!(denials.0.load(Ordering::Relaxed), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Observer: Send + Sync + 'static {
    /// A call ended in a decision.
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        let _ = event;
    }

    /// The store did not answer a call, or a breaker kept the call from it.
    fn on_unavailable(&self, event: &UnavailableEvent<'_>) {
        let _ = event;
    }

    /// A breaker changed its state. Told in the order of the changes, to the observers of the limiter whose call made
    /// the change.
    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        let _ = event;
    }
}

#[deny(clippy::missing_trait_methods)]
impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        (**self).on_decision(event);
    }

    fn on_unavailable(&self, event: &UnavailableEvent<'_>) {
        (**self).on_unavailable(event);
    }

    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        (**self).on_breaker(event);
    }
}

/// What a limiter was called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// `check`, `check_n`.
    Check,
    /// `peek`, `peek_n`.
    Peek,
    /// `take_up_to`.
    TakeUpTo,
    /// `acquire`, `acquire_n`.
    Acquire,
    /// `reserve`.
    Reserve,
    /// `commit` and `release` of a reservation.
    Settle,
    /// `refund`.
    Refund,
    /// `reset`.
    Reset,
    /// `reset_all`.
    ResetAll,
}

impl Call {
    /// Its name in events and metrics, such as `take_up_to`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Peek => "peek",
            Self::TakeUpTo => "take_up_to",
            Self::Acquire => "acquire",
            Self::Reserve => "reserve",
            Self::Settle => "settle",
            Self::Refund => "refund",
            Self::Reset => "reset",
            Self::ResetAll => "reset_all",
        }
    }
}

/// A call ended in a decision.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DecisionEvent<'a> {
    /// Under which policy.
    pub policy: &'a Policy,
    /// The kind of store.
    pub backend: &'static str,
    /// What the limiter was called for.
    pub call: Call,
    /// Whose allowance it is. May be personal; think before it is written down.
    pub key: &'a str,
    /// Units asked for.
    pub cost: u32,
    /// What the caller is told.
    pub decision: &'a Decision,
    /// From the call to its end, waits for room included, on the clock of the limiter.
    pub elapsed: Duration,
    /// How much of it the store took; none if it was not asked.
    pub store_time: Option<Duration>,
}

/// The store did not answer.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct UnavailableEvent<'a> {
    /// Under which policy.
    pub policy: &'a Policy,
    /// What the limiter was called for.
    pub call: Call,
    /// Backend, operation, kind and cause; the last one, if several questions failed.
    pub error: &'a StoreUnavailableError,
    /// Whether the store was asked; if not, the breaker was open.
    pub was_asked: bool,
    /// Whether the caller gets this error. If not, the failure policy answered.
    pub is_propagated: bool,
    /// How long the call waited for the store; none if it was not asked. The decision that follows, if one does, says
    /// the same.
    pub store_time: Option<Duration>,
}

/// A breaker changed its state.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct BreakerEvent<'a> {
    /// Under which policy a call made the change.
    pub policy: &'a Policy,
    /// The kind of store.
    pub backend: &'static str,
    /// The name of the breaker; without one, that of the policy.
    pub breaker: &'a str,
    /// What it did until now.
    pub from: BreakerState,
    /// What it does from now on.
    pub to: BreakerState,
    /// The failure that opened it, or keeps it from closing.
    pub cause: Option<&'a StoreUnavailableError>,
}
