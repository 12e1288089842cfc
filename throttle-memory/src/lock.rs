//! Locks of one process. They are as many as are held; what has expired is swept by later acquisitions.

use parking_lot::Mutex;
use throttle_core::lock::{Acquisition, LockTable, LockTtl, Owner};
use throttle_core::{LockBackend, Timestamp};

use crate::MemoryBackend;
use crate::error::MemoryError;

/// All locks of a backend.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<LockTable>);

/// Held within this process only. A call never waits. The store's clock says when a lock expires.
impl LockBackend for MemoryBackend {
    async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition, MemoryError> {
        Ok(self.with_locks(|locks, now| locks.acquire(name, owner, ttl, now)))
    }

    async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool, MemoryError> {
        Ok(self.with_locks(|locks, now| locks.extend(name, owner, ttl, now)))
    }

    async fn release(&self, name: &str, owner: Owner) -> Result<bool, MemoryError> {
        Ok(self.with_locks(|locks, now| locks.release(name, owner, now)))
    }
}

impl MemoryBackend {
    /// The time is asked for under the lock of the table, so that what comes later is not decided earlier.
    fn with_locks<T>(&self, what: impl FnOnce(&mut LockTable, Timestamp) -> T) -> T {
        let mut locks = self.locks().0.lock();
        what(&mut locks, self.now())
    }
}
