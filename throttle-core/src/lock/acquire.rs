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
use crate::failure::DeadlineExceeded;
use crate::{Effect, Guarded, LockBackend, LockStore, Operation, StoreUnavailableError};

/// Who waits and has less left than this asks no more.
const TOO_LITTLE: Duration = Duration::from_millis(4);

/// A question that is cut off sooner than this says nothing about the store.
const FAIR: Duration = Duration::from_millis(20);

/// A lock: one holder at a time, among all who use the same name on the same store. Cheap to clone.
///
/// It is not reentrant: a second acquisition by the same program waits for the first one. It is held for a time that its
/// guard prolongs, so a holder that dies frees it within the [time to live](LockTerms::ttl), and a holder that sleeps for
/// longer has lost it: it can [know](Lease::lost), and what it writes to can [refuse](super::Fence) it. After a suspend of
/// the machine, only the latter is sure: the default [clock](LockTerms::clock) does not count it.
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

    /// Takes the lock if it is free; none if somebody else has it.
    ///
    /// **Cancellation.** A dropped call is seen through in the background, and what it got goes back: nothing stays held.
    /// Without a runtime, the time to live does that.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer, or so late that nothing is left of the time to live. What it
    /// may have given all the same is given back in the background; if it carries out the request only after that, the
    /// time to live frees the lock.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard<S>>, StoreUnavailableError> {
        match self.attempt().await? {
            Attempt::Held(guard) => Ok(Some(guard)),
            Attempt::Busy(_) => Ok(None),
        }
    }

    /// Takes the lock, waiting for it at most `within`; none if it was held by others until then. It is asked for over
    /// and over, at [random](LockTerms::poll) times: those who wait all have the same chance, and no order. With no time
    /// to wait, as [`try_acquire`](Self::try_acquire).
    ///
    /// **Cancellation.** As [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] as for [`try_acquire`](Self::try_acquire), and if the store does not answer `within`.
    ///
    /// # Panics
    ///
    /// When it has to wait outside a tokio runtime with a timer, unless the terms have a clock of their own.
    pub async fn acquire_within(
        &self,
        within: Duration,
    ) -> Result<Option<LockGuard<S>>, StoreUnavailableError> {
        if within.is_zero() {
            return self.try_acquire().await;
        }
        let started = self.terms.now();
        let left = || within.saturating_sub(self.terms.now().saturating_since(started));
        // How long the slowest answer took; none came before the first one.
        let mut slowest = None;
        loop {
            let given = left();
            let hint = match self.attempt_in_time(given).await {
                Some(attempt) => match attempt? {
                    Attempt::Held(guard) => return Ok(Some(guard)),
                    Attempt::Busy(hint) => hint,
                },
                None if slowest.is_some_and(|took| given < FAIR.max(took)) => return Ok(None),
                None => return Err(self.no_answer(within)),
            };
            let left = left();
            slowest = slowest.max(Some(given.saturating_sub(left)));
            if left < TOO_LITTLE {
                self.terms.clock.sleep(left).await;
                return Ok(None);
            }
            self.terms.clock.sleep(self.pause(hint, left)).await;
        }
    }

    /// None if the store has not answered in time.
    async fn attempt_in_time(&self, left: Duration) -> Option<Result<Attempt<S>, StoreUnavailableError>> {
        let attempt = std::pin::pin!(self.attempt());
        // Made when it is waited for: an answer that is there at once needs no timer.
        let time = std::pin::pin!(async { self.terms.clock.sleep(left).await });
        match select(attempt, time).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    fn no_answer(&self, limit: Duration) -> StoreUnavailableError {
        let (backend, error) = (self.store.backend_name(), DeadlineExceeded { limit });
        StoreUnavailableError::by_limiter(backend, Operation::Acquire, error)
    }

    /// Until the next question. The last one comes shortly before the end.
    fn pause(&self, hint: Option<Duration>, left: Duration) -> Duration {
        let poll = self.terms.poll;
        let drawn = rand::rng().random_range(poll / 2..=poll + poll / 2);
        let pause = hint.map_or(drawn, |free| drawn.min(free.saturating_add(Duration::from_millis(1))));
        if pause < left { pause } else { left / 4 * 3 }
    }

    /// Asks the store once.
    fn attempt(&self) -> impl Future<Output = Result<Attempt<S>, StoreUnavailableError>> + Send + use<S> {
        let lock = self.clone();
        SeenThrough::new(async move {
            let mut claim = Claim::new(&lock);
            let asked = lock.terms.now();
            let ttl = lock.terms.first_ttl();
            match lock.store.acquire(&lock.name, claim.owner, ttl).await {
                Ok(Acquisition::Held(fence)) => {
                    let lease = Lease::new(Arc::clone(&lock.name), fence, &lock.terms, asked, ttl);
                    if !lease.is_valid() {
                        // The claim gives it back.
                        return Err(lock.no_answer(ttl.as_duration()));
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
