//! [`Lease`]: for how long a lock is certainly held, on the clock of its holder.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Fence, LockTerms, LockTtl};
use crate::{Clock, Timestamp};

/// How far two clocks may drift apart in a hundred seconds; and what a timer may be late.
const DRIFT_PARTS: u32 = 100;
const DRIFT: Duration = Duration::from_millis(2);

/// Why a lock is not held any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// Its time has passed: it was not prolonged, or the store could not be reached in time.
    #[error("the lock expired")]
    Expired,
    /// The store says that it is not this holder's any more.
    #[error("the lock was taken by another owner, or removed")]
    Taken,
    /// It was held for as long as the terms allow.
    #[error("the lock was held for as long as it may be")]
    HeldTooLong,
}

/// What a holder knows of its lock. Clones are the same lease.
///
/// It is valid for the time to live counted from **before** the store was asked, less a hundredth of it and 2 ms: what a
/// clock may be off. So it ends here before it ends in the store.
#[derive(Clone)]
pub struct Lease(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    fence: Fence,
    clock: Arc<dyn Clock>,
    /// When it has been held for as long as it may be.
    hold_end: Option<Timestamp>,
    validity: Mutex<Validity>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Validity {
    /// And why it will be over then.
    Until(Timestamp, Loss),
    /// Once over, it stays over.
    Over(Loss),
}

impl Lease {
    /// Of a lock for which the store was asked at `asked`, for `ttl`.
    pub(super) fn new(
        name: Arc<str>,
        fence: Fence,
        terms: &LockTerms,
        asked: Timestamp,
        ttl: LockTtl,
    ) -> Self {
        let hold_end = terms.max_hold.map(|span| asked.saturating_add(span));
        Self(Arc::new(Inner {
            name,
            fence,
            clock: Arc::clone(&terms.clock),
            hold_end,
            validity: Mutex::new(validity(asked, ttl, hold_end)),
            changed: Notify::new(),
        }))
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The number of this acquisition, to be handed to what the lock protects.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.fence
    }

    /// Whether the lock is certainly held at this moment. Something else may happen before the next one: what must not
    /// be written late has to look at the [fence](Self::fence).
    #[must_use]
    pub fn is_valid(&self) -> bool {
        matches!(self.look(), Validity::Until(..))
    }

    /// For how long the lock is still held if it is not prolonged.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.look() {
            Validity::Until(until, _) => until.saturating_since(self.0.clock.now()),
            Validity::Over(_) => Duration::ZERO,
        }
    }

    /// Completes as soon as the lock is lost, with the reason; at once if it is.
    ///
    /// # Panics
    ///
    /// When it has to wait outside a tokio runtime with a timer, unless the terms have a clock of their own.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        let lease = self.clone();
        async move {
            loop {
                let changed = std::pin::pin!(lease.0.changed.notified());
                match lease.look() {
                    Validity::Over(loss) => return loss,
                    Validity::Until(until, _) => {
                        let left = until.saturating_since(lease.0.clock.now());
                        select(lease.0.clock.sleep(left), changed).await;
                    }
                }
            }
        }
    }

    /// The store prolonged the lock by `ttl`, when it was asked at `asked`. False if that came too late.
    pub(super) fn prolong(&self, asked: Timestamp, ttl: LockTtl) -> bool {
        let is_in_time = self.is_valid();
        if is_in_time {
            *self.0.validity.lock() = validity(asked, ttl, self.0.hold_end);
            self.0.changed.notify_waiters();
        }
        is_in_time
    }

    pub(super) fn end(&self, loss: Loss) {
        let mut validity = self.0.validity.lock();
        if matches!(*validity, Validity::Until(..)) {
            *validity = Validity::Over(loss);
        }
        drop(validity);
        self.0.changed.notify_waiters();
    }

    /// For how long the lock may be prolonged at `asked`: less than `ttl` if it may not be held for so long. None if
    /// that is no time at all.
    pub(super) fn next_ttl(&self, asked: Timestamp, ttl: LockTtl) -> Option<LockTtl> {
        match self.0.hold_end {
            Some(end) => LockTtl::new(end.saturating_since(asked)).ok().map(|left| left.min(ttl)),
            None => Some(ttl),
        }
    }

    fn look(&self) -> Validity {
        let now = self.0.clock.now();
        let mut validity = self.0.validity.lock();
        if let Validity::Until(until, loss) = *validity
            && now >= until
        {
            *validity = Validity::Over(loss);
        }
        *validity
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.0.name)
            .field("fence", &self.0.fence)
            .field("validity", &*self.0.validity.lock())
            .finish_non_exhaustive()
    }
}

/// Of a lock that is held for `ttl` from `asked` on.
fn validity(asked: Timestamp, ttl: LockTtl, hold_end: Option<Timestamp>) -> Validity {
    let ttl = ttl.as_duration();
    let until = asked.saturating_add(ttl.saturating_sub(ttl / DRIFT_PARTS + DRIFT));
    match hold_end {
        Some(end) if asked.saturating_add(ttl) >= end => Validity::Until(until.min(end), Loss::HeldTooLong),
        _ => Validity::Until(until, Loss::Expired),
    }
}
