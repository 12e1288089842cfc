//! [`Rule`]: one algorithm with its quota.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::kernel::{Bucket, FixedWindow, Kernel, SlidingLog, SlidingWindow};
use crate::quota::Period;
use crate::{Quota, SetupError};

/// The longest time from exhausted, queue included, to full: 2^52 − 1 µs, about 142 years. Added to the latest
/// [`Timestamp`](crate::Timestamp) it still fits the 53 bits that a Lua number counts exactly.
pub const MAX_SPAN_MICROS: u64 = (1 << 52) - 1;

/// The most units per period that a sliding window log counts: it stores each request.
pub const MAX_LOG_LIMIT: u32 = 65_536;

/// How a rule decides. Token bucket, leaky bucket and GCRA are one kernel seen from three sides; they differ in
/// the burst they have when the quota names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Counts what is left. Burst: the limit.
    TokenBucket,
    /// Counts what is in. Burst: 1, so that requests are evenly spaced.
    LeakyBucket,
    /// Knows when it will be empty. Burst: the limit.
    Gcra,
    /// Counts per period of the calendar. Admits up to twice the limit around a period's end.
    FixedWindow,
    /// Two counters; the past one fades. Admits at most the limit per sliding period, assuming that the past
    /// period's requests were evenly spread.
    SlidingWindow,
    /// Remembers every request of the last period: exact, at the cost of memory.
    SlidingWindowLog,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 6] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::Gcra,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingWindowLog,
    ];

    /// Its name in text and configuration, such as `token_bucket`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
            Self::Gcra => "gcra",
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::SlidingWindowLog => "sliding_window_log",
        }
    }

    /// Whether it is a bucket: has a burst, and may have a queue.
    #[must_use]
    pub const fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket | Self::Gcra)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads the [`name`](Algorithm::name); case does not matter, and `-` stands for `_`.
impl FromStr for Algorithm {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Self, SetupError> {
        let name = text.trim().replace('-', "_").to_ascii_lowercase();
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or_else(|| SetupError::Parse {
            text: text.to_owned(),
            reason: format!("expected one of {}", Self::ALL.map(Self::name).join(", ")),
        })
    }
}

/// One algorithm with its quota and, for buckets, its queue. Always valid: the ways to make one check it.
///
/// ```
/// use std::time::Duration;
/// use throttle_core::{Quota, Rule};
///
/// let steady = Rule::leaky_bucket(Quota::per_second(5))?.max_queue(Duration::from_secs(2))?;
/// assert_eq!(steady.capacity(), 1);
/// assert_eq!(steady, "leaky_bucket 5/s queue 2s".parse()?);
/// assert!(Rule::fixed_window("5/s burst 10").is_err(), "windows have no burst");
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    algorithm: Algorithm,
    quota: Quota,
    max_queue_micros: u64,
    kernel: Kernel,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $algorithm:ident;)+) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// Those of [`Rule::new`].
        pub fn $name<Q>(quota: Q) -> Result<Self, SetupError>
        where
            Q: TryInto<Quota>,
            SetupError: From<Q::Error>,
        {
            Self::new(Algorithm::$algorithm, quota)
        }
    )+};
}

impl Rule {
    /// A rule of `algorithm` with a [`Quota`], its builder or its text.
    ///
    /// # Errors
    ///
    /// Those of the quota; [`SetupError::BurstOnWindow`]; [`SetupError::LogTooLong`] above [`MAX_LOG_LIMIT`];
    /// [`SetupError::SpanTooLong`] when the burst takes longer than [`MAX_SPAN_MICROS`] to fill.
    pub fn new<Q>(algorithm: Algorithm, quota: Q) -> Result<Self, SetupError>
    where
        Q: TryInto<Quota>,
        SetupError: From<Q::Error>,
    {
        Self::build(algorithm, quota.try_into()?, 0)
    }

    constructors! {
        /// A token bucket: `limit` tokens per period flow into a bucket of `burst` (default: the limit).
        token_bucket => TokenBucket;
        /// A leaky bucket: `limit` units per period leak from a bucket of `burst` (default: 1).
        leaky_bucket => LeakyBucket;
        /// The generic cell rate algorithm, with a tolerance of `burst` units (default: the limit).
        gcra => Gcra;
        /// A counter per period of the calendar.
        fixed_window => FixedWindow;
        /// Two counters, the past one weighted by the part of it that is still in sight.
        sliding_window => SlidingWindow;
        /// A log of the last period's requests.
        sliding_window_log => SlidingWindowLog;
    }

    /// Lets requests be admitted for up to `wait` later, first come first served. Buckets only; rounded down to
    /// whole microseconds.
    ///
    /// # Errors
    ///
    /// [`SetupError::QueueOnWindow`]; [`SetupError::SpanTooLong`] when burst and queue together are too long.
    pub fn max_queue(self, wait: Duration) -> Result<Self, SetupError> {
        Self::build(self.algorithm, self.quota, crate::time::floor_micros(wait))
    }

