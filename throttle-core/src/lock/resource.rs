//! [`ResourceLock`]: a lock in the words of the business, by composition.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

use super::key::{Segment, name_of};
use super::{Lease, Lock, LockGuard, LockTerms, Loss};
use crate::{Guarded, LockBackend, LockStore, StoreUnavailableError};

/// Resources of one kind on a store: the one place that says what the lock of a resource is called. Cheap to clone.
///
/// ```
/// use throttle_core::lock::{LockNamespace, ResourceError};
/// # use throttle_testkit::ReferenceBackend as Backend;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tasks = LockNamespace::new("task", Backend::default());
/// let run = tasks.resource(17_u64).busy_text("run 17 is being executed already");
/// assert_eq!(run.lock().name(), "lock:task:17");
///
/// let sum = run.with(|lease| async move { lease.is_valid().then_some(1 + 1) }).await?;
/// assert_eq!(sum, Some(2));
///
/// let _guard = run.acquire().await?;
/// let error = run.with(|_| async {}).await.unwrap_err();
/// assert!(matches!(error, ResourceError::Busy(_)));
/// assert_eq!(error.to_string(), "run 17 is being executed already");
/// # Ok(())
/// # }
/// ```
pub struct LockNamespace<S> {
    kind: Segment,
    store: Arc<S>,
    terms: LockTerms,
}

impl<B: LockBackend> LockNamespace<Guarded<B>> {
    /// Resources of this kind, such as `task`, on `backend`.
    #[must_use]
    pub fn new(kind: impl Into<Segment>, backend: B) -> Self {
        Self::on(kind, Arc::new(Guarded::new(backend)))
    }
}

impl<S: LockStore> LockNamespace<S> {
    /// Resources of this kind on a store that is guarded already, such as an [`AnyLockStore`](crate::AnyLockStore).
    #[must_use]
    pub fn on(kind: impl Into<Segment>, store: Arc<S>) -> Self {
        Self { kind: kind.into(), store, terms: LockTerms::default() }
    }

    /// Holds them under these terms.
    #[must_use]
    pub fn with_terms(self, terms: LockTerms) -> Self {
        Self { terms, ..self }
    }

    /// The resource with this id: `lock:<kind>:<id>`.
    #[must_use]
    pub fn resource(&self, id: impl Into<Segment>) -> ResourceLock<S> {
        self.lock_of(&id.into(), None)
    }

    /// A part of a resource: `lock:<kind>:<id>:<part>`. The empty part is one too. It and the whole resource are two locks,
    /// which do not exclude each other.
    #[must_use]
    pub fn part(&self, id: impl Into<Segment>, part: impl Into<Segment>) -> ResourceLock<S> {
        self.lock_of(&id.into(), Some(&part.into()))
    }

    fn lock_of(&self, id: &Segment, part: Option<&Segment>) -> ResourceLock<S> {
        let lock = Lock::on(Arc::clone(&self.store), &name_of(&self.kind, id, part));
        let busy_text = match part {
            Some(part) => format!("{part} of {} {id} is in use", self.kind),
            None => format!("{} {id} is in use", self.kind),
        };
        let lock = lock.with_terms(self.terms.clone());
        ResourceLock { lock, busy_text: busy_text.into(), wait: Duration::ZERO }
    }
}

/// A lock of a resource. Cheap to clone.
pub struct ResourceLock<S> {
    lock: Lock<S>,
    busy_text: Arc<str>,
    wait: Duration,
}

/// Somebody else uses the resource. `Display` is the text for those who asked; the cause is in
/// [`source`](std::error::Error::source).
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct ResourceBusy {
    text: Arc<str>,
    #[source]
    cause: LockHeld,
}

/// What is behind a [`ResourceBusy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the lock {name:?} was held by another owner{}", for_as_long_as(*.waited))]
pub struct LockHeld {
    name: Arc<str>,
    waited: Duration,
}

fn for_as_long_as(waited: Duration) -> String {
    if waited.is_zero() { String::new() } else { format!(" for the {waited:?} that were waited") }
}

/// Why nothing was done under the lock of a resource, or not to its end.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// Somebody else uses the resource.
    #[error(transparent)]
    Busy(#[from] ResourceBusy),
    /// The store did not answer: nothing is known about the resource.
    #[error(transparent)]
    Unavailable(#[from] StoreUnavailableError),
    /// The lock was lost while the body ran, and the body was stopped where it was.
    #[error("stopped half-way")]
    Lost(#[source] Loss),
}

impl<S: LockStore> ResourceLock<S> {
    /// What is said when somebody else uses the resource.
    #[must_use]
    pub fn busy_text(self, text: &str) -> Self {
        Self { busy_text: text.into(), ..self }
    }

    /// Waits for the resource for at most so long: not at all unless told otherwise.
    #[must_use]
    pub fn waiting(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// The lock itself.
    #[must_use]
    pub const fn lock(&self) -> &Lock<S> {
        &self.lock
    }

    /// Takes the resource, until the guard is released or dropped.
    ///
    /// **Cancellation, panics.** As [`Lock::acquire_within`].
    ///
    /// # Errors
    ///
    /// [`ResourceError::Busy`] if somebody else has it, [`ResourceError::Unavailable`] if the store does not answer in time.
    pub async fn acquire(&self) -> Result<LockGuard<S>, ResourceError> {
        self.lock.acquire_within(self.wait).await?.ok_or_else(|| {
            let cause = LockHeld { name: Arc::clone(&self.lock.name), waited: self.wait };
            ResourceBusy { text: Arc::clone(&self.busy_text), cause }.into()
        })
    }

    /// Runs `body` under the lock, and gives it back. If the lock is lost meanwhile, the body is dropped where it waits.
    ///
    /// What it returns is returned, whatever becomes of the release: a failure of that is
    /// [counted and told](LockTerms::on_release_failure).
    ///
    /// **Cancellation.** A dropped call drops the body, and gives the lock back as a dropped guard does.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`ResourceError::Lost`] if the body was stopped.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with a timer, unless the terms have a clock of their own.
    pub async fn with<T, F>(&self, body: impl FnOnce(Lease) -> F) -> Result<T, ResourceError>
    where
        F: Future<Output = T>,
    {
        let guard = self.acquire().await?;
        let done = {
            let body = std::pin::pin!(body(guard.lease().clone()));
            let lost = std::pin::pin!(guard.lost());
            match select(body, lost).await {
                Either::Left((value, _)) => Ok(value),
                Either::Right((loss, _)) => Err(ResourceError::Lost(loss)),
            }
        };
        // Noted by the guard; it must not undo what was done.
        let _ = guard.release().await;
        done
    }
}

impl<S> Clone for ResourceLock<S> {
    fn clone(&self) -> Self {
        Self { lock: self.lock.clone(), busy_text: Arc::clone(&self.busy_text), wait: self.wait }
    }
}

impl<S> Clone for LockNamespace<S> {
    fn clone(&self) -> Self {
        Self { kind: self.kind.clone(), store: Arc::clone(&self.store), terms: self.terms.clone() }
    }
}

impl<S: fmt::Debug> fmt::Debug for ResourceLock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceLock")
            .field("lock", &self.lock)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

impl<S: fmt::Debug> fmt::Debug for LockNamespace<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockNamespace")
            .field("kind", &self.kind)
            .field("store", &self.store)
            .field("terms", &self.terms)
            .finish()
    }
}
