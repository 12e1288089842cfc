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

/// The part of the time to live by which the clocks of holder and store may drift apart in it: one in so many.
const DRIFT_PARTS: u32 = 100;

/// And what both may round.
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
    /// Its holder gave it back: the guard was released or dropped.
    #[error("the lock was given back")]
    Released,
}

/// What a holder knows of its lock. Clones are the same lease.
///
/// It is valid for the time to live counted from **before** the store was asked, less a hundredth of it and 2 ms: what a
/// clock may be off. So it ends here before it ends in the store. It ends for good, for all clones, when the guard is
/// released or dropped, before the store is asked to free the lock.
///
/// The clock is that of the [terms](LockTerms::clock). The default one does not run while the machine is suspended: a
/// holder that wakes up from that may take for valid what the store let expire, and only the [fence](Lease::fence) helps.
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
        let hold_end = terms.max_hold.map(|most| asked.saturating_add(most.as_duration()));
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
        let prolonged = validity(asked, ttl, self.0.hold_end);
        matches!(self.replace(prolonged), Validity::Until(..))
    }

    /// It is over, for this reason unless it was before. Returns until when it would have been valid, if it was.
    pub(super) fn end(&self, loss: Loss) -> Option<Timestamp> {
        match self.replace(Validity::Over(loss)) {
            Validity::Until(until, _) => Some(until),
            Validity::Over(_) => None,
        }
    }

    /// Puts `next` in place of what it is now, unless that is over. Returns what it was.
    fn replace(&self, next: Validity) -> Validity {
        let now = self.0.clock.now();
        let mut validity = self.0.validity.lock();
        let last = validity.at(now);
        *validity = if matches!(last, Validity::Until(..)) { next } else { last };
        drop(validity);
        self.0.changed.notify_waiters();
        last
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
        *validity = validity.at(now);
        *validity
    }
}

impl Validity {
    fn at(self, now: Timestamp) -> Self {
        match self {
            Self::Until(until, loss) if now >= until => Self::Over(loss),
            still => still,
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;
    use crate::Sleep;

    /// Moved by hand; nobody sleeps on it.
    #[derive(Debug, Clone, Default)]
    struct HandClock(Arc<AtomicU64>);

    impl Clock for HandClock {
        fn now(&self) -> Timestamp {
            Timestamp::saturating_from_micros(self.0.load(Ordering::SeqCst))
        }

        fn sleep(&self, _: Duration) -> Sleep {
            Box::pin(std::future::pending())
        }
    }

    fn lease(clock: &HandClock) -> Lease {
        let (terms, ttl) =
            (LockTerms::default().clock(clock.clone()), LockTtl::new(Duration::from_secs(1)).unwrap());
        Lease::new("name".into(), Fence::new(1), &terms, clock.now(), ttl)
    }

    #[test]
    fn what_is_over_is_neither_prolonged_nor_over_for_another_reason() {
        let (clock, ttl) = (HandClock::default(), LockTtl::MAX);
        let lease = lease(&clock);
        assert!(lease.prolong(clock.now(), LockTtl::new(Duration::from_secs(1)).unwrap()));
        assert_eq!(
            lease.end(Loss::Released),
            Some(Timestamp::EPOCH.saturating_add(Duration::from_millis(988)))
        );
        assert!(!lease.prolong(clock.now(), ttl) && lease.end(Loss::Taken).is_none() && !lease.is_valid());
        assert_eq!(pollster::block_on(lease.lost()), Loss::Released);
    }

    /// One thread sees it expire, for a moment, while another one prolongs it over and over.
    #[test]
    fn a_lease_that_was_seen_to_be_over_does_not_come_back() {
        let ttl = LockTtl::new(Duration::from_secs(1)).unwrap();
        for _ in 0..1_000 {
            let (clock, start, is_done) = (HandClock::default(), Barrier::new(2), AtomicBool::new(false));
            let lease = lease(&clock);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    while !is_done.load(Ordering::SeqCst) {
                        lease.prolong(Timestamp::EPOCH, ttl);
                    }
                });
                start.wait();
                clock.0.store(988_000, Ordering::SeqCst);
                assert!(!lease.is_valid());
                clock.0.store(0, Ordering::SeqCst);
                is_done.store(true, Ordering::SeqCst);
            });
            assert!(!lease.is_valid(), "once over, it stays over");
        }
    }
}
