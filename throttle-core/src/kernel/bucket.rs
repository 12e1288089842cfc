//! Token bucket, leaky bucket and GCRA: one kernel (ITU-T I.371's virtual scheduling, in exact arithmetic).
//!
//! The state is the theoretical arrival time (TAT) at which the key's debt is paid. With `p/q` the rate in lowest
//! terms (units per µs), every time that occurs is a multiple of 1/p µs; such a multiple is a *tick* here, and all
//! spans are whole numbers of ticks.

use super::{Algorithm, Report, Request, StoredState, Verdict, divide, saturate};
use crate::{Quota, SetupError, Timestamp, rule::MAX_SPAN_MICROS};

/// A bucket's numbers: rate `p/q` in lowest terms, capacity `b`, queue `W`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// p: ticks per microsecond.
    ticks_per_micro: u32,
    /// q: ticks per unit.
    ticks_per_unit: u64,
    /// b: units.
    capacity: u32,
    /// F = b·T, in ticks.
    full: u128,
    /// W, in microseconds.
    queue_micros: u64,
}

/// The stored state: TAT = `tat_micros` + `fraction`/`denominator` µs since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BucketState {
    /// Whole microseconds.
    pub tat_micros: u64,
    /// Numerator of the rest; below the denominator.
    pub fraction: u32,
    /// The p of the rule that stored it. A rule with another p rounds the rest up.
    pub denominator: u32,
}

impl Bucket {
    pub(crate) fn new(quota: Quota, capacity: u32, queue_micros: u64) -> Result<Self, SetupError> {
        let period = quota.period_micros();
        let common = greatest_common_divisor(u64::from(quota.limit()), period);
        let ticks_per_micro = saturate(u64::from(quota.limit()) / common);
        let ticks_per_unit = period / common;
        let full = u128::from(capacity) * u128::from(ticks_per_unit);
        let span = full.div_ceil(u128::from(ticks_per_micro)) + u128::from(queue_micros);
        if span > u128::from(MAX_SPAN_MICROS) {
            return Err(SetupError::SpanTooLong { micros: span });
        }
        Ok(Self { ticks_per_micro, ticks_per_unit, capacity, full, queue_micros })
    }

    /// p: the rate is `p/q` units per microsecond in lowest terms, and time is counted in units of 1/p µs.
    #[must_use]
    pub const fn ticks_per_micro(&self) -> u32 {
        self.ticks_per_micro
    }

    /// q: `T = q/p` µs pass from one unit to the next.
    #[must_use]
    pub const fn ticks_per_unit(&self) -> u64 {
        self.ticks_per_unit
    }

    /// b: units it holds.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// W: how far ahead it admits, in microseconds.
    #[must_use]
    pub const fn queue_micros(&self) -> u64 {
        self.queue_micros
    }

    /// The time that `units` take to flow, as whole microseconds and a rest in units of 1/p µs.
    #[must_use]
    pub fn span_of(&self, units: u64) -> (u64, u32) {
        self.split(u128::from(units) * u128::from(self.ticks_per_unit))
    }

    /// Debt D(now) in ticks: min(max(0, TAT − now), F + W).
    pub(crate) fn view(&self, state: Option<&BucketState>, now: Timestamp) -> u128 {
        let Some(state) = state else { return 0 };
        let (micros, fraction) = match state.fraction {
            rest if state.denominator == self.ticks_per_micro => (state.tat_micros, rest),
            0 => (state.tat_micros, 0),
            _ => (state.tat_micros.saturating_add(1), 0),
        };
        let Some(ahead) = micros.checked_sub(now.as_micros()) else { return 0 };
        let debt = self.ticks(ahead) + u128::from(fraction);
        let most = self.full + self.ticks(self.queue_micros);
        if debt < most { debt } else { most }
    }

    pub(crate) fn refund(&self, debt: u128, units: u32) -> u128 {
        debt.saturating_sub(u128::from(units) * u128::from(self.ticks_per_unit))
    }

    pub(crate) fn store(&self, debt: u128, now: Timestamp) -> StoredState {
        let (micros, fraction) = self.split(debt);
        StoredState::Bucket(BucketState {
            tat_micros: now.as_micros() + micros,
            fraction,
            denominator: self.ticks_per_micro,
        })
    }

