//! The limiter for callers without async: the same names, the same behaviour.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::{RateLimiter, Reserve, Taken};
use crate::{Clock, Decision, Reservation, Store, StoreUnavailableError, ThreadClock};

/// The blocking face of a [`RateLimiter`], from [`RateLimiter::blocking`].
///
/// On memory no runtime is needed. A store with connections is driven by the tokio runtime that was current when this
/// was made, or by one [given](Self::with_runtime): make it there, use it on threads of your own. Inside an async task
/// it would block the task, and for ever if that is the only thread of the runtime; use the limiter itself.
pub struct Blocking<S> {
    limiter: RateLimiter<S>,
    runtime: Option<Handle>,
}

impl<S: Store> Blocking<S> {
    pub(super) fn new(limiter: RateLimiter<S>) -> Self {
        Self { limiter, runtime: Handle::try_current().ok() }
    }

    /// Lets `runtime` drive the connections of the store.
    #[must_use]
    pub fn with_runtime(self, runtime: Handle) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// See [`RateLimiter::check`].
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn check(&self, key: &str) -> Result<Decision, StoreUnavailableError> {
        self.run(self.limiter.check(key))
    }

    /// See [`RateLimiter::check_n`].
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn check_n(&self, key: &str, cost: u32) -> Result<Decision, StoreUnavailableError> {
        self.run(self.limiter.check_n(key, cost))
    }

    /// See [`RateLimiter::peek`].
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn peek(&self, key: &str) -> Result<Decision, StoreUnavailableError> {
        self.run(self.limiter.peek(key))
    }

    /// See [`RateLimiter::peek_n`].
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn peek_n(&self, key: &str, cost: u32) -> Result<Decision, StoreUnavailableError> {
        self.run(self.limiter.peek_n(key, cost))
    }

    /// See [`RateLimiter::take_up_to`].
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn take_up_to(&self, key: &str, most: u32) -> Result<Taken, StoreUnavailableError> {
        self.run(self.limiter.take_up_to(key, most))
    }

    /// See [`RateLimiter::acquire`]. Waits on the calling thread.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn acquire(&self, key: &str, within: Duration) -> Result<Decision, StoreUnavailableError> {
        self.acquire_n(key, 1, within)
    }

    /// See [`RateLimiter::acquire_n`]. Waits on the calling thread.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn acquire_n(
        &self,
        key: &str,
        cost: u32,
        within: Duration,
    ) -> Result<Decision, StoreUnavailableError> {
        let clock: Arc<dyn Clock> = match self.limiter.clock() {
            Some(clock) => Arc::clone(clock),
            None => Arc::new(ThreadClock),
        };
        self.run(self.limiter.acquire_on(clock, key, cost, within))
    }

    /// See [`RateLimiter::refund`].
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn refund(&self, key: &str, cost: u32) -> Result<Decision, StoreUnavailableError> {
        self.run(self.limiter.refund(key, cost))
    }

    /// See [`RateLimiter::reserve`]. Settle with [`commit`](Self::commit) or [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn reserve(&self, key: &str, estimate: u32) -> Result<Reserve<S>, StoreUnavailableError> {
        self.run(self.limiter.reserve(key, estimate))
    }

    /// See [`Reservation::commit`].
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn commit(&self, held: Reservation<S>, actual: u32) -> Result<Decision, StoreUnavailableError> {
        self.run(held.commit(actual))
    }

    /// See [`Reservation::release`].
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn release(&self, held: Reservation<S>) -> Result<Decision, StoreUnavailableError> {
        self.run(held.release())
    }

    /// See [`RateLimiter::reset`].
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn reset(&self, key: &str) -> Result<bool, StoreUnavailableError> {
        self.run(self.limiter.reset(key))
    }

    /// See [`RateLimiter::reset_all`].
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub fn reset_all(&self) -> Result<u64, StoreUnavailableError> {
        self.run(self.limiter.reset_all())
    }

    /// Drives `call` on this thread; timers and sockets are those of the runtime.
    fn run<T>(&self, call: impl Future<Output = T>) -> T {
        let _entered = self.runtime.as_ref().map(Handle::enter);
        pollster::block_on(call)
    }
}

impl<S> Clone for Blocking<S> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), runtime: self.runtime.clone() }
    }
}

impl<S: fmt::Debug> fmt::Debug for Blocking<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
