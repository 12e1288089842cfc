//! [`Spare`]: the connection that was used last, kept for a moment for the next call.
//!
//! The pool asks each connection that comes back whether it still works, and gives out the one that has rested longest,
//! whose process at the server has the coldest caches. A caller that comes again at once does better without both.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// How long it is kept without being used: others may wait for it at the pool.
const REST: Duration = Duration::from_millis(50);

/// After so many uses it goes through the pool, which looks after its age.
const USES: u64 = 1_000;

#[derive(Debug, Default)]
pub(super) struct Spare(Mutex<Slot>);

#[derive(Debug, Default)]
struct Slot {
    connection: Option<PoolConnection<Postgres>>,
    uses: u64,
    /// Whether there is a [`Watch`]; there is one whenever a connection is kept.
    is_watched: bool,
}

impl Spare {
    pub(super) fn take(&self) -> Option<PoolConnection<Postgres>> {
        self.0.lock().connection.take()
    }

    /// Keeps the connection, or gives it back to the pool if one is kept already, or if nobody else could get any.
    /// For either, `runtime` must have been entered.
    pub(super) fn keep(
        self: &Arc<Self>,
        connection: PoolConnection<Postgres>,
        pool: &PgPool,
        runtime: &Handle,
    ) {
        let can_grow = pool.size() < pool.options().get_max_connections();
        let mut slot = self.0.lock();
        slot.uses += 1;
        let is_due = slot.uses.is_multiple_of(USES) || pool.is_closed();
        if is_due || slot.connection.is_some() || (pool.num_idle() == 0 && !can_grow) {
            drop(slot);
            drop(connection);
            return;
        }
        slot.connection = Some(connection);
        if !std::mem::replace(&mut slot.is_watched, true) {
            // On a runtime that has ended, the watch ends here, and takes the lock.
            drop(slot);
            let watch = Watch { spare: Arc::clone(self), runtime: runtime.clone() };
            runtime.spawn(watch.until_unused());
        }
    }
}

/// Gives the connection back when it was not used for a while, and when its runtime ends: none is left behind that the
/// pool could not get back.
struct Watch {
    spare: Arc<Spare>,
    runtime: Handle,
}

impl Watch {
    async fn until_unused(self) {
        loop {
            let seen = self.spare.0.lock().uses;
            sleep(REST).await;
            if self.spare.0.lock().uses == seen {
                return;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let rested = {
            let mut slot = self.spare.0.lock();
            slot.is_watched = false;
            slot.connection.take()
        };
        let _within = self.runtime.enter();
        drop(rested);
    }
}
