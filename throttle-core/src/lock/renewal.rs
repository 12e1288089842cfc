//! Prolonging a lock for as long as its guard lives.

use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::{Lease, Lock, LockTtl, Loss, Owner};
use crate::{LockStore, StoreUnavailableError, Timestamp};

/// The task that prolongs. It ends with this.
pub(super) struct Renewal(AbortHandle);

impl Renewal {
    /// Starts on the current tokio runtime; none without one. `asked` is when the store was asked for the lock.
    pub(super) fn start<S: LockStore>(
        lock: &Lock<S>,
        owner: Owner,
        lease: &Lease,
        asked: Timestamp,
    ) -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        let renewed = renew(lock.clone(), owner, lease.clone(), asked);
        Some(Self(runtime.spawn(renewed).abort_handle()))
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Asks each time a third of the time to live has passed; four times as often after a failure, until the lease is over.
async fn renew<S: LockStore>(lock: Lock<S>, owner: Owner, lease: Lease, asked: Timestamp) {
    let (clock, third) = (&lock.terms.clock, lock.terms.ttl.as_duration() / 3);
    let mut due = asked.saturating_add(third);
    while lease.is_valid() {
        clock.sleep(due.saturating_since(clock.now())).await;
        let asked = clock.now();
        let Some(ttl) = lease.next_ttl(asked, lock.terms.ttl) else { return };
        due = match prolong(&lock, owner, ttl, third).await {
            Some(Ok(true)) if lease.prolong(asked, ttl) => asked.saturating_add(third),
            Some(Ok(true)) => return,
            Some(Ok(false)) => {
                lease.end(Loss::Taken);
                return;
            }
            Some(Err(_)) | None => clock.now().saturating_add(third / 4),
        };
    }
}

/// None if the store does not answer within `patience`.
async fn prolong<S: LockStore>(
    lock: &Lock<S>,
    owner: Owner,
    ttl: LockTtl,
    patience: Duration,
) -> Option<Result<bool, StoreUnavailableError>> {
    let extended = std::pin::pin!(lock.store.extend(&lock.name, owner, ttl));
    match select(extended, lock.terms.clock.sleep(patience)).await {
        Either::Left((answer, _)) => Some(answer),
        Either::Right(_) => None,
    }
}
