//! [`RetryBuilder`]: describes a [`Retry`].

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;

use super::{Retry, RetryBudget, Unlimited};
use crate::{Clock, SetupError};

/// How many attempts an operation has, unless said otherwise.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 4;
/// How long an operation may take in all, unless said otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(60);
/// The longest wait that a server can ask for, unless said otherwise.
pub const DEFAULT_RETRY_AFTER_CAP: Duration = Duration::from_secs(300);

/// A [`Retry`] that is being described.
#[derive(Debug)]
#[must_use = "a description is not a retry until it is built"]
pub struct RetryBuilder<B, A> {
    retry: Retry<B, A>,
}

impl<B> RetryBuilder<B, Unlimited> {
    pub(super) fn new(backoff: B) -> Self {
        Self {
            retry: Retry {
                backoff,
                admission: Unlimited,
                budget: Arc::default(),
                max_attempts: DEFAULT_MAX_ATTEMPTS,
                deadline: DEFAULT_DEADLINE,
                retry_after_cap: DEFAULT_RETRY_AFTER_CAP,
                clock: None,
                rng: Mutex::new(Box::new(rand::make_rng::<SmallRng>())),
            },
        }
    }
}

impl<B, A> RetryBuilder<B, A> {
    /// Asks `admission` before every attempt: a [`TokenBucket`](super::TokenBucket), or whatever else implements
    /// [`Admission`](super::Admission), in an [`Arc`] if it is shared. Default: [`Unlimited`].
    pub fn admission<A2>(self, admission: A2) -> RetryBuilder<B, A2> {
        let Retry { backoff, admission: _, budget, max_attempts, deadline, retry_after_cap, clock, rng } =
            self.retry;
        RetryBuilder {
            retry: Retry { backoff, admission, budget, max_attempts, deadline, retry_after_cap, clock, rng },
        }
    }

    /// Pays for retries from `budget`, in an [`Arc`] if it is shared. Default: one of its own, as
    /// [`RetryBudget::default`] makes it.
    pub fn budget(mut self, budget: impl Into<Arc<RetryBudget>>) -> Self {
        self.retry.budget = budget.into();
        self
    }

    /// How many attempts one operation has, the first included. Default: [`DEFAULT_MAX_ATTEMPTS`].
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.retry.max_attempts = attempts;
        self
    }

    /// How long one operation may take in all, waits included. Default: [`DEFAULT_DEADLINE`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.retry.deadline = deadline;
        self
    }

    /// The longest wait that a server can ask for: more is cut to it. Default: [`DEFAULT_RETRY_AFTER_CAP`].
    pub fn retry_after_cap(mut self, cap: Duration) -> Self {
        self.retry.retry_after_cap = cap;
        self
    }

    /// Tells the time and waits. Default: [`SystemClock`](crate::SystemClock), and
    /// [`ThreadClock`](crate::ThreadClock) for [`run_blocking`](Retry::run_blocking).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.retry.clock = Some(Arc::new(clock));
        self
    }

    /// Where the delays are drawn from. Default: a [`SmallRng`] that the operating system seeds.
    pub fn rng(mut self, rng: impl Rng + Send + 'static) -> Self {
        self.retry.rng = Mutex::new(Box::new(rng));
        self
    }

    /// The retry described.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if the attempts or the deadline are zero.
    pub fn build(self) -> Result<Retry<B, A>, SetupError> {
        if self.retry.max_attempts == 0 {
            return Err(SetupError::Setting {
                setting: "max_attempts",
                reason: "must be at least 1".to_owned(),
            });
        }
        if self.retry.deadline.is_zero() {
            return Err(SetupError::Setting {
                setting: "deadline",
                reason: "must be more than zero".to_owned(),
            });
        }
        Ok(self.retry)
    }
}
