//! [`Claim`]: what may be held in the store, and goes back unless it is settled.

use std::time::Duration;

use rand::RngExt;
use tokio::runtime::Handle;

use super::{Lock, LockTerms, Owner, ReleaseFailure};
use crate::background::finish;
use crate::{Effect, LockStore, StoreUnavailableError, Timestamp};

/// How often a release is asked for before it is left to the time to live.
const RELEASES: u32 = 3;

/// The longest pause after the first of them; each further one is longer by it. Half of it at least is waited.
const PAUSE: Duration = Duration::from_millis(150);

/// A lock that an owner may hold. Dropped, it is released at once if the store needs no waiting, else on the tokio runtime
/// that is current, or was when it was made; with neither, when its time to live has passed.
pub(super) struct Claim<S: LockStore> {
    pub(super) lock: Lock<S>,
    pub(super) owner: Owner,
    runtime: Option<Handle>,
    is_settled: bool,
}

impl<S: LockStore> Claim<S> {
    pub(super) fn new(lock: &Lock<S>) -> Self {
        let runtime = Handle::try_current().ok();
        Self { lock: lock.clone(), owner: Owner::random(), runtime, is_settled: false }
    }

    /// Nothing is held any more.
    pub(super) fn settle(&mut self) {
        self.is_settled = true;
    }

    /// Releases it; whether it was held until then. Asked again when the reply is missing, which is safe: the owner is of
    /// this acquisition alone. `valid_until` is until when it is certainly held, if it is.
    pub(super) async fn release(
        &mut self,
        valid_until: Option<Timestamp>,
    ) -> Result<bool, StoreUnavailableError> {
        let result = release(&self.lock, self.owner, valid_until).await;
        self.settle();
        result
    }
}

impl<S: LockStore> Drop for Claim<S> {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let (lock, owner) = (self.lock.clone(), self.owner);
        let give_back = async move {
            if let Err(error) = release(&lock, owner, None).await {
                lock.terms.note(&ReleaseFailure::Unavailable(error));
            }
        };
        finish(give_back, self.runtime.take());
    }
}

async fn release<S: LockStore>(
    lock: &Lock<S>,
    owner: Owner,
    valid_until: Option<Timestamp>,
) -> Result<bool, StoreUnavailableError> {
    let was_valid = || valid_until.is_some_and(|until| lock.terms.now() < until);
    let (mut tries, mut may_be_done) = (1, false);
    loop {
        match lock.store.release(&lock.name, owner).await {
            // Then it was the request whose reply is missing that freed it.
            Ok(was_held) => return Ok(was_held || may_be_done && was_valid()),
            Err(error) if tries < RELEASES && error.kind().is_transient() => {
                may_be_done |= error.effect() == Effect::Unknown;
                pause(&lock.terms, tries).await;
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// At random, so that those who met the same outage do not come back together. Without a runtime, nothing waits: this may
/// be a destructor.
async fn pause(terms: &LockTerms, tries: u32) {
    if Handle::try_current().is_ok() {
        let most = PAUSE * tries;
        let drawn = rand::rng().random_range(most / 2..=most);
        terms.clock.sleep(drawn).await;
    }
}
