//! For clients of other people's services: pacing, backoff with jitter, and a budget for retries.
//!
//! [`Retry`] ties them around an operation. Each part also works alone, none of them does any I/O, and time and
//! randomness are passed in.
//!
//! | part | what it is for |
//! |---|---|
//! | [`TokenBucket`], or another [`Admission`] | no more requests than the service allows |
//! | [`DecorrelatedJitter`], [`Exponential`], or another [`Backoff`] | clients that failed together do not come back together |
//! | [`RetryBudget`] | an outage is not multiplied by retries |
//! | [`parse_retry_after`] | a server's `Retry-After` is heeded |
//!
//! A service that is rate limiting now and then, and a client that gets through:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use std::time::Duration;
//! use throttle_core::retry::{DecorrelatedJitter, ErrorClass, Retry, RetryBudget, RetryError, TokenBucket};
//!
//! #[derive(Debug, thiserror::Error)]
//! #[error("status {status}")]
//! struct ApiError {
//!     status: u16,
//!     retry_after: Option<Duration>,
//! }
//!
//! // The library never looks into an error: what is worth another attempt is the caller's to say.
//! fn classify(error: &ApiError) -> ErrorClass {
//!     match error.status {
//!         429 | 503 => ErrorClass::retry_after(error.retry_after),
//!         _ => ErrorClass::Permanent,
//!     }
//! }
//!
//! let bucket = Arc::new(TokenBucket::new("8/s burst 40")?);
//! let budget = Arc::new(RetryBudget::default());
//! let retry = Retry::builder(DecorrelatedJitter::default())
//!     .admission(Arc::clone(&bucket))
//!     .budget(Arc::clone(&budget))
//!     .max_attempts(3)
//!     .deadline(Duration::from_secs(30))
//!     .build()?;
//!
//! let calls = AtomicU32::new(0);
//! let get = || async {
//!     match calls.fetch_add(1, Ordering::Relaxed) {
//!         0 => Err(ApiError { status: 503, retry_after: None }),
//!         1 => Err(ApiError { status: 429, retry_after: Some(Duration::from_secs(2)) }),
//!         2 => Ok("hello"),
//!         _ => Err(ApiError { status: 404, retry_after: None }),
//!     }
//! };
//! assert_eq!(retry.run(get, classify).await?, "hello");
//! assert_eq!(calls.load(Ordering::Relaxed), 3);
//!
//! // Two retries were paid for; their success deposits nothing.
//! # use throttle_core::{Clock, SystemClock};
//! assert_eq!(budget.balance(SystemClock.now()), 100 - 2 * 10);
//!
//! // Each way to end is a variant, and holds the last error.
//! let Err(RetryError::Permanent(error)) = retry.run(get, classify).await else { panic!() };
//! assert_eq!(error.status, 404);
//! # Ok(())
//! # }
//! ```
//!
//! # The order
//!
//! An attempt is admitted before it is made, the first included. When it fails:
//!
//! 1. **classify**: the caller's closure says whether another attempt may help; if not, that is the end. So it is when
//!    the attempts are used up.
//! 2. **budget**: what a retry costs is withdrawn, or [`RetryError::RetryBudgetExhausted`].
//! 3. **delay**: the backoff's, or the server's if that is longer. One that would not end before the total deadline is
//!    not waited for: [`RetryError::DeadlineExceeded`] at once.
//! 4. **admission**: or [`RetryError::RateLimited`].
//! 5. **attempt**: only now is the withdrawal final. Whatever ended the matter before gave it back.

mod admission;
mod backoff;
mod budget;
mod builder;
mod decorrelated_jitter;
mod error;
mod exponential;
mod retry_after;
mod run;
mod tank;
mod token_bucket;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;

pub use self::admission::{Admission, KeyAdmission, Refusal, Unlimited};
pub use self::backoff::Backoff;
pub use self::budget::{
    DEFAULT_INITIAL_BALANCE, DEFAULT_MAX_BALANCE, DEFAULT_RETRY_COST, DEPOSIT, RetryBudget,
    RetryBudgetBuilder, Withdrawal,
};
pub use self::builder::{DEFAULT_DEADLINE, DEFAULT_MAX_ATTEMPTS, DEFAULT_RETRY_AFTER_CAP, RetryBuilder};
pub use self::decorrelated_jitter::DecorrelatedJitter;
pub use self::error::{BoxError, RateLimited, RetryBudgetExhausted, RetryError};
pub use self::exponential::Exponential;
pub use self::retry_after::parse_retry_after;
pub use self::run::ErrorClass;
pub use self::token_bucket::TokenBucket;

use crate::Clock;

/// Runs operations, again where that helps. See the [module](self) for an example and for the order of things.
///
/// One for each service, shared by reference or in an [`Arc`]: operations under way share admission, budget, clock and
/// random source, and each has its own backoff, attempts and deadline.
pub struct Retry<B, A = Unlimited> {
    backoff: B,
    admission: A,
    budget: Arc<RetryBudget>,
    max_attempts: u32,
    deadline: Duration,
    retry_after_cap: Duration,
    clock: Option<Arc<dyn Clock>>,
    rng: Mutex<Box<dyn Rng + Send>>,
}

impl<B: Backoff> Retry<B> {
    /// Describes a retry that waits as `backoff` says; [`build`](RetryBuilder::build) makes it.
    ///
    /// # Panics
    ///
    /// If the operating system has no random bits to give.
    pub fn builder(backoff: B) -> RetryBuilder<B, Unlimited> {
        RetryBuilder::new(backoff)
    }
}

impl<B: fmt::Debug, A: fmt::Debug> fmt::Debug for Retry<B, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("backoff", &self.backoff)
            .field("admission", &self.admission)
            .field("budget", &self.budget)
            .field("max_attempts", &self.max_attempts)
            .field("deadline", &self.deadline)
            .field("retry_after_cap", &self.retry_after_cap)
            .finish_non_exhaustive()
    }
}
