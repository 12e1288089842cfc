//! Locks: a key for each that is held, on a lease of its holder's own.
//!
//! The revision at which the key was created is the number of the acquisition; the lease is the time to live. Nothing is
//! kept of a lock that is free, nor of who waits for one.

mod holding;

use throttle_core::lock::{Acquisition, Fence, LockTtl, Owner};
use throttle_core::{BaseErrorSet, CasError, Effect, Exchange, LockBackend, lock_key};

use self::holding::{Holding, conflicting, fence, freed_lease, holding, release, value};
use crate::connection::Repeat;
use crate::store::EtcdStore;
use crate::txn::NO_HEADER;
use crate::{EtcdBackend, EtcdError, lease, txn};

/// How often a lock is tried again that is not as it was seen. Only its expiry and other calls for the same owner do that.
const TRIES: usize = 8;

type LockError = CasError<EtcdError>;

/// A lock that is held costs who wants it one round trip, and etcd no write. A free one takes three round trips and one
/// revision; to prolong it takes two and none, with the same time to live; to release it two and one.
///
/// A time to live is rounded up to whole seconds, and is at least etcd's own lowest, 2 s by default. The lock is free at
/// most one second after that; when a leader is elected, times to live start anew.
///
/// A dropped call leaves the lock taken, prolonged, released or as it was, and perhaps a lease without a key, which ends
/// when its time to live has passed.
impl LockBackend for EtcdBackend {
    async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition, LockError> {
        let held = Lock::new(self, name).hold(owner, ttl, WhenFree::Take).await?;
        Ok(held.map_or(Acquisition::Busy { expires_in: None }, Acquisition::Held))
    }

    async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool, LockError> {
        let held = Lock::new(self, name).hold(owner, ttl, WhenFree::Leave).await?;
        Ok(held.is_some())
    }

    async fn release(&self, name: &str, owner: Owner) -> Result<bool, LockError> {
        Lock::new(self, name).release(owner).await
    }
}

/// One lock.
struct Lock<'a> {
    store: &'a EtcdStore,
    key: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhenFree {
    Take,
    Leave,
}

/// What came of one try.
enum Step {
    Held(Fence),
    /// It is not as it was seen. This is who holds it now.
    Changed(Option<Holding>),
}

impl<'a> Lock<'a> {
    fn new(backend: &'a EtcdBackend, name: &str) -> Self {
        let store = backend.store();
        Self { store, key: lock_key(store.prefix(), "lock", name) }
    }

    async fn look(&self) -> Result<Option<Holding>, LockError> {
        holding(&self.store.look_up(&self.key).await.map_err(CasError::Store)?)
    }

    /// Lets `owner` hold it for `ttl` from now; none if it does not.
    async fn hold(
        &self,
        owner: Owner,
        ttl: LockTtl,
        when_free: WhenFree,
    ) -> Result<Option<Fence>, LockError> {
        let mut seen = self.look().await?;
        for _ in 0..TRIES {
            let step = match seen {
                Some(holding) if holding.owner != owner => return Ok(None),
                None if when_free == WhenFree::Leave => return Ok(None),
                Some(holding) if holding.secs == secs(ttl) => self.keep_alive(&holding).await?,
                _ => self.put(seen.as_ref(), owner, ttl).await?,
            };
            match step {
                Step::Held(fence) => return Ok(Some(fence)),
                Step::Changed(now) => seen = now,
            }
        }
        Err(CasError::Contended)
    }

    /// Prolongs the lease that it is held with. The leader does so without asking anybody, and may have been deposed. But a
    /// majority has just shown the lock: who is elected after that starts all leases anew, so this one lasts for its time
    /// from the look on.
    async fn keep_alive(&self, seen: &Holding) -> Result<Step, LockError> {
        let kept = lease::keep_alive(self.store.connection(), seen.version.lease).await;
        if kept.map_err(CasError::Store)? {
            Ok(Step::Held(seen.fence))
        } else {
            self.look().await.map(Step::Changed)
        }
    }

    /// Stores, with a new lease, that `owner` holds it, if it is as it was seen: free, or this owner's.
    async fn put(&self, seen: Option<&Holding>, owner: Owner, ttl: LockTtl) -> Result<Step, LockError> {
        let (secs, lease) = (secs(ttl), lease::new_id());
        lease::grant(self.store.connection(), lease, secs).await.map_err(CasError::Store)?;
        let (value, expected) = (value(owner, secs), seen.map(|holding| &holding.version));
        let exchange = Exchange { key: &self.key, expected, value: &value, ttl: ttl.as_duration() };
        match self.store.transact(Repeat::Never, || txn::exchange(&(&exchange, lease))).await {
            Ok(response) if response.succeeded() => {
                if let Some(replaced) = seen {
                    self.revoke(replaced.version.lease).await;
                    return Ok(Step::Held(replaced.fence));
                }
                let header = response.header().ok_or(CasError::Store(NO_HEADER))?;
                Ok(Step::Held(fence(header.revision())))
            }
            Ok(response) => {
                self.revoke(lease).await;
                conflicting(&response).map(Step::Changed)
            }
            Err(error) => {
                if error.effect() == Effect::NotApplied {
                    self.revoke(lease).await;
                }
                Err(CasError::Store(error))
            }
        }
    }

    async fn release(&self, owner: Owner) -> Result<bool, LockError> {
        let response = self.store.transact(Repeat::Never, || release(&self.key, owner)).await;
        let response = response.map_err(CasError::Store)?;
        if let Some(lease) = freed_lease(&response) {
            self.revoke(lease).await;
        }
        Ok(response.succeeded())
    }

    /// A lease that holds nothing any more.
    async fn revoke(&self, lease: i64) {
        lease::revoke(self.store.connection(), lease).await;
    }
}

/// Leases have whole seconds.
fn secs(ttl: LockTtl) -> i64 {
    i64::try_from(ttl.as_millis().div_ceil(1_000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_to_live_are_rounded_up_to_seconds() {
        let of = |millis| secs(LockTtl::new(Duration::from_millis(millis)).unwrap());
        assert_eq!([1, 999, 1_000, 1_001, 30_000].map(of), [1, 1, 1, 2, 30]);
        assert_eq!(secs(LockTtl::MAX), 365 * 24 * 3_600);
    }
}
