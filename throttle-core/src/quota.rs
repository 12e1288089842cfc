//! [`Quota`]: how many units per period, and how many at once.

mod text;

pub(crate) use self::text::{Period, read_period};

use std::time::Duration;

use crate::SetupError;
use crate::time::floor_micros;

/// The longest period: 2^50 µs, about 35 years. Two of them on top of [`Timestamp::MAX`](crate::Timestamp::MAX)
/// still fit the 53 bits that a Lua number counts exactly.
pub const MAX_PERIOD: Duration = Duration::from_micros(1 << 50);

/// `limit` units per `period`, at most `burst` of them at once. Always valid: the ways to make one check it.
///
/// ```
/// use std::time::Duration;
/// use throttle_core::{Quota, SetupError};
///
/// let quota = Quota::per_second(10).burst(20).build()?;
/// assert_eq!(quota, "10/s burst 20".parse()?);
/// assert_eq!(quota.to_string(), "10/s burst 20");
/// assert_eq!(quota.period(), Duration::from_secs(1));
/// assert_eq!(Quota::per_hour(0).build(), Err(SetupError::ZeroLimit));
/// # Ok::<(), SetupError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    limit: u32,
    period_micros: u64,
    burst: Option<u32>,
}

impl Quota {
    /// `limit` units per second.
    pub const fn per_second(limit: u32) -> QuotaBuilder {
        Self::per(limit, Duration::from_secs(1))
    }

    /// `limit` units per minute.
    pub const fn per_minute(limit: u32) -> QuotaBuilder {
        Self::per(limit, Duration::from_secs(60))
    }

    /// `limit` units per hour.
    pub const fn per_hour(limit: u32) -> QuotaBuilder {
        Self::per(limit, Duration::from_secs(3_600))
    }

    /// `limit` units per day of 24 hours.
    pub const fn per_day(limit: u32) -> QuotaBuilder {
        Self::per(limit, Duration::from_secs(86_400))
    }

    /// `limit` units per week of seven days.
    pub const fn per_week(limit: u32) -> QuotaBuilder {
        Self::per(limit, Duration::from_secs(604_800))
    }

    /// `limit` units per `period`: 1 µs to [`MAX_PERIOD`], in whole microseconds.
    pub const fn per(limit: u32, period: Duration) -> QuotaBuilder {
        QuotaBuilder { limit, period, burst: None }
    }

    /// Units per period.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period_micros)
    }

    /// Units at once, if it was said. Each bucket algorithm has its own default; windows have none.
    #[must_use]
    pub const fn burst(&self) -> Option<u32> {
        self.burst
    }

    /// `part` of `whole` equal parts of it: limit and burst, each rounded down, but at least 1. The period is the same.
    ///
    /// ```
    /// use throttle_core::Quota;
    ///
    /// let quota: Quota = "10/s burst 21".parse()?;
    /// assert_eq!(quota.share(1, 4)?, "2/s burst 5".parse()?);
    /// assert_eq!(quota.share(1, 100)?, "1/s burst 1".parse()?);
    /// assert!(quota.share(5, 4).is_err() && quota.share(0, 4).is_err());
    /// # Ok::<(), throttle_core::SetupError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] unless 1 ≤ `part` ≤ `whole`.
    pub fn share(&self, part: u32, whole: u32) -> Result<Self, SetupError> {
        if part == 0 || part > whole {
            let reason = format!("use 1 to {whole} parts of {whole}, not {part}");
            return Err(SetupError::Setting { setting: "share", reason });
        }
        let share = |units: u32| {
            let share = u64::from(units) * u64::from(part) / u64::from(whole);
            u32::try_from(share).unwrap_or(u32::MAX).max(1)
        };
        Ok(Self { limit: share(self.limit), burst: self.burst.map(share), ..*self })
    }

    pub(crate) const fn period_micros(&self) -> u64 {
        self.period_micros
    }
}

/// A quota that is being described; [`build`](Self::build) checks it. Whatever takes a quota takes this too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a description is not a quota until it is built or passed on"]
pub struct QuotaBuilder {
    limit: u32,
    period: Duration,
    burst: Option<u32>,
}

impl QuotaBuilder {
    /// How many units may be used at once, for the bucket algorithms.
    pub const fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// The quota described.
    ///
    /// # Errors
    ///
    /// [`SetupError::ZeroLimit`], [`SetupError::ZeroBurst`], and for periods [`SetupError::ZeroPeriod`],
    /// [`SetupError::FractionalPeriod`] or [`SetupError::PeriodTooLong`].
    pub fn build(self) -> Result<Quota, SetupError> {
        if self.limit == 0 {
            return Err(SetupError::ZeroLimit);
        }
        if self.burst == Some(0) {
            return Err(SetupError::ZeroBurst);
        }
        let period_micros = whole_micros(self.period)?;
        Ok(Quota { limit: self.limit, period_micros, burst: self.burst })
    }
}

impl TryFrom<QuotaBuilder> for Quota {
    type Error = SetupError;

    fn try_from(builder: QuotaBuilder) -> Result<Self, SetupError> {
        builder.build()
    }
}

fn whole_micros(period: Duration) -> Result<u64, SetupError> {
    if period.is_zero() {
        return Err(SetupError::ZeroPeriod);
    }
    if !period.subsec_nanos().is_multiple_of(1_000) {
        return Err(SetupError::FractionalPeriod(period));
    }
    if period > MAX_PERIOD {
        return Err(SetupError::PeriodTooLong(period));
    }
    Ok(floor_micros(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_and_the_largest_are_accepted() {
        let quota = Quota::per(u32::MAX, Duration::from_micros(1)).burst(u32::MAX).build().unwrap();
        assert_eq!((quota.limit(), quota.burst()), (u32::MAX, Some(u32::MAX)));
        assert_eq!(Quota::per(1, MAX_PERIOD).build().unwrap().period(), MAX_PERIOD);
    }

    #[test]
    fn what_is_out_of_range_says_so() {
        let per = |period| Quota::per(1, period).build();
        assert_eq!(per(Duration::ZERO), Err(SetupError::ZeroPeriod));
        assert_eq!(
            per(Duration::from_nanos(1_500)),
            Err(SetupError::FractionalPeriod(Duration::from_nanos(1_500)))
        );
        let beyond = MAX_PERIOD + Duration::from_micros(1);
        assert_eq!(per(beyond), Err(SetupError::PeriodTooLong(beyond)));
        assert_eq!(Quota::per_second(1).burst(0).build(), Err(SetupError::ZeroBurst));
    }

    #[test]
    fn a_share_of_the_largest_overflows_nothing() {
        let quota = Quota::per(u32::MAX, MAX_PERIOD).burst(u32::MAX).build().unwrap();
        assert_eq!(quota.share(u32::MAX, u32::MAX), Ok(quota));
        assert_eq!(quota.share(1, u32::MAX).unwrap().burst(), Some(1));
        assert_eq!(quota.share(u32::MAX - 1, u32::MAX).unwrap().limit(), u32::MAX - 1);
        for (part, whole) in [(0, 0), (1, 0), (0, 1), (2, 1)] {
            assert!(matches!(quota.share(part, whole), Err(SetupError::Setting { setting: "share", .. })));
        }
    }

    #[test]
    fn o_47_a_period_beyond_292_years_is_a_typed_error() {
        let period = Duration::from_secs(i64::MAX as u64);
        assert_eq!(Quota::per(1, period).build(), Err(SetupError::PeriodTooLong(period)));
    }
}
