//! One lock that nobody else uses, and those who want it.

use std::time::Duration;

use libtest_mimic::Failed;
use throttle_core::lock::{Acquisition, Fence, LockTtl, Owner};
use throttle_core::{Clock, LockBackend, LockStore, SystemClock, Timestamp};

use super::super::check::{Checked, ensure, equal};
use super::super::lab::{Lab, told};

/// Long enough that no lock of a trial expires by itself.
pub(super) const LONG: Duration = Duration::from_secs(600);

pub(super) fn ttl(span: Duration) -> Result<LockTtl, Failed> {
    Ok(LockTtl::new(span)?)
}

/// A lock with a name of its own.
pub(super) struct Subject<B> {
    pub(super) lab: Lab<B>,
    pub(super) name: String,
}

impl<B: LockBackend> Subject<B> {
    pub(super) fn new(lab: &Lab<B>) -> Self {
        Self { lab: lab.clone(), name: crate::name::fresh() }
    }

    pub(super) async fn acquire(&self, owner: Owner, span: Duration) -> Result<Acquisition, Failed> {
        self.lab.store().acquire(&self.name, owner, ttl(span)?).await.map_err(|error| told(&error))
    }

    /// It must be free, or the owner's.
    pub(super) async fn take(&self, owner: Owner, span: Duration) -> Result<Fence, Failed> {
        match self.acquire(owner, span).await? {
            Acquisition::Held(fence) => Ok(fence),
            Acquisition::Busy { .. } => Err("the lock is busy, and should be free".into()),
        }
    }

    /// Somebody else must hold it.
    pub(super) async fn busy(&self) -> Checked {
        let stranger = Owner::random();
        match self.acquire(stranger, LONG).await? {
            Acquisition::Busy { .. } => Ok(()),
            Acquisition::Held(fence) => Err(format!("the lock is held, and was taken with {fence:?}").into()),
        }
    }

    /// Nobody must hold it; nor does anybody afterwards.
    pub(super) async fn free(&self) -> Result<Fence, Failed> {
        let stranger = Owner::random();
        let fence = self.take(stranger, LONG).await?;
        self.released(stranger, true).await?;
        Ok(fence)
    }

    pub(super) async fn extended(&self, owner: Owner, span: Duration, expected: bool) -> Checked {
        let answer = self.lab.store().extend(&self.name, owner, ttl(span)?).await;
        equal("extended", &answer.map_err(|error| told(&error))?, &expected)
    }

    pub(super) async fn released(&self, owner: Owner, expected: bool) -> Checked {
        let answer = self.lab.store().release(&self.name, owner).await;
        equal("released", &answer.map_err(|error| told(&error))?, &expected)
    }

    /// Lets a lock of the time that trials use expire.
    pub(super) async fn outlive(&self) {
        self.lab.pass(self.lab.lock_ttl() + self.lab.lock_lag()).await;
    }
}

pub(super) fn grew(earlier: Fence, later: Fence) -> Checked {
    ensure(earlier < later, || format!("the later acquisition has {later:?}, after {earlier:?}"))
}

/// Something must be done within `at_most`: once in a few tries, for a machine that is busy with something else.
pub(super) async fn done_within(
    at_most: Duration,
    what: impl AsyncFn() -> Result<Duration, Failed>,
) -> Checked {
    let mut seen = Vec::new();
    for _ in 0..4 {
        let took = what().await?;
        if took <= at_most {
            return Ok(());
        }
        seen.push(took);
    }
    Err(format!("took {seen:?}, and should take {at_most:?} at most").into())
}

/// Tells how much time has passed: at least, and at most. Where time is let pass by hand, the real time may count or not.
pub(super) struct Stopwatch {
    started: Timestamp,
    by_hand: bool,
}

impl Stopwatch {
    pub(super) fn start<B: LockBackend>(lab: &Lab<B>) -> Self {
        Self { started: SystemClock.now(), by_hand: lab.passes_time_by_hand() }
    }

    /// At least and at most, given what was let pass since the start.
    pub(super) fn elapsed(&self, passed: Duration) -> (Duration, Duration) {
        let real = SystemClock.now().saturating_since(self.started);
        if self.by_hand { (passed, passed + real) } else { (real, real) }
    }
}
