//! The store's own clock: monotonic, anchored to the Unix epoch once.

use std::sync::Arc;

use throttle_core::{Clock, SystemClock, Timestamp};

/// Where the time comes from.
#[derive(Debug)]
pub(crate) enum StoreClock {
    /// The processor's time stamp counter, counted from an anchor.
    Counter { clock: quanta::Clock, start: u64, epoch_micros: u64, micros_per_tick: u64 },
    /// A clock of the user's choice.
    Chosen(Arc<dyn Clock>),
}

impl StoreClock {
    pub(crate) fn new(chosen: Option<Arc<dyn Clock>>) -> Self {
        match chosen {
            Some(clock) => Self::Chosen(clock),
            None => {
                let clock = quanta::Clock::new();
                let (start, epoch_micros) = (clock.raw(), SystemClock.now().as_micros());
                let micros_per_tick = micros_per_tick(&clock);
                Self::Counter { clock, start, epoch_micros, micros_per_tick }
            }
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Counter { clock, start, epoch_micros, micros_per_tick } => {
                let elapsed = high_half(clock.raw().saturating_sub(*start), *micros_per_tick);
                Timestamp::saturating_from_micros(epoch_micros + elapsed)
            }
            Self::Chosen(clock) => clock.now(),
        }
    }
}

/// How long a tick of the counter is, in 2^-64 µs: then one multiplication makes microseconds of ticks, where `quanta`
/// takes three to make nanoseconds. Taken from 2^40 ticks, which is minutes, it is exact to 10 µs in a month.
fn micros_per_tick(clock: &quanta::Clock) -> u64 {
    let micros = (u128::from(clock.delta_as_nanos(0, 1 << 40)) << 24) / 1_000;
    u64::try_from(micros).unwrap_or(u64::MAX)
}

/// The upper 64 bits of a product.
#[inline]
const fn high_half(a: u64, b: u64) -> u64 {
    ((a as u128 * b as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_counter_keeps_the_time_of_the_system() {
        let clock = StoreClock::new(None);
        for _ in 0..3 {
            let start = SystemClock.now();
            while SystemClock.now().saturating_since(start) < Duration::from_millis(20) {}
            let (before, now, after) = (SystemClock.now(), clock.now(), SystemClock.now());
            let slack = Duration::from_millis(5);
            assert!(
                before <= now.saturating_add(slack) && now <= after.saturating_add(slack),
                "{before:?} {now:?}"
            );
        }
    }

    #[test]
    fn ticks_become_the_microseconds_of_quanta() {
        let clock = quanta::Clock::new();
        for ticks in [0, 1, 1_000, 1 << 32, 1 << 50, u64::MAX >> 8] {
            let (ours, exact) =
                (high_half(ticks, micros_per_tick(&clock)), clock.delta_as_nanos(0, ticks) / 1_000);
            assert!(ours.abs_diff(exact) <= 1 + exact / 100_000_000_000, "{ticks}: {ours}, {exact}");
        }
    }
}
