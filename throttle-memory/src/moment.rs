//! [`Moment`]: what a store's clock shows now, as far as this process can tell.

use std::time::Duration;

use throttle_core::Timestamp;

/// When a store decided, by its clock and by ours. It decided after it was asked and before its answer was here, so
/// the time since then is known from both sides, without the two clocks ever being compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// By the store's clock.
    store: Timestamp,
    /// By ours, before it was asked.
    asked: Timestamp,
    /// By ours, with its answer here.
    answered: Timestamp,
}

impl Moment {
    pub(crate) const fn new(store: Timestamp, asked: Timestamp, answered: Timestamp) -> Self {
        Self { store, asked, answered }
    }

    /// When it decided, by the clock of the store.
    pub(crate) const fn store(&self) -> Timestamp {
        self.store
    }

    /// No less than the store's clock shows when ours shows `now`. Both are read in whole microseconds, rounded down:
    /// that makes up for at most one. `None` if our clock stepped back.
    pub(crate) fn latest(&self, now: Timestamp) -> Option<Timestamp> {
        let passed = self.age(now)?.saturating_add(Duration::from_micros(1));
        Some(self.store.saturating_add(passed))
    }

    /// No more than the store's clock shows when ours shows `now`.
    pub(crate) fn earliest(&self, now: Timestamp) -> Timestamp {
        self.store.saturating_add(now.saturating_since(self.answered))
    }

    /// How long ago the store was asked. `None` if our clock stepped back.
    pub(crate) fn age(&self, now: Timestamp) -> Option<Duration> {
        (now >= self.answered).then(|| now.saturating_since(self.asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros).unwrap()
    }

    #[test]
    fn the_time_of_the_store_is_known_from_both_sides() {
        // Asked at 100 and answered at 130 by our clock; in between, the store's clock showed 5,000.
        let moment = Moment::new(at(5_000), at(100), at(130));
        assert_eq!((moment.earliest(at(130)), moment.latest(at(130))), (at(5_000), Some(at(5_031))));
        assert_eq!((moment.earliest(at(230)), moment.latest(at(230))), (at(5_100), Some(at(5_131))));
        assert_eq!((moment.age(at(230)), moment.age(at(129))), (Some(Duration::from_micros(130)), None));
        assert_eq!((moment.latest(at(129)), moment.earliest(at(129))), (None, at(5_000)));
    }
}
