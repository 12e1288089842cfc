//! [`Admission`]: the seam between a retry and whatever limits the requests it sends.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::error::{BoxError, RateLimited};
use super::token_bucket::TokenBucket;
use crate::{RateLimiter, Store, Timestamp};

/// Says whether one request may be sent. A [`Retry`](super::Retry) asks before every attempt, the first included.
///
/// Obligations: a refusal takes nothing. An admission that makes callers wait their turn does so in this call, whose
/// future is dropped when the deadline of the retry is over; it says itself what it may have taken by then.
pub trait Admission: Send + Sync {
    /// Asks for one request. `now` is the time of the caller's clock, for those that have none of their own.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the request may not be sent now, or if nobody can say so.
    fn try_admit(&self, now: Timestamp) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// Why a request is not admitted.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no room.
    RateLimited {
        /// With no other traffic, the request is admitted after this wait; none if no wait helps.
        retry_after: Option<Duration>,
    },
    /// It is not known: the store does not answer.
    Unavailable(BoxError),
}

impl From<RateLimited> for Refusal {
    fn from(refused: RateLimited) -> Self {
        Self::RateLimited { retry_after: Some(refused.retry_after) }
    }
}

/// Admits every request: the admission of a retry that was given none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unlimited;

impl Admission for Unlimited {
    async fn try_admit(&self, _now: Timestamp) -> Result<(), Refusal> {
        Ok(())
    }
}

impl Admission for TokenBucket {
    async fn try_admit(&self, now: Timestamp) -> Result<(), Refusal> {
        Ok(self.try_acquire(now)?)
    }
}

/// One key of a [`RateLimiter`], from [`RateLimiter::admission`]: lets a retry spend the allowance of a shared limiter,
/// on whichever store.
#[derive(Debug)]
pub struct KeyAdmission<S> {
    limiter: RateLimiter<S>,
    key: Box<str>,
}

impl<S: Store> RateLimiter<S> {
    /// Admits one request of a [`Retry`](crate::retry::Retry) for each unit of `key`.
    #[must_use]
    pub fn admission(&self, key: &str) -> KeyAdmission<S> {
        KeyAdmission { limiter: self.clone(), key: key.into() }
    }
}

/// At the time of the limiter. Dropped half-way, it may have taken the unit, as [`RateLimiter::check`] may.
impl<S: Store> Admission for KeyAdmission<S> {
    async fn try_admit(&self, _now: Timestamp) -> Result<(), Refusal> {
        match self.limiter.check(&self.key).await {
            Ok(decision) if decision.is_allowed() => Ok(()),
            Ok(decision) => Err(Refusal::RateLimited { retry_after: decision.retry_after() }),
            Err(unavailable) => Err(Refusal::Unavailable(Box::new(unavailable))),
        }
    }
}

impl<A: Admission + ?Sized> Admission for &A {
    fn try_admit(&self, now: Timestamp) -> impl Future<Output = Result<(), Refusal>> + Send {
        (**self).try_admit(now)
    }
}

impl<A: Admission + ?Sized> Admission for Arc<A> {
    fn try_admit(&self, now: Timestamp) -> impl Future<Output = Result<(), Refusal>> + Send {
        (**self).try_admit(now)
    }
}
