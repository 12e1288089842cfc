//! [`AnyLimiter`]: a limiter whose kind of store is forgotten, to stand in for another.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::limiter::Taker;
use crate::observe::Call;
use crate::{Action, RateLimiter, Store, StoreUnavailableError, Taken};

/// A [`RateLimiter`] on any store, as a [fallback](super::FailurePolicy::Fallback). Cheap to clone.
#[derive(Clone)]
pub struct AnyLimiter(Arc<dyn Limiter>);

impl AnyLimiter {
    /// Answers `action` as a call of its own, under its own policy and at its own time. Where it settles units, `taker`
    /// is who took them.
    pub(crate) async fn answer(
        &self,
        call: Call,
        action: &Action<'_>,
        taker: Option<Taker>,
    ) -> Result<Taken, StoreUnavailableError> {
        self.0.answer(call, action, taker).await
    }

    pub(crate) async fn reset(&self, key: &str) -> Result<bool, StoreUnavailableError> {
        self.0.reset(key).await
    }

    pub(crate) async fn reset_all(&self) -> Result<u64, StoreUnavailableError> {
        self.0.reset_all().await
    }
}

impl<S: Store> From<RateLimiter<S>> for AnyLimiter {
    fn from(limiter: RateLimiter<S>) -> Self {
        Self(Arc::new(limiter))
    }
}

impl fmt::Debug for AnyLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
trait Limiter: fmt::Debug + Send + Sync {
    async fn answer(
        &self,
        call: Call,
        action: &Action<'_>,
        taker: Option<Taker>,
    ) -> Result<Taken, StoreUnavailableError>;
    async fn reset(&self, key: &str) -> Result<bool, StoreUnavailableError>;
    async fn reset_all(&self) -> Result<u64, StoreUnavailableError>;
}

#[async_trait]
impl<S: Store> Limiter for RateLimiter<S> {
    async fn answer(
        &self,
        call: Call,
        action: &Action<'_>,
        taker: Option<Taker>,
    ) -> Result<Taken, StoreUnavailableError> {
        self.take(call, &action.under(self.policy()).at(self.now()), taker).await
    }

    async fn reset(&self, key: &str) -> Result<bool, StoreUnavailableError> {
        RateLimiter::reset(self, key).await
    }

    async fn reset_all(&self) -> Result<u64, StoreUnavailableError> {
        RateLimiter::reset_all(self).await
    }
}
