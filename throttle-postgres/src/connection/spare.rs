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
    is_watched: bool,
}

impl Spare {
    pub(super) fn take(&self) -> Option<PoolConnection<Postgres>> {
        self.0.lock().connection.take()
    }

    /// Keeps the connection, or gives it back to the pool if one is kept already, or if nobody else could get any.
    pub(super) fn keep(self: &Arc<Self>, connection: PoolConnection<Postgres>, pool: &PgPool) {
        let can_grow = pool.size() < pool.options().get_max_connections();
        let mut slot = self.0.lock();
        slot.uses += 1;
        let is_due = slot.uses.is_multiple_of(USES) || pool.is_closed();
        let Ok(runtime) = Handle::try_current() else { return };
        if is_due || slot.connection.is_some() || (pool.num_idle() == 0 && !can_grow) {
            drop(slot);
            drop(connection);
            return;
        }
        slot.connection = Some(connection);
        if !std::mem::replace(&mut slot.is_watched, true) {
            runtime.spawn(Arc::clone(self).watch());
        }
    }

    /// Gives it back when it was not used for a while.
    async fn watch(self: Arc<Self>) {
        loop {
            let seen = self.0.lock().uses;
            sleep(REST).await;
            let mut slot = self.0.lock();
            if slot.uses == seen {
                slot.is_watched = false;
                let rested = slot.connection.take();
                drop(slot);
                drop(rested);
                return;
            }
        }
    }
}
