//! [`FailurePolicy`]: who answers while the store does not. [`Breaker`]: who keeps callers from it meanwhile.

mod breaker;
mod error;
mod fallback;

pub use self::breaker::{
    Breaker, BreakerBuilder, BreakerState, DEFAULT_FAILURES, DEFAULT_LONGEST_PAUSE, DEFAULT_SHORTEST_PAUSE,
};
pub use self::error::{CircuitOpen, DeadlineExceeded};
pub use self::fallback::AnyLimiter;

pub(crate) use self::breaker::Notice;

use crate::{RateLimiter, Store};

/// Who answers while the store is [out of service](crate::ErrorKind::is_outage). Set by
/// [`RateLimiter::on_failure`].
///
/// It speaks for a store that does not answer, and for nothing else: a denial stands, and an error of another kind, such
/// as [`Corrupt`](crate::ErrorKind::Corrupt) or [`Bug`](crate::ErrorKind::Bug), is returned unless
/// [asked otherwise](RateLimiter::also_on). [`Decision::source`](crate::Decision::source) says who decided.
///
/// | asked to | `FailOpen` | `FailClosed` | `Fallback` |
/// |---|---|---|---|
/// | check, peek, acquire | allowed, as a key that nobody has used | denied, nothing remains | as the fallback decides |
/// | take up to | all that was asked for | nothing | as many as the fallback has |
/// | reserve | held, with no units in it | denied | units of the fallback |
/// | refund | done, as far as the caller is told | denied | there |
/// | commit, release | done, as far as the caller is told | denied | there, but what the store took never goes back there |
/// | reset | the error | the error | there; while the store answers, in both |
///
/// Under `FailClosed`, `retry_after` is when the store is asked again: the end of the [breaker](Breaker)'s pause, or a
/// second. `acquire` waits for it, within its time.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// The caller gets the [`StoreUnavailableError`](crate::StoreUnavailableError).
    #[default]
    Propagate,
    /// Everybody may go ahead, and nothing is counted.
    FailOpen,
    /// Nobody may.
    FailClosed,
    /// Another limiter decides, usually in memory with a [share](crate::Policy::share) of the quota. Should it fail too,
    /// the caller gets the error of the store.
    ///
    /// More than it can ever hold, but not more than the policy can, is denied, not *never*.
    Fallback(AnyLimiter),
}

impl FailurePolicy {
    /// Lets `limiter` decide.
    #[must_use]
    pub fn fallback<S: Store>(limiter: RateLimiter<S>) -> Self {
        Self::Fallback(limiter.into())
    }
}
