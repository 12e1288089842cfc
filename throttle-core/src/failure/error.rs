//! What the limiter itself says in place of a store: causes of a `StoreUnavailableError`, found in its `source()`.

use std::time::Duration;

use crate::{BaseErrorSet, Effect, ErrorKind, StoreUnavailableError};

/// The [deadline](crate::RateLimiter::deadline) of a limiter, or the time for taking a [lock](crate::lock::Lock), passed
/// before the store answered. What was asked for was done or not, and is not asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {limit:?}")]
pub struct DeadlineExceeded {
    /// How long that was.
    pub limit: Duration,
}

impl BaseErrorSet for DeadlineExceeded {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Timeout
    }

    fn effect(&self) -> Effect {
        Effect::Unknown
    }

    fn samples() -> Vec<Self> {
        vec![Self { limit: Duration::from_millis(100) }]
    }
}

/// The [breaker](super::Breaker) is open: the store was not asked. The kind is that of the failure that keeps it open,
/// which is the `source()`.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the circuit breaker is open")]
pub struct CircuitOpen {
    #[source]
    cause: StoreUnavailableError,
}

impl CircuitOpen {
    pub(crate) const fn new(cause: StoreUnavailableError) -> Self {
        Self { cause }
    }
}

impl BaseErrorSet for CircuitOpen {
    fn kind(&self) -> ErrorKind {
        self.cause.kind()
    }

    fn effect(&self) -> Effect {
        Effect::NotApplied
    }

    fn samples() -> Vec<Self> {
        let cause = StoreUnavailableError::on_connect("store", DeadlineExceeded { limit: Duration::ZERO });
        vec![Self { cause }]
    }
}
