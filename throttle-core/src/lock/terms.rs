//! [`LockTerms`]: how a lock is held, and what is said when giving it back fails.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::LockTtl;
use crate::panics::contain;
use crate::{Clock, SetupError, StoreUnavailableError, SystemClock, Timestamp};

const TTL: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// Below this, the margin for clocks that differ leaves too little.
const SHORTEST: Duration = Duration::from_millis(20);

const POLLS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3_600);

/// How a lock is held. Clones count failures together.
///
/// ```
/// use std::time::Duration;
/// use throttle_core::lock::LockTerms;
///
/// let terms = LockTerms::default().ttl(Duration::from_secs(10))?.max_hold(Duration::from_secs(600))?;
/// assert_eq!(terms.release_failures(), 0);
/// assert!(LockTerms::default().ttl(Duration::ZERO).is_err());
/// assert!(LockTerms::default().poll(Duration::ZERO).is_err());
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Clone)]
#[must_use = "terms do nothing by themselves"]
pub struct LockTerms {
    pub(super) ttl: LockTtl,
    pub(super) renews: bool,
    pub(super) max_hold: Option<LockTtl>,
    pub(super) poll: Duration,
    pub(super) clock: Arc<dyn Clock>,
    failed: Arc<AtomicU64>,
    hook: Option<Hook>,
}

type Hook = Arc<dyn Fn(&ReleaseFailure) + Send + Sync>;

/// Why a lock was not given back.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseFailure {
    /// It had been lost before: somebody else may have held it meanwhile.
    #[error("the lock was lost before it was released")]
    AlreadyLost,
    /// The store did not answer: the lock is free when its time to live has passed.
    #[error("the lock is held until it expires")]
    Unavailable(#[source] StoreUnavailableError),
}

impl LockTerms {
    /// For how long the store keeps the lock when nothing is heard of its holder: 30 s unless told otherwise. After a
    /// crash, that is how long others wait.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] for less than 20 ms, and for more than a year.
    pub fn ttl(self, ttl: Duration) -> Result<Self, SetupError> {
        Ok(Self { ttl: time_held("time to live of a lock", ttl)?, ..self })
    }

    /// Does not prolong the lock in the background: it is lost when its time to live has passed. By default it is
    /// prolonged each time a third of that has passed, by a task on the tokio runtime on which it was acquired; without
    /// a runtime, it is not.
    pub fn without_renewal(self) -> Self {
        Self { renews: false, ..self }
    }

    /// Prolongs the lock for no longer than this from its acquisition on: then it is lost. Endless by default.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] for less than 20 ms, and for more than a year.
    pub fn max_hold(self, span: Duration) -> Result<Self, SetupError> {
        Ok(Self { max_hold: Some(time_held("longest hold of a lock", span)?), ..self })
    }

    /// About how often those who wait ask again: every 50 ms by default. Each pause is drawn from half of it to one and
    /// a half, so that nobody has a better place than others.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] for less than 1 ms, and for more than an hour.
    pub fn poll(self, every: Duration) -> Result<Self, SetupError> {
        if POLLS.contains(&every) {
            return Ok(Self { poll: every, ..self });
        }
        let reason = "use 1 ms to 1 hour".to_owned();
        Err(SetupError::Setting { setting: "pause of those who wait for a lock", reason })
    }

    /// Counts validity and waits on `clock`, in place of the monotonic clock and the tokio timer. On most systems those
    /// stand still while the machine is suspended. Where that happens, pass a clock that does not.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Calls `hook` each time a lock is not given back: on release, or in the background after a guard was dropped. It
    /// must not block; a panic of it changes nothing. With the feature `tracing`, each is an event of level WARN too, with
    /// the target `throttle` and without the name of the lock.
    pub fn on_release_failure(self, hook: impl Fn(&ReleaseFailure) + Send + Sync + 'static) -> Self {
        Self { hook: Some(Arc::new(hook)), ..self }
    }

    /// How many locks were not given back so far.
    #[must_use]
    pub fn release_failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, failure: &ReleaseFailure) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        // Names of locks can be personal, as keys can.
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "throttle", error = failure as &dyn std::error::Error, "lock not given back");
        if let Some(hook) = &self.hook {
            let _ = contain(|| hook(failure));
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// For how long the store is asked for the lock at first.
    pub(super) fn first_ttl(&self) -> LockTtl {
        self.max_hold.map_or(self.ttl, |most| most.min(self.ttl))
    }
}

fn time_held(setting: &'static str, span: Duration) -> Result<LockTtl, SetupError> {
    let ttl = LockTtl::new(span).ok().filter(|_| span >= SHORTEST);
    ttl.ok_or_else(|| SetupError::Setting { setting, reason: "use 20 ms to 365 days".to_owned() })
}

impl Default for LockTerms {
    fn default() -> Self {
        Self {
            ttl: LockTtl::new(TTL).unwrap_or(LockTtl::MAX),
            renews: true,
            max_hold: None,
            poll: POLL,
            clock: Arc::new(SystemClock),
            failed: Arc::default(),
            hook: None,
        }
    }
}

impl fmt::Debug for LockTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockTerms")
            .field("ttl", &self.ttl)
            .field("renews", &self.renews)
            .field("max_hold", &self.max_hold)
            .field("poll", &self.poll)
            .field("clock", &self.clock)
            .field("release_failures", &self.release_failures())
            .finish_non_exhaustive()
    }
}
