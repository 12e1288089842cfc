//! [`LockGuard`]: a lock that is held.

use std::fmt;
use std::future::Future;
use std::ops::Deref;

use super::claim::Claim;
use super::renewal::Renewal;
use super::{Lease, Loss, ReleaseFailure};
use crate::{LockStore, StoreUnavailableError};

/// A lock that is held, and prolonged, for as long as this lives. What is known of it is in its [`Lease`].
///
/// Dropped, it is given back in the background: at once on memory, else on the tokio runtime; without one, when its time
/// to live has passed. That neither waits nor panics. [`release`](Self::release) says what came of it. Either way, every
/// clone of the lease is over first.
#[must_use = "dropped, the lock is given back"]
pub struct LockGuard<S: LockStore> {
    lease: Lease,
    // Dropped before the claim, so that nothing is prolonged that is given back.
    renewal: Option<Renewal>,
    claim: Claim<S>,
}

/// What a release found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Released {
    /// The lock was held until now, and is free.
    Freed,
    /// It had been lost before: somebody else may hold it, and goes on holding it.
    AlreadyLost,
}

impl<S: LockStore> LockGuard<S> {
    pub(super) fn new(claim: Claim<S>, lease: Lease, renewal: Option<Renewal>) -> Self {
        Self { lease, renewal, claim }
    }

    /// The lease, to be handed to those who work under the lock.
    #[must_use]
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Completes as soon as the lock is lost, with the reason. See [`Lease::lost`].
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        self.lease.lost()
    }

    /// Gives the lock back, and says whether it was still held. Asks up to three times while the store fails for a moment,
    /// a tenth of a second or two apart; without a tokio runtime, one right after the other.
    ///
    /// **Cancellation.** A dropped call goes on as a dropped guard does.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer: the lock is free when its time to live has passed.
    ///
    /// # Panics
    ///
    /// When it has to ask again on a tokio runtime without a timer, unless the terms have a clock of their own.
    pub async fn release(mut self) -> Result<Released, StoreUnavailableError> {
        drop(self.renewal.take());
        let valid_until = self.lease.end(Loss::Released);
        let terms = self.claim.lock.terms.clone();
        match self.claim.release(valid_until).await {
            Ok(true) => Ok(Released::Freed),
            Ok(false) => {
                terms.note(&ReleaseFailure::AlreadyLost);
                Ok(Released::AlreadyLost)
            }
            Err(error) => {
                terms.note(&ReleaseFailure::Unavailable(error.clone()));
                Err(error)
            }
        }
    }
}

impl<S: LockStore> Drop for LockGuard<S> {
    fn drop(&mut self) {
        self.lease.end(Loss::Released);
    }
}

impl<S: LockStore> Deref for LockGuard<S> {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl<S: LockStore> fmt::Debug for LockGuard<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("lease", &self.lease)
            .field("is_renewed", &self.renewal.is_some())
            .finish_non_exhaustive()
    }
}