    fn ticks(&self, micros: u64) -> u128 {
        u128::from(micros) * u128::from(self.ticks_per_micro)
    }

    fn split(&self, ticks: u128) -> (u64, u32) {
        let micros = divide(ticks, u64::from(self.ticks_per_micro));
        let rest = ticks - micros * u128::from(self.ticks_per_micro);
        (u64::try_from(micros).unwrap_or(u64::MAX), u32::try_from(rest).unwrap_or(0))
    }

    fn ceil_micros(&self, ticks: u128) -> u64 {
        let (micros, rest) = self.split(ticks);
        micros + u64::from(rest > 0)
    }

    /// min(`max_wait`, W), in ticks.
    fn patience(&self, request: &Request) -> u128 {
        let micros = request.max_wait_micros;
        self.ticks(if micros < self.queue_micros { micros } else { self.queue_micros })
    }
}

impl Algorithm for Bucket {
    type View = u128;

    fn room(&self, debt: u128, request: &Request, times: u32) -> u32 {
        if request.cost == 0 {
            return times;
        }
        let most = self.full + self.patience(request);
        let each = u128::from(request.cost) * u128::from(self.ticks_per_unit);
        if request.cost > self.capacity || debt + each > most {
            return 0;
        }
        if times == 1 {
            return 1;
        }
        u32::try_from((most - debt) / each).map_or(times, |fit| if fit < times { fit } else { times })
    }

    fn charge(&self, debt: u128, units: u64) -> u128 {
        debt + u128::from(units) * u128::from(self.ticks_per_unit)
    }

    fn verdict(&self, debt: u128, request: &Request) -> Verdict {
        let after = self.charge(debt, u64::from(request.cost));
        let delay = after.saturating_sub(self.full);
        let patience = self.patience(request);
        if request.cost == 0 || delay <= patience {
            return Verdict::allowed_after(self.ceil_micros(delay));
        }
        Verdict::denied_for(self.ceil_micros(delay - patience))
    }

    fn report(&self, debt: u128, _now: Timestamp) -> Report {
        let left = divide(self.full.saturating_sub(debt), self.ticks_per_unit);
        Report { remaining: u32::try_from(left).unwrap_or(u32::MAX), reset_after: self.ceil_micros(debt) }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn bucket(limit: u32, period: Duration, capacity: u32) -> Bucket {
        Bucket::new(Quota::per(limit, period).build().unwrap(), capacity, 0).unwrap()
    }

    #[test]
    fn rates_are_in_lowest_terms() {
        let day = bucket(90, Duration::from_secs(60), 10);
        assert_eq!((day.ticks_per_micro(), day.ticks_per_unit()), (3, 2_000_000));
        assert_eq!(day.span_of(1), (666_666, 2));
        assert_eq!(day.span_of(3), (2_000_000, 0));
    }

    #[test]
    fn o_03_long_idling_overflows_nothing() {
        let bucket = bucket(300_000, Duration::from_secs(60), 300_000);
        let drained =
            BucketState { tat_micros: 60_000_000, fraction: 0, denominator: bucket.ticks_per_micro() };
        let debt = bucket.view(Some(&drained), Timestamp::from_micros(43_200_000_000).unwrap());
        assert_eq!(bucket.report(debt, Timestamp::EPOCH), Report { remaining: 300_000, reset_after: 0 });
    }

    #[test]
    fn the_extremes_are_exact() {
        let fast = bucket(u32::MAX, Duration::from_micros(1), u32::MAX);
        assert_eq!(fast.span_of(u64::from(u32::MAX)), (1, 0));
        assert_eq!(fast.span_of(1), (0, 1));
        let slow = bucket(u32::MAX, crate::quota::MAX_PERIOD, u32::MAX);
        assert_eq!(slow.span_of(u64::from(u32::MAX)), (1 << 50, 0));
    }

    #[test]
    fn a_changed_rate_keeps_the_debt_rounded_up() {
        let thirds = bucket(3, Duration::from_micros(7), 3);
        let stored = BucketState { tat_micros: 100, fraction: 1, denominator: 7 };
        let at = |micros| thirds.view(Some(&stored), Timestamp::from_micros(micros).unwrap());
        assert_eq!((at(99), at(100), at(101)), (6, 3, 0));
    }
}
