//! Locks of one process. They are as many as are held; what has expired is swept by later acquisitions.

use std::sync::Arc;

use parking_lot::Mutex;
use throttle_core::lock::{Acquisition, LockTable, LockTtl, Owner};
use throttle_core::{Clock, LockBackend, SystemClock, Timestamp};

use crate::MemoryBackend;
use crate::error::MemoryError;

/// All locks of a backend, by a clock that is exact rather than fast: their holders count on it.
#[derive(Debug)]
pub(crate) struct Locks {
    table: Mutex<LockTable>,
    clock: Arc<dyn Clock>,
}

impl Locks {
    pub(crate) fn new(chosen: Option<&Arc<dyn Clock>>) -> Self {
        let clock = chosen.map_or_else(|| Arc::new(SystemClock) as Arc<dyn Clock>, Arc::clone);
        Self { table: Mutex::default(), clock }
    }

    /// The time is asked for under the lock of the table, so that what comes later is not decided earlier.
    fn with<T>(&self, what: impl FnOnce(&mut LockTable, Timestamp) -> T) -> T {
        let mut table = self.table.lock();
        what(&mut table, self.clock.now())
    }
}

/// Held within this process only. A call never waits. A lock expires by the clock of the operating system, or the one that
/// was chosen.
impl LockBackend for MemoryBackend {
    async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition, MemoryError> {
        Ok(self.locks().with(|locks, now| locks.acquire(name, owner, ttl, now)))
    }

    async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool, MemoryError> {
        Ok(self.locks().with(|locks, now| locks.extend(name, owner, ttl, now)))
    }

    async fn release(&self, name: &str, owner: Owner) -> Result<bool, MemoryError> {
        Ok(self.locks().with(|locks, now| locks.release(name, owner, now)))
    }
}
