//! [`Lock`]: one name on a store, and those who want it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use rand::RngExt;

use super::claim::Claim;
use super::renewal::Renewal;
use super::{Acquisition, Lease, LockGuard, LockTerms};
use crate::background::SeenThrough;
use crate::{Effect, Guarded, LockBackend, LockStore, StoreUnavailableError};

/// Who waits and has less left than this asks no more.
const TOO_LITTLE: Duration = Duration::from_millis(4);

/// A lock: one holder at a time, among all who use the same name on the same store. Cheap to clone.
///
/// It is not reentrant: a second acquisition by the same program waits for the first one. It is held for a time that its
/// guard prolongs, so a holder that dies frees it within the [time to live](LockTerms::ttl), and a holder that sleeps for
/// longer has lost it: it can [know](Lease::lost), and what it writes to can [refuse](super::Fence) it.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use throttle_core::Guarded;
/// use throttle_core::lock::{Lock, Released};
/// # use throttle_testkit::ReferenceBackend as Backend;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(Guarded::new(Backend::default()));
/// let lock = Lock::on(Arc::clone(&store), "report");
///
/// let guard = lock.try_acquire().await?.ok_or("it is free")?;
/// assert!(guard.is_valid());
/// assert!(lock.try_acquire().await?.is_none(), "one holder at a time");
/// let first = guard.fence();
/// assert_eq!(guard.release().await?, Released::Freed);
///
/// let guard = lock.acquire_within(Duration::from_secs(1)).await?.ok_or("it is free")?;
/// assert!(guard.fence() > first);
/// # Ok(())
/// # }
/// ```
pub struct Lock<S> {
    pub(super) store: Arc<S>,
    pub(super) name: Arc<str>,
    pub(super) terms: LockTerms,
}

/// How one question ended.
enum Attempt<S: LockStore> {
    Held(LockGuard<S>),
    /// By somebody else, until then at the latest if the store says so.
    Busy(Option<Duration>),
    /// The answer came when there was nothing left of the time to live. It was given back.
    TooLate,
}

impl<B: LockBackend> Lock<Guarded<B>> {
    /// The lock `name` on `backend`.
    #[must_use]
    pub fn new(backend: B, name: &str) -> Self {
        Self::on(Arc::new(Guarded::new(backend)), name)
    }
}

impl<S: LockStore> Lock<S> {
    /// The lock `name`, any string, on a store that is guarded already, such as an [`AnyLockStore`](crate::AnyLockStore).
    #[must_use]
    pub fn on(store: Arc<S>, name: &str) -> Self {
        Self { store, name: name.into(), terms: LockTerms::default() }
    }

    /// Holds it under these terms.
    #[must_use]
    pub fn with_terms(self, terms: LockTerms) -> Self {
        Self { terms, ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is held.
    pub const fn terms(&self) -> &LockTerms {
        &self.terms
    }

    /// Takes the lock if it is free; none if somebody else has it, or if the answer came so late that nothing was left of
    /// the time to live.
    ///
    /// **Cancellation.** A dropped call is seen through in the background, and what it got goes back: nothing stays held.
    /// Without a runtime, the time to live does that.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer. What it may have given all the same is given back in the
    /// background.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard<S>>, StoreUnavailableError> {
        match self.attempt().await? {
            Attempt::Held(guard) => Ok(Some(guard)),
            Attempt::Busy(_) | Attempt::TooLate => Ok(None),
        }
    }

    /// Takes the lock, waiting for it at most `within`; none if it was held by others until then. It is asked for over
    /// and over, at [random](LockTerms::poll) times: those who wait all have the same chance, and no order.
    ///
    /// **Cancellation.** As [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    ///
    /// # Panics
    ///
    /// When it has to wait outside a tokio runtime with a timer, unless the terms have a clock of their own.
    pub async fn acquire_within(
        &self,
        within: Duration,
    ) -> Result<Option<LockGuard<S>>, StoreUnavailableError> {
        let started = self.terms.now();
        let left = || within.saturating_sub(self.terms.now().saturating_since(started));
        let mut was_busy = false;
        loop {
            let hint = match self.attempt_in_time(was_busy.then(left)).await {
                None => return Ok(None),
                Some(attempt) => match attempt? {
                    Attempt::Held(guard) => return Ok(Some(guard)),
                    Attempt::Busy(hint) => hint,
                    Attempt::TooLate => None,
                },
            };
            was_busy = true;
            let left = left();
            if left < TOO_LITTLE {
                self.terms.clock.sleep(left).await;
                return Ok(None);
            }
            self.terms.clock.sleep(self.pause(hint, left)).await;
        }
    }

    /// None if the store has not answered in time: to be asked only once it is known that the lock was busy, for an outage
    /// is not.
    async fn attempt_in_time(
        &self,
        left: Option<Duration>,
    ) -> Option<Result<Attempt<S>, StoreUnavailableError>> {
        let Some(left) = left else { return Some(self.attempt().await) };
        let attempt = std::pin::pin!(self.attempt());
        match select(attempt, self.terms.clock.sleep(left)).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    /// Until the next question. The last one comes shortly before the end.
    fn pause(&self, hint: Option<Duration>, left: Duration) -> Duration {
        let poll = self.terms.poll;
        let drawn = rand::rng().random_range(poll / 2..=poll + poll / 2);
        let pause = hint.map_or(drawn, |free| drawn.min(free + Duration::from_millis(1)));
        if pause < left { pause } else { left / 4 * 3 }
    }

    /// Asks the store once.
    fn attempt(&self) -> impl Future<Output = Result<Attempt<S>, StoreUnavailableError>> + Send + use<S> {
        let lock = self.clone();
        SeenThrough::new(async move {
            let mut claim = Claim::new(&lock);
            let asked = lock.terms.now();
            let ttl = lock.terms.max_hold.and_then(|most| super::LockTtl::new(most).ok());
            let ttl = ttl.map_or(lock.terms.ttl, |most| most.min(lock.terms.ttl));
            match lock.store.acquire(&lock.name, claim.owner, ttl).await {
                Ok(Acquisition::Held(fence)) => {
                    let lease = Lease::new(Arc::clone(&lock.name), fence, &lock.terms, asked, ttl);
                    if !lease.is_valid() {
                        return Ok(Attempt::TooLate);
                    }
                    let renews = lock.terms.renews.then(|| Renewal::start(&lock, claim.owner, &lease, asked));
                    Ok(Attempt::Held(LockGuard::new(claim, lease, renews.flatten())))
                }
                Ok(Acquisition::Busy { expires_in }) => {
                    claim.settle();
                    Ok(Attempt::Busy(expires_in))
                }
                Err(error) => {
                    if error.effect() == Effect::NotApplied {
                        claim.settle();
                    }
                    Err(error)
                }
            }
        })
    }
}

impl<S> Clone for Lock<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), name: Arc::clone(&self.name), terms: self.terms.clone() }
    }
}

impl<S: fmt::Debug> fmt::Debug for Lock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name)
            .field("store", &self.store)
            .field("terms", &self.terms)
            .finish()
    }
}
