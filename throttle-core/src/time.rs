//! Time as every store counts it: whole microseconds since the Unix epoch.

use std::fmt;
use std::time::Duration;

use crate::DataError;

/// The last [`Timestamp`]: 2^52 − 1 µs, in the year 2112. Twice this still fits the 53 bits that a Lua number
/// counts exactly, so no sum of a time and a span of ours is ever rounded.
pub const MAX_MICROS: u64 = (1 << 52) - 1;

/// A moment, in whole microseconds since the Unix epoch.
///
/// ```
/// use throttle_core::Timestamp;
///
/// let then = Timestamp::from_micros(1_700_000_000_000_000)?;
/// assert_eq!(then.as_micros(), 1_700_000_000_000_000);
/// assert!(Timestamp::from_micros(u64::MAX).is_err());
/// # Ok::<(), throttle_core::DataError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);
    /// The latest moment that every store holds exactly.
    pub const MAX: Self = Self(MAX_MICROS);

    /// The moment `micros` after the Unix epoch.
    ///
    /// # Errors
    ///
    /// [`DataError::TimestampOutOfRange`] beyond [`MAX_MICROS`].
    pub const fn from_micros(micros: u64) -> Result<Self, DataError> {
        if micros > MAX_MICROS {
            return Err(DataError::TimestampOutOfRange { micros });
        }
        Ok(Self(micros))
    }

    /// The moment `micros` after the Unix epoch, or [`Timestamp::MAX`]. For clocks, which cannot fail.
    #[must_use]
    pub const fn saturating_from_micros(micros: u64) -> Self {
        if micros > MAX_MICROS { Self::MAX } else { Self(micros) }
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This moment moved later by `span`, or [`Timestamp::MAX`]. Fractions of a microsecond are dropped.
    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Self {
        Self::saturating_from_micros(self.0.saturating_add(floor_micros(span)))
    }

    /// This moment moved earlier by `span`, or [`Timestamp::EPOCH`]. Fractions of a microsecond are dropped.
    #[must_use]
    pub fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(floor_micros(span)))
    }

    /// Time since `earlier`; zero if `earlier` is the later one.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} µs", self.0)
    }
}

/// Whole microseconds of `span`, rounded down, saturating.
pub(crate) fn floor_micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Timestamp::MAX.saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.saturating_sub(Duration::MAX), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.saturating_since(Timestamp::MAX), Duration::ZERO);
        assert_eq!(Timestamp::MAX.saturating_since(Timestamp::EPOCH), Duration::from_micros(MAX_MICROS));
    }

    #[test]
    fn the_range_ends_where_doubles_would_round() {
        assert_eq!(Timestamp::from_micros(MAX_MICROS), Ok(Timestamp::MAX));
        assert_eq!(
            Timestamp::from_micros(MAX_MICROS + 1),
            Err(DataError::TimestampOutOfRange { micros: MAX_MICROS + 1 })
        );
    }
}
