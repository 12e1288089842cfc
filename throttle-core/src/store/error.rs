//! What goes wrong with a store: the family each backend declares, and the one error that users see.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::{Operation, StoreBackend};
use crate::SetupError;

/// Every way in which one backend can fail. A backend crate declares its family, and nothing else about errors.
///
/// Members are told apart by what the driver and the server say in codes, never by their message. What is not
/// recognized is [`ErrorKind::Bug`].
pub trait BaseErrorSet: Error + Clone + Send + Sync + 'static {
    /// What kind of failure it is.
    fn kind(&self) -> ErrorKind;

    /// Whether the operation may have taken effect all the same.
    fn effect(&self) -> Effect;

    /// One sample of each member, for tests that want to see them all.
    fn samples() -> Vec<Self>;
}

/// A backend that cannot fail.
impl BaseErrorSet for Infallible {
    fn kind(&self) -> ErrorKind {
        match *self {}
    }

    fn effect(&self) -> Effect {
        match *self {}
    }

    fn samples() -> Vec<Self> {
        Vec::new()
    }
}

/// What kind of failure of a store it is: as much as a program can act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store could not be reached, or the connection was lost.
    Connection,
    /// No answer within the deadline.
    Timeout,
    /// All connections of the pool are in use.
    PoolExhausted,
    /// The store has too much to do: busy with a script, too many connections, too many requests, too many who change the
    /// same key.
    Overloaded,
    /// The store is there but cannot serve yet: loading, without a leader, failing over.
    NotReady,
    /// This node only reads: a replica, or a former primary.
    ReadOnly,
    /// The store has no room left.
    StorageFull,
    /// The store does not know or not allow this user.
    Unauthorized,
    /// The store lacks something it was set up with: a schema, a function, a privilege.
    Misconfigured,
    /// What is stored under a key of ours is not ours, or not readable.
    Corrupt,
    /// Anything else: a defect here, in the driver or in the store.
    Bug,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: &[Self] = &[
        Self::Connection,
        Self::Timeout,
        Self::PoolExhausted,
        Self::Overloaded,
        Self::NotReady,
        Self::ReadOnly,
        Self::StorageFull,
        Self::Unauthorized,
        Self::Misconfigured,
        Self::Corrupt,
        Self::Bug,
    ];

    /// Whether the same call may well succeed a little later, without anybody mending anything.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::Timeout
                | Self::PoolExhausted
                | Self::Overloaded
                | Self::NotReady
                | Self::ReadOnly
        )
    }

    /// Whether the store is out of service, as opposed to a mistake in how it is used.
    #[must_use]
    pub const fn is_outage(self) -> bool {
        self.is_transient() || matches!(self, Self::StorageFull | Self::Unauthorized)
    }

    /// Its name in messages and metrics, such as `pool_exhausted`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::PoolExhausted => "pool_exhausted",
            Self::Overloaded => "overloaded",
            Self::NotReady => "not_ready",
            Self::ReadOnly => "read_only",
            Self::StorageFull => "storage_full",
            Self::Unauthorized => "unauthorized",
            Self::Misconfigured => "misconfigured",
            Self::Corrupt => "corrupt",
            Self::Bug => "bug",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a failed operation may have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It certainly had none: it may be tried again.
    NotApplied,
    /// It was sent, and the answer is missing: the store may have charged. It is not tried again.
    Unknown,
}

/// A store did not answer as it should. The one error of everything that asks a store.
///
/// `Display` says which backend, which operation and which kind; the cause is in [`source`](Error::source).
///
/// ```
/// use throttle_core::{Effect, ErrorKind, StoreUnavailableError};
///
/// fn is_worth_a_retry(error: &StoreUnavailableError) -> bool {
///     error.kind().is_transient() && error.effect() == Effect::NotApplied
/// }
/// ```
#[derive(Clone)]
pub struct StoreUnavailableError(Arc<Inner>);

struct Inner {
    backend: &'static str,
    operation: Operation,
    kind: ErrorKind,
    effect: Effect,
    source: Box<dyn Error + Send + Sync>,
}

impl StoreUnavailableError {
    /// A backend could not be reached in the first place. For the factories of backend crates; everything after that
    /// goes through [`Guarded`](super::Guarded).
    pub fn on_connect(backend: &'static str, error: impl BaseErrorSet) -> Self {
        Self::new(backend, Operation::Connect, error)
    }

    /// The limiter itself, or the lock, did not wait for the store any longer, or did not ask it.
    pub(crate) fn by_limiter(backend: &'static str, operation: Operation, error: impl BaseErrorSet) -> Self {
        Self::new(backend, operation, error)
    }

    /// The one conversion point.
    #[cold]
    fn new(backend: &'static str, operation: Operation, error: impl BaseErrorSet) -> Self {
        let (kind, effect) = (error.kind(), error.effect());
        Self(Arc::new(Inner { backend, operation, kind, effect, source: Box::new(error) }))
    }

    /// The kind of store, such as `redis`.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.0.backend
    }

    /// What it was asked to do.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the operation may have taken effect all the same.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.0.effect
    }
}

impl fmt::Display for StoreUnavailableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed to {}: {}", self.0.backend, self.0.operation.name(), self.0.kind)
    }
}

impl fmt::Debug for StoreUnavailableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreUnavailableError")
            .field("backend", &self.0.backend)
            .field("operation", &self.0.operation)
            .field("kind", &self.0.kind)
            .field("effect", &self.0.effect)
            .field("source", &self.0.source)
            .finish()
    }
}

impl Error for StoreUnavailableError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0.source)
    }
}

/// Why there is no store to talk to.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// What was asked for cannot be built.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The store could not be reached.
    #[error(transparent)]
    Unavailable(#[from] StoreUnavailableError),
}

pin_project! {
    /// Turns a backend's answer into a user's. By hand, so that it costs nothing where the backend's future is inlined.
    pub(super) struct Guard<'b, F, B> {
        #[pin]
        call: F,
        backend: &'b B,
        operation: Operation,
    }
}

impl<'b, F, B> Guard<'b, F, B> {
    #[inline(always)]
    pub(super) fn new(call: F, backend: &'b B, operation: Operation) -> Self {
        Self { call, backend, operation }
    }
}

impl<F, B> Future for Guard<'_, F, B>
where
    F: Future<Output: Answer>,
    B: StoreBackend,
{
    type Output = <F::Output as Answer>::Guarded;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.call.poll(context) {
            Poll::Ready(answer) => Poll::Ready(answer.guard(this.backend.name(), *this.operation)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The two shapes in which backends answer.
pub(super) trait Answer {
    type Guarded;
    fn guard(self, backend: &'static str, operation: Operation) -> Self::Guarded;
}

impl<T, E: BaseErrorSet> Answer for Result<T, E> {
    type Guarded = Result<T, StoreUnavailableError>;

    #[inline(always)]
    fn guard(self, backend: &'static str, operation: Operation) -> Self::Guarded {
        self.map_err(|error| StoreUnavailableError::new(backend, operation, error))
    }
}

impl<T, E: BaseErrorSet> Answer for Vec<Result<T, E>> {
    type Guarded = Vec<Result<T, StoreUnavailableError>>;

    fn guard(self, backend: &'static str, operation: Operation) -> Self::Guarded {
        self.into_iter().map(|answer| answer.guard(backend, operation)).collect()
    }
}
