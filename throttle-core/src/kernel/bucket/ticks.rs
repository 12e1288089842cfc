//! Whole numbers of ticks, of 64 or 128 bits.

use std::fmt::Debug;
use std::ops::Add;

/// A span in ticks. Sums of spans of one bucket fit by the choice of the type; products saturate.
pub(crate) trait Ticks: Copy + Debug + Ord + Add<Output = Self> + From<u64> {
    /// This many of a span of `each`.
    fn times(self, each: u64) -> Self;

    /// The difference, or zero.
    fn less(self, other: Self) -> Self;

    /// How often `by` goes into it, and what is left.
    fn split(self, by: u64) -> (u64, u64);
}

impl Ticks for u64 {
    #[inline]
    fn times(self, each: u64) -> Self {
        self.saturating_mul(each)
    }

    #[inline]
    fn less(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    #[inline]
    fn split(self, by: u64) -> (u64, u64) {
        if by == 1 { (self, 0) } else { (self / by, self % by) }
    }
}

impl Ticks for u128 {
    #[inline]
    fn times(self, each: u64) -> Self {
        self.saturating_mul(Self::from(each))
    }

    #[inline]
    fn less(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    fn split(self, by: u64) -> (u64, u64) {
        let (quotient, rest) = (self / Self::from(by), self % Self::from(by));
        (u64::try_from(quotient).unwrap_or(u64::MAX), u64::try_from(rest).unwrap_or(u64::MAX))
    }
}
