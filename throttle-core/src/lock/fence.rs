//! [`Fence`]: the number of an acquisition.

use std::fmt;

use crate::Timestamp;

/// The number of an acquisition: higher than those of all earlier acquisitions of the same lock.
///
/// A lock that is held for a time cannot keep a holder that was asleep past it from writing. What is protected can: it
/// remembers the highest number it has seen and refuses whoever comes with a lower one.
///
/// ```
/// use throttle_core::lock::Fence;
///
/// /// What the lock protects.
/// #[derive(Default)]
/// struct Ledger {
///     highest: Option<Fence>,
///     entries: Vec<&'static str>,
/// }
///
/// impl Ledger {
///     fn write(&mut self, fence: Fence, entry: &'static str) -> bool {
///         let is_current = self.highest <= Some(fence);
///         if is_current {
///             self.highest = Some(fence);
///             self.entries.push(entry);
///         }
///         is_current
///     }
/// }
///
/// let mut ledger = Ledger::default();
/// assert!(ledger.write(Fence::new(8), "new holder"));
/// assert!(!ledger.write(Fence::new(7), "old holder, back from a pause"));
/// assert_eq!(ledger.entries, ["new holder"]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The number itself, as a store gives it.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, to be handed to what the lock protects.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next number after `last` at `now`: the time in microseconds, or one more than `last` if that is not higher.
    ///
    /// So a store that keeps `last` needs no clock to be right, and one that has lost it, or keeps it for a while only,
    /// still goes on above it, unless its clock was set back meanwhile.
    #[must_use]
    pub fn after(last: Option<Self>, now: Timestamp) -> Self {
        let next = last.map_or(0, |last| last.0.saturating_add(1));
        Self(next.max(now.as_micros()))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_is_higher_whatever_the_clock_says() {
        let at = Timestamp::saturating_from_micros;
        assert_eq!(Fence::after(None, at(1_000)), Fence::new(1_000));
        assert_eq!(
            Fence::after(Some(Fence::new(1_000)), at(1_000)),
            Fence::new(1_001),
            "in the same microsecond"
        );
        assert_eq!(Fence::after(Some(Fence::new(1_000)), at(5)), Fence::new(1_001), "the clock was set back");
        assert_eq!(Fence::after(Some(Fence::new(1_000)), at(2_000)), Fence::new(2_000));
    }
}
