//! [`Terms`]: how much is taken ahead, how often, and for how long.

use std::time::Duration;

use throttle_core::kernel::{Kernel, PolicyState, StoredState};
use throttle_core::{MAX_TIMES, Policy, Timestamp};

use crate::moment::Moment;

/// A key that asks for fewer units than this per portion is not busy enough to take more than it asks for.
const BUSY: u64 = 8;

/// What may be set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// How long a portion is to last.
    pub(super) target: Duration,
    /// A portion is at most this part of the capacity.
    pub(super) share: u32,
}

impl Terms {
    /// After this, what is left of a portion is not served any more.
    pub(super) const fn lifetime(&self) -> Duration {
        self.target.saturating_mul(5)
    }

    /// The most units taken ahead.
    pub(super) fn most(&self, policy: &Policy) -> u32 {
        policy.capacity() / self.share
    }

    /// How far apart a key that was denied asks again, if it is asked all the time: not longer than a quarter of what a
    /// bucket takes to fill, so that none overflows meanwhile.
    pub(super) fn pause(&self, policy: &Policy) -> Duration {
        let fills = policy.rules().iter().filter_map(|rule| match rule.kernel() {
            Kernel::Bucket(bucket) => Some(bucket.span_of(u64::from(bucket.capacity())).micros / 4),
            _ => None,
        });
        fills.map(Duration::from_micros).min().map_or(self.target, |quarter| quarter.min(self.target))
    }

    /// How many units to ask for at once, for a key that asks for `needed` in the time a portion is to last.
    ///
    /// What flows off a bucket in that time is not there to be held, so that much must be owed to begin with.
    pub(super) fn size(
        &self,
        policy: &Policy,
        needed: u64,
        last: Option<(&PolicyState, &Moment)>,
        now: Timestamp,
    ) -> u32 {
        let mut size = needed;
        if needed >= BUSY {
            for (place, rule) in policy.rules().iter().enumerate() {
                let Kernel::Bucket(bucket) = rule.kernel() else { continue };
                let flows = self.target.as_micros() * u128::from(bucket.ticks_per_micro());
                let flows = flows / u128::from(bucket.ticks_per_unit());
                let owed = last.and_then(|(after, moment)| {
                    match (after.states().get(place)?, moment.latest(now)?) {
                        (StoredState::Bucket(state), latest) => Some(bucket.owed_units(state, latest)),
                        _ => None,
                    }
                });
                let wanted = u64::try_from(flows + flows / 4).unwrap_or(u64::MAX);
                size = size.max(wanted.saturating_sub(owed.unwrap_or(0)));
            }
        }
        u32::try_from(size).unwrap_or(u32::MAX).min(self.most(policy)).min(MAX_TIMES)
    }
}

/// How much a key is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// Units since the store was asked last.
    units: u64,
    since: Timestamp,
    /// How many units were needed when the store was asked last.
    last: u64,
}

impl Demand {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { units: 0, since: now, last: 0 }
    }

    pub(super) fn add(&mut self, units: u32) {
        self.units = self.units.saturating_add(u64::from(units));
    }

    /// How many units are asked for in the time that a portion is to last, by what was asked for since the last time this
    /// was called. At most twice as many as the last time, so that a key proves itself before much is taken for it.
    pub(super) fn next(&mut self, target: Duration, now: Timestamp) -> u64 {
        let passed = now.saturating_since(self.since).as_micros().max(1);
        let rate = u128::from(self.units) * target.as_micros() / passed;
        let needed = u64::try_from(rate).unwrap_or(u64::MAX).min(self.last.saturating_mul(2));
        *self = Self { units: 0, since: now, last: needed.max(1) };
        needed
    }
}

/// Lets a key that was denied ask again seldom enough.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// Until then, all asking is paid for by time.
    until: Option<Timestamp>,
}

impl Pace {
    /// How often it may ask in quick succession.
    const BURST: u32 = 8;

    pub(super) fn may_ask(&self, now: Timestamp, pause: Duration) -> bool {
        self.until.is_none_or(|until| until <= now.saturating_add(pause.saturating_mul(Self::BURST)))
    }

    pub(super) fn ask(&mut self, now: Timestamp, pause: Duration) {
        self.until = Some(self.until.map_or(now, |until| until.max(now)).saturating_add(pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(20);

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000 + micros).unwrap()
    }

    #[test]
    fn a_key_proves_itself_and_then_takes_what_it_needs() {
        let (mut demand, mut now) = (Demand::new(at(0)), 0);
        let sizes = [1, 1, 2, 4, 8, 16, 32, 64, 128, 200, 200].map(|_| {
            let needed = demand.next(TARGET, at(now));
            // 10,000 units a second.
            now += needed.max(1) * 100;
            demand.add(u32::try_from(needed.max(1)).unwrap());
            needed
        });
        assert_eq!(sizes, [0, 2, 4, 8, 16, 32, 64, 128, 200, 200, 200]);
        assert_eq!(demand.next(TARGET, at(now + 100_000_000)), 0, "and none once it is quiet");
    }

    #[test]
    fn a_fast_bucket_is_taken_what_flows_off_meanwhile() {
        let terms = Terms { target: TARGET, share: 16 };
        let policy = |text: &str| Policy::new("p", [text.parse().unwrap()]).unwrap();
        for (rule, needed, size) in [
            ("gcra 1000000/s", 200, 25_000),
            ("gcra 1000000/s", 7, 7),
            ("gcra 100000/h", 200, 200),
            ("gcra 10000/s burst 160", 200, 10),
            ("leaky_bucket 10000/s", 200, 0),
            ("fixed_window 1000000/s", 200, 200),
        ] {
            assert_eq!(terms.size(&policy(rule), needed, None, at(0)), size, "{rule}");
        }
    }

    #[test]
    fn asking_is_paced() {
        let mut pace = Pace::default();
        let asks = (0..1_000_u64).filter(|millis| {
            let now = at(millis * 1_000);
            let may = pace.may_ask(now, TARGET);
            if may {
                pace.ask(now, TARGET);
            }
            may
        });
        // Nine at once, and one every 20 ms after that.
        assert_eq!(asks.count(), 9 + 49);
    }
}
