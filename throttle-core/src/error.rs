//! Errors of construction and of input. Neither ever becomes a
//! [`StoreUnavailableError`](crate::StoreUnavailableError): a typing mistake is not an outage.

use std::time::Duration;

/// What was asked for cannot be built. Found before anything is stored, and never retried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A quota must allow at least one unit; to refuse everybody, do not ask a limiter.
    #[error("a limit of 0 admits nobody: the least is 1")]
    ZeroLimit,
    /// A period of zero has no rate.
    #[error("a period must be at least 1 µs")]
    ZeroPeriod,
    /// Time is counted in whole microseconds.
    #[error("a period of {0:?} is not a whole number of microseconds")]
    FractionalPeriod(Duration),
    /// The period is beyond what every store counts exactly.
    #[error("a period of {0:?} is longer than {max:?}", max = crate::quota::MAX_PERIOD)]
    PeriodTooLong(Duration),
    /// A bucket that holds nothing admits nobody.
    #[error("a burst of 0 admits nobody: the least is 1")]
    ZeroBurst,
    /// Only buckets have a burst.
    #[error("{algorithm} has no burst: its capacity is its limit")]
    BurstOnWindow {
        /// The window algorithm.
        algorithm: crate::Algorithm,
    },
    /// Only buckets can queue.
    #[error("{algorithm} has no queue: it cannot admit for later")]
    QueueOnWindow {
        /// The window algorithm.
        algorithm: crate::Algorithm,
    },
    /// Filling the burst, and the queue on top of it, takes longer than every store counts exactly.
    #[error("burst and queue span {micros} µs, longer than {max} µs", max = crate::rule::MAX_SPAN_MICROS)]
    SpanTooLong {
        /// Time from exhausted, queue included, to full.
        micros: u128,
    },
    /// A window log stores every request: its limit is capped.
    #[error("a sliding window log keeps at most {max} units, not {limit}", max = crate::rule::MAX_LOG_LIMIT)]
    LogTooLong {
        /// The limit asked for.
        limit: u32,
    },
    /// A policy without rules limits nothing.
    #[error("a policy needs at least one rule")]
    NoRules,
    /// More rules than one decision may hold.
    #[error("a policy has at most {max} rules, not {count}", max = crate::policy::MAX_RULES)]
    TooManyRules {
        /// How many were given.
        count: usize,
    },
    /// Policy names are part of storage keys and of header fields.
    #[error("policy name {0:?}: use 1 to 64 ASCII letters, digits, '-', '_' or '.'")]
    PolicyName(String),
    /// A text that is not a quota, a rule or the name of an algorithm.
    #[error("cannot read {text:?}: {reason}")]
    Parse {
        /// The text as given.
        text: String,
        /// What was expected where.
        reason: String,
    },
    /// The store is there, and cannot do what is needed of it.
    #[error("{backend} cannot be used: {reason}")]
    Unsupported {
        /// The kind of store.
        backend: &'static str,
        /// What is missing.
        reason: String,
    },
    /// A URL that names no store. The URL itself is not repeated: it may hold a password.
    #[error("not the URL of a store: {reason}")]
    Url {
        /// What was expected.
        reason: String,
    },
    /// A store that this program was built without.
    #[error("{scheme}:// needs the feature \"{feature}\" of throttle")]
    MissingFeature {
        /// The scheme of the URL.
        scheme: &'static str,
        /// What to add to the features of the dependency.
        feature: &'static str,
    },
    /// A setting outside its range.
    #[error("{setting}: {reason}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// What is allowed.
        reason: String,
    },
}

/// `span`, if it is one: for deadlines and intervals in the configurations of stores. There is a longest one, so that the
/// time at which it ends can be told: clocks panic beyond their range.
///
/// # Errors
///
/// [`SetupError::Setting`] if it is zero, or longer than 365 days.
///
/// ```
/// use std::time::Duration;
/// use throttle_core::validate_span;
///
/// let year = Duration::from_secs(365 * 24 * 3_600);
/// assert_eq!(validate_span("deadline", year)?, year);
/// for wrong in [Duration::ZERO, year + Duration::from_nanos(1), Duration::MAX] {
///     assert!(validate_span("deadline", wrong).is_err());
/// }
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
pub fn validate_span(setting: &'static str, span: Duration) -> Result<Duration, SetupError> {
    if span.is_zero() || span > LONGEST_SPAN {
        let reason = "use more than zero, and at most 365 days".to_owned();
        return Err(SetupError::Setting { setting, reason });
    }
    Ok(span)
}

const LONGEST_SPAN: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Whether the URL of a store has an `@` behind its server. Then its password most likely has a `/`, `?` or `#` that is
/// not in percent-encoding and ends the server too soon; read on, the rest of the password would be the name of something
/// and be shown.
///
/// ```
/// use throttle_core::is_login_cut_short;
///
/// assert!(is_login_cut_short("store://user:pass/word@host/name"));
/// assert!(!is_login_cut_short("store://user:pass%2Fword@host/name"));
/// ```
#[must_use]
pub fn is_login_cut_short(url: &str) -> bool {
    let server = url.split_once("://").map_or(url, |(_, server)| server);
    server.split_once(['/', '?', '#']).is_some_and(|(_, behind)| behind.contains('@'))
}

/// Input at run time that no store is asked about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A time that not every store can hold exactly.
    #[error("{micros} µs since the Unix epoch is beyond {max} µs", max = crate::time::MAX_MICROS)]
    TimestampOutOfRange {
        /// The time asked for.
        micros: u64,
    },
    /// Bytes that are no state of this library.
    #[error("stored state is not readable: {reason}")]
    Corrupt {
        /// What did not fit.
        reason: &'static str,
    },
}
