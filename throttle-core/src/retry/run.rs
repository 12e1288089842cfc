//! Running an operation: one driver, whether the caller is async or not.

use std::future::{Future, pending, ready};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};

use super::admission::Refusal;
use super::{Admission, Backoff, Retry, RetryError, Withdrawal};
use crate::{Clock, Sleep, SystemClock, ThreadClock, Timestamp};

/// What the caller says of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Another attempt does not help.
    Permanent,
    /// Another attempt may help.
    Retryable,
    /// Another attempt may help, but not before this wait: the server said so.
    RetryAfter(Duration),
}

impl ErrorClass {
    /// Retryable; not before the wait, if there is one. Fits what [`parse_retry_after`](super::parse_retry_after)
    /// returns.
    #[must_use]
    pub fn retry_after(wait: Option<Duration>) -> Self {
        wait.map_or(Self::Retryable, Self::RetryAfter)
    }
}

impl<B: Backoff + Clone, A: Admission> Retry<B, A> {
    /// Runs `operation` until it succeeds, or until one of the ends of [`RetryError`] is reached. `classify` says of
    /// each error whether another attempt may help; it sees every error once, and is a good place to log them.
    ///
    /// **Deadline.** What is under way when the total deadline is over, the operation included, is dropped.
    ///
    /// **Cancellation.** The future may be dropped at any time. While it waits, or asks for admission, no attempt is
    /// under way and what was withdrawn for the next one goes back to the budget. During an attempt the operation's
    /// own future is dropped; admission and budget stay charged, because the request may have been sent.
    ///
    /// # Errors
    ///
    /// [`RetryError`], which holds the last error of the operation.
    ///
    /// # Panics
    ///
    /// As [`SystemClock`] does: outside a tokio runtime, unless another clock was given.
    pub async fn run<T, E, Op, Fut>(
        &self,
        operation: Op,
        classify: impl FnMut(&E) -> ErrorClass,
    ) -> Result<T, RetryError<E>>
    where
        Op: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let clock = self.clock.as_deref().unwrap_or(&SystemClock);
        self.drive(clock, |left| clock.sleep(left), operation, classify).await
    }

    /// The same for callers without async: waits on the calling thread.
    ///
    /// **Deadline.** An operation under way cannot be interrupted; the deadline is looked at between attempts.
    ///
    /// An admission that needs a runtime finds the one that the thread has entered. A clock that was given has to be
    /// one that waits without a runtime.
    ///
    /// # Errors
    ///
    /// [`RetryError`], which holds the last error of the operation.
    pub fn run_blocking<T, E>(
        &self,
        mut operation: impl FnMut() -> Result<T, E>,
        classify: impl FnMut(&E) -> ErrorClass,
    ) -> Result<T, RetryError<E>> {
        let clock = self.clock.as_deref().unwrap_or(&ThreadClock);
        // A timer of a blocking clock would sleep through the deadline as soon as it is looked at.
        let no_timer = |_left| -> Sleep { Box::pin(pending()) };
        pollster::block_on(self.drive(clock, no_timer, || ready(operation()), classify))
    }

    async fn drive<T, E, Op, Fut>(
        &self,
        clock: &dyn Clock,
        timer: impl Fn(Duration) -> Sleep,
        mut operation: Op,
        mut classify: impl FnMut(&E) -> ErrorClass,
    ) -> Result<T, RetryError<E>>
    where
        Op: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let mut course = Course::begin(self, clock.now());
        let (mut withdrawal, mut last) = (None, None);
        loop {
            let now = clock.now();
            let Some(left) = course.time_left(now) else { return Err(RetryError::DeadlineExceeded { last }) };
            let attempt = self.attempt(now, withdrawal.take(), &mut operation);
            let error = match within(timer(left), attempt).await {
                Some(Ok(Ok(value))) => {
                    course.succeeded();
                    return Ok(value);
                }
                Some(Ok(Err(error))) => error,
                Some(Err(refusal)) => return Err(refusal.after(last)),
                None => return Err(RetryError::DeadlineExceeded { last }),
            };
            let class = classify(&error);
            let pause = course.failed(class, error, clock.now())?;
            (withdrawal, last) = (Some(pause.withdrawal), Some(pause.error));
            clock.sleep(pause.delay).await;
        }
    }

    /// Admission, then the attempt. In between, the withdrawal becomes final; dropped before, it goes back.
    async fn attempt<T, Fut: Future<Output = T>>(
        &self,
        now: Timestamp,
        withdrawal: Option<Withdrawal<'_>>,
        operation: &mut impl FnMut() -> Fut,
    ) -> Result<T, Refusal> {
        self.admission.try_admit(now).await?;
        if let Some(withdrawal) = withdrawal {
            withdrawal.spend();
        }
        Ok(operation().await)
    }
}

/// What `future` returns, unless `timer` ends before; when both have ended, `future` is first.
async fn within<F: Future>(timer: Sleep, future: F) -> Option<F::Output> {
    match select(pin!(future), timer).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// One operation on its way: decides, and waits for nothing.
struct Course<'a, B, A> {
    retry: &'a Retry<B, A>,
    backoff: B,
    deadline: Timestamp,
    /// Attempts that have failed.
    failures: u32,
}

/// What comes between a failed attempt and the next.
struct Pause<'a, E> {
    delay: Duration,
    withdrawal: Withdrawal<'a>,
    error: E,
}

impl<'a, B: Backoff + Clone, A> Course<'a, B, A> {
    fn begin(retry: &'a Retry<B, A>, now: Timestamp) -> Self {
        Self {
            retry,
            backoff: retry.backoff.clone(),
            deadline: now.saturating_add(retry.deadline),
            failures: 0,
        }
    }

    /// Time until the deadline, if any is left. A clock that steps back does not prolong it beyond the whole.
    fn time_left(&self, now: Timestamp) -> Option<Duration> {
        let left = self.deadline.saturating_since(now).min(self.retry.deadline);
        (!left.is_zero()).then_some(left)
    }

    fn succeeded(&self) {
        if self.failures == 0 {
            self.retry.budget.record_success();
        }
    }

    /// Classified already; then budget and delay, in this order.
    fn failed<E>(
        &mut self,
        class: ErrorClass,
        error: E,
        now: Timestamp,
    ) -> Result<Pause<'a, E>, RetryError<E>> {
        self.failures += 1;
        let server_wait = match class {
            ErrorClass::Permanent => return Err(RetryError::Permanent(error)),
            ErrorClass::Retryable => Duration::ZERO,
            ErrorClass::RetryAfter(wait) => wait.min(self.retry.retry_after_cap),
        };
        if self.failures >= self.retry.max_attempts {
            return Err(RetryError::AttemptsExhausted { attempts: self.failures, last: error });
        }
        let Ok(withdrawal) = self.retry.budget.try_withdraw(now) else {
            return Err(RetryError::RetryBudgetExhausted { last: error });
        };
        let delay = self.next_delay().max(server_wait);
        if self.time_left(now).is_none_or(|left| left <= delay) {
            return Err(RetryError::DeadlineExceeded { last: Some(error) });
        }
        Ok(Pause { delay, withdrawal, error })
    }

    fn next_delay(&mut self) -> Duration {
        self.backoff.delay(self.failures - 1, &mut **self.retry.rng.lock())
    }
}

impl Refusal {
    fn after<E>(self, last: Option<E>) -> RetryError<E> {
        match self {
            Self::RateLimited { retry_after } => RetryError::RateLimited { retry_after, last },
            Self::Unavailable(source) => RetryError::AdmissionUnavailable { source, last },
        }
    }
}
