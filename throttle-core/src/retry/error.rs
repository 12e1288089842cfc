//! How a retried operation ends when it does not succeed, and the refusals that lead there.

use std::error::Error;
use std::time::Duration;

/// A cause of any type.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// No token is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("rate limited: retry after {retry_after:?}")]
pub struct RateLimited {
    /// With no other traffic, there is one after this wait.
    pub retry_after: Duration,
}

/// The balance does not pay for a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the retry budget is exhausted")]
pub struct RetryBudgetExhausted;

/// Why [`Retry::run`](super::Retry::run) gave up. Each variant holds the last error of the operation, where there was
/// one; it is the [`source`](Error::source), except that of [`AdmissionUnavailable`](Self::AdmissionUnavailable).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetryError<E> {
    /// The caller's classification says that trying again does not help.
    #[error(transparent)]
    Permanent(E),
    /// As many attempts as were allowed have failed.
    #[error("gave up after {attempts} attempts")]
    AttemptsExhausted {
        /// How many were made.
        attempts: u32,
        /// The last error.
        #[source]
        last: E,
    },
    /// The balance does not pay for the retry: the service is failing more than a few of its callers.
    #[error("{RetryBudgetExhausted}")]
    RetryBudgetExhausted {
        /// The last error.
        #[source]
        last: E,
    },
    /// The admission refused the attempt: the limit is the caller's own.
    #[error("{}", refused(*retry_after))]
    RateLimited {
        /// With no other traffic, the attempt is admitted after this wait; none if no wait helps.
        retry_after: Option<Duration>,
        /// The last error; none if it was the first attempt.
        #[source]
        last: Option<E>,
    },
    /// The total deadline is over, or would be before the next attempt.
    #[error("the deadline is exceeded")]
    DeadlineExceeded {
        /// The last error; none if the first attempt did not end in time.
        #[source]
        last: Option<E>,
    },
    /// Nobody could say whether the attempt is admitted.
    #[error("the admission is unavailable")]
    AdmissionUnavailable {
        /// The error of the admission's store.
        source: BoxError,
        /// The last error of the operation; none if it was the first attempt.
        last: Option<E>,
    },
}

impl<E> RetryError<E> {
    /// The last error of the operation, if it was attempted.
    #[must_use]
    pub fn last(&self) -> Option<&E> {
        match self {
            Self::Permanent(last)
            | Self::AttemptsExhausted { last, .. }
            | Self::RetryBudgetExhausted { last } => Some(last),
            Self::RateLimited { last, .. }
            | Self::DeadlineExceeded { last }
            | Self::AdmissionUnavailable { last, .. } => last.as_ref(),
        }
    }

    /// The last error of the operation, if it was attempted.
    #[must_use]
    pub fn into_last(self) -> Option<E> {
        match self {
            Self::Permanent(last)
            | Self::AttemptsExhausted { last, .. }
            | Self::RetryBudgetExhausted { last } => Some(last),
            Self::RateLimited { last, .. }
            | Self::DeadlineExceeded { last }
            | Self::AdmissionUnavailable { last, .. } => last,
        }
    }
}

fn refused(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(retry_after) => RateLimited { retry_after }.to_string(),
        None => "rate limited: no wait helps".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, thiserror::Error)]
    #[error("status 503")]
    struct Unavailable;

    fn chain(error: &dyn Error) -> Vec<String> {
        let causes = std::iter::successors(error.source(), |&cause| cause.source());
        std::iter::once(error).chain(causes).map(ToString::to_string).collect()
    }

    #[test]
    fn each_end_says_why_and_keeps_the_cause_once() {
        let wait = Some(Duration::from_millis(125));
        let last = || Some(Unavailable);
        let (budget, attempts) = ("the retry budget is exhausted", "gave up after 3 attempts");
        let source = || BoxError::from("no route to the store");
        let cases: [(RetryError<Unavailable>, &[&str]); 8] = [
            (RetryError::Permanent(Unavailable), &["status 503"]),
            (RetryError::AttemptsExhausted { attempts: 3, last: Unavailable }, &[attempts, "status 503"]),
            (RetryError::RetryBudgetExhausted { last: Unavailable }, &[budget, "status 503"]),
            (
                RetryError::RateLimited { retry_after: wait, last: last() },
                &["rate limited: retry after 125ms", "status 503"],
            ),
            (RetryError::RateLimited { retry_after: None, last: None }, &["rate limited: no wait helps"]),
            (RetryError::DeadlineExceeded { last: last() }, &["the deadline is exceeded", "status 503"]),
            (RetryError::DeadlineExceeded { last: None }, &["the deadline is exceeded"]),
            (
                RetryError::AdmissionUnavailable { source: source(), last: last() },
                &["the admission is unavailable", "no route to the store"],
            ),
        ];
        for (error, expected) in cases {
            assert_eq!(chain(&error), expected);
            let last = error.last().is_some();
            assert_eq!(error.into_last().is_some(), last);
        }
    }

    #[test]
    fn an_error_that_is_no_std_error_is_held_too() {
        #[derive(Debug)]
        struct Status(u16);
        let error = RetryError::DeadlineExceeded { last: Some(Status(503)) };
        assert_eq!(error.last().map(|status| status.0), Some(503));
        assert!(!format!("{error:?}").is_empty());
    }

    #[test]
    fn refusals_are_errors_of_their_own() {
        fn shown(error: &impl Error) -> String {
            error.to_string()
        }
        assert_eq!(shown(&RetryBudgetExhausted), "the retry budget is exhausted");
        assert_eq!(shown(&RateLimited { retry_after: Duration::ZERO }), "rate limited: retry after 0ns");
    }
}
