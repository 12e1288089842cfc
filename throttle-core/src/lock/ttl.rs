//! [`LockTtl`]: for how long a lock is held unless its owner says more.

use std::time::Duration;

use crate::SetupError;

/// For how long a lock is held unless its owner says more: whole milliseconds, which every store counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockTtl {
    millis: u64,
}

impl LockTtl {
    /// The shortest.
    pub const MIN: Self = Self { millis: 1 };

    /// The longest: a year of 365 days.
    pub const MAX: Self = Self { millis: 365 * 24 * 3_600 * 1_000 };

    /// A fraction of a millisecond counts as a whole one.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] for nothing, and for more than a year.
    ///
    /// ```
    /// use std::time::Duration;
    /// use throttle_core::lock::LockTtl;
    ///
    /// assert_eq!(LockTtl::new(Duration::from_micros(1_500))?.as_millis(), 2);
    /// assert!(LockTtl::new(Duration::ZERO).is_err() && LockTtl::new(Duration::MAX).is_err());
    /// # Ok::<(), throttle_core::SetupError>(())
    /// ```
    pub fn new(span: Duration) -> Result<Self, SetupError> {
        let millis = u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let ttl = Self { millis };
        if (Self::MIN..=Self::MAX).contains(&ttl) {
            return Ok(ttl);
        }
        let reason = "use 1 ms to 365 days".to_owned();
        Err(SetupError::Setting { setting: "time to live of a lock", reason })
    }

    /// In whole milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.millis
    }

    /// As a span of time.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

impl TryFrom<Duration> for LockTtl {
    type Error = SetupError;

    fn try_from(span: Duration) -> Result<Self, SetupError> {
        Self::new(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_in_it() {
        let year = LockTtl::MAX.as_duration();
        assert_eq!(LockTtl::new(year).unwrap(), LockTtl::MAX);
        LockTtl::new(year + Duration::from_nanos(1)).unwrap_err();
        assert_eq!(LockTtl::new(Duration::from_nanos(1)).unwrap(), LockTtl::MIN);
    }
}