    /// `part` of `whole` equal parts of its [quota](Quota::share); the queue is the same.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] unless 1 ≤ `part` ≤ `whole`; [`SetupError::SpanTooLong`] where a limit that was rounded
    /// down takes too long to fill the burst.
    pub fn share(&self, part: u32, whole: u32) -> Result<Self, SetupError> {
        Self::build(self.algorithm, self.quota.share(part, whole)?, self.max_queue_micros)
    }

    /// How it decides.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The quota it was made from.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// The largest cost it can ever admit: the burst of a bucket, the limit of a window.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        match &self.kernel {
            Kernel::Bucket(bucket) => bucket.capacity(),
            Kernel::FixedWindow(_) | Kernel::SlidingWindow(_) | Kernel::SlidingLog(_) => self.quota.limit(),
        }
    }

    /// How far ahead a request may be admitted.
    #[must_use]
    pub const fn queue(&self) -> Duration {
        Duration::from_micros(self.max_queue_micros)
    }

    /// The numbers it computes with, for translations into other languages.
    #[must_use]
    pub const fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    fn build(algorithm: Algorithm, quota: Quota, max_queue_micros: u64) -> Result<Self, SetupError> {
        if !algorithm.is_bucket() {
            if quota.burst().is_some() {
                return Err(SetupError::BurstOnWindow { algorithm });
            }
            if max_queue_micros > 0 {
                return Err(SetupError::QueueOnWindow { algorithm });
            }
        }
        let kernel = match algorithm {
            Algorithm::TokenBucket | Algorithm::Gcra => {
                Kernel::Bucket(Bucket::new(quota, quota.burst().unwrap_or(quota.limit()), max_queue_micros)?)
            }
            Algorithm::LeakyBucket => {
                Kernel::Bucket(Bucket::new(quota, quota.burst().unwrap_or(1), max_queue_micros)?)
            }
            Algorithm::FixedWindow => Kernel::FixedWindow(FixedWindow::new(quota)),
            Algorithm::SlidingWindow => Kernel::SlidingWindow(SlidingWindow::new(quota)),
            Algorithm::SlidingWindowLog => Kernel::SlidingLog(SlidingLog::new(quota)?),
        };
        Ok(Self { algorithm, quota, max_queue_micros, kernel })
    }
}

/// Writes `<algorithm> <quota>`, and ` queue <span>` if there is one.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm, self.quota)?;
        match self.max_queue_micros {
            0 => Ok(()),
            micros => write!(f, " queue {}", Period(micros)),
        }
    }
}

/// Reads what [`Display`](fmt::Display) writes; case does not matter.
impl FromStr for Rule {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Self, SetupError> {
        let (algorithm, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text, ""));
        let algorithm = algorithm.parse()?;
        // ASCII letters keep their places in lower case.
        match rest.to_ascii_lowercase().rsplit_once("queue") {
            None => Self::new(algorithm, rest),
            Some((quota, queue)) => {
                let fail = |reason| SetupError::Parse { text: text.to_owned(), reason };
                let queue = crate::quota::read_period(queue).map_err(fail)?;
                Self::new(algorithm, quota)?.max_queue(queue)
            }
        }
    }
}

impl From<std::convert::Infallible> for SetupError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_burst_differ() {
        let capacity = |algorithm| Rule::new(algorithm, "10/s").unwrap().capacity();
        assert_eq!(Algorithm::ALL.map(capacity), [10, 1, 10, 10, 10, 10]);
    }

    #[test]
    fn windows_have_neither_burst_nor_queue() {
        for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.is_bucket()) {
            assert_eq!(Rule::new(algorithm, "10/s burst 5"), Err(SetupError::BurstOnWindow { algorithm }));
            let queued = Rule::new(algorithm, "10/s").unwrap().max_queue(Duration::from_secs(1));
            assert_eq!(queued, Err(SetupError::QueueOnWindow { algorithm }));
        }
    }

    #[test]
    fn what_no_store_can_count_is_refused() {
        assert_eq!(Rule::sliding_window_log("65537/s"), Err(SetupError::LogTooLong { limit: 65_537 }));
        let long = Rule::token_bucket(Quota::per(1, crate::quota::MAX_PERIOD).burst(5));
        assert_eq!(long, Err(SetupError::SpanTooLong { micros: 5 << 50 }));
        let queue = Rule::token_bucket("1/s").unwrap().max_queue(Duration::MAX);
        assert_eq!(queue, Err(SetupError::SpanTooLong { micros: u128::from(u64::MAX) + 1_000_000 }));
    }

    #[test]
    fn text_is_read_back() {
        for text in
            ["token_bucket 10/s burst 20", "leaky_bucket 7 per 13s queue 250ms", "sliding_window_log 5/d"]
        {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        assert_eq!("leaky_bucket 5/s QUEUE 2s".parse::<Rule>().unwrap().queue(), Duration::from_secs(2));
        assert_eq!("GCRA 10/s".parse::<Rule>().unwrap(), Rule::gcra("10/s").unwrap());
        assert_eq!("sliding-window 10/s".parse::<Rule>().unwrap(), Rule::sliding_window("10/s").unwrap());
        for text in ["", "bucket 10/s", "gcra", "gcra 10/s queue", "gcra 10/s queue 5"] {
            assert!(matches!(text.parse::<Rule>(), Err(SetupError::Parse { .. })), "{text}");
        }
    }
}
