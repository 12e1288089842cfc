//! Token bucket, leaky bucket and GCRA: one kernel (ITU-T I.371's virtual scheduling, in exact arithmetic).
//!
//! The state is the theoretical arrival time (TAT) at which the key's debt is paid. With `p/q` the rate in lowest
//! terms (units per µs), every time that occurs is a multiple of 1/p µs; such a multiple is a *tick* here. Spans are
//! kept as whole microseconds and ticks below p, so that one decision takes additions and comparisons, and a single
//! division to say what remains. Other languages do the same in numbers of 53 bits.

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
    /// T = q/p.
    unit: Span,
    /// F = b·T.
    full: Span,
    /// W, in microseconds.
    queue_micros: u64,
}

/// An exact span of time: `micros` + `ticks`/p µs, with ticks below p.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Whole microseconds.
    pub micros: u64,
    /// The rest, in units of 1/p µs.
    pub ticks: u32,
}

impl Span {
    const ZERO: Self = Self { micros: 0, ticks: 0 };

    #[inline]
    const fn ceil_micros(self) -> u64 {
        self.micros + (self.ticks > 0) as u64
    }
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
        let longest = full.div_ceil(u128::from(ticks_per_micro)) + u128::from(queue_micros);
        if longest > u128::from(MAX_SPAN_MICROS) {
            return Err(SetupError::SpanTooLong { micros: longest });
        }
        let (unit, full) = (split(u128::from(ticks_per_unit), ticks_per_micro), split(full, ticks_per_micro));
        Ok(Self { ticks_per_micro, ticks_per_unit, capacity, unit, full, queue_micros })
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

    /// F = b·T: the time from empty to full.
    #[must_use]
    pub const fn full(&self) -> Span {
        self.full
    }

    /// W: how far ahead it admits, in microseconds.
    #[must_use]
    pub const fn queue_micros(&self) -> u64 {
        self.queue_micros
    }

    /// The time in which `units` flow; at most [`MAX_SPAN_MICROS`] is told apart.
    #[inline]
    #[must_use]
    pub fn span_of(&self, units: u64) -> Span {
        match units {
            0 => Span::ZERO,
            1 => self.unit,
            _ => split(u128::from(units) * u128::from(self.ticks_per_unit), self.ticks_per_micro),
        }
    }

    /// Debt D(now) = min(max(0, TAT − now), F + W).
    #[inline]
    pub(crate) fn view(&self, state: Option<&BucketState>, now: Timestamp) -> Span {
        let Some(state) = state else { return Span::ZERO };
        let (tat, ticks) = match state.fraction {
            rest if state.denominator == self.ticks_per_micro => (state.tat_micros, rest),
            0 => (state.tat_micros, 0),
            _ => (state.tat_micros.saturating_add(1), 0),
        };
        let Some(micros) = tat.checked_sub(now.as_micros()) else { return Span::ZERO };
        let debt = Span { micros, ticks };
        let most = self.full_and(self.queue_micros);
        if debt < most { debt } else { most }
    }

    pub(crate) fn refund(&self, debt: Span, units: u32) -> Span {
        self.minus(debt, self.span_of(u64::from(units)))
    }

    #[inline]
    pub(crate) fn store(&self, debt: Span, now: Timestamp) -> StoredState {
        StoredState::Bucket(BucketState {
            tat_micros: now.as_micros() + debt.micros,
            fraction: debt.ticks,
            denominator: self.ticks_per_micro,
        })
    }

    /// The debt after one request, if it is allowed.
    #[inline]
    pub(crate) fn admit(&self, debt: Span, request: &Request) -> Option<Span> {
        let after = self.charge(debt, u64::from(request.cost));
        let fits = request.cost <= self.capacity && after <= self.full_and(self.patience(request));
        (fits || request.cost == 0).then_some(after)
    }

    /// F + `micros`.
    #[inline]
    const fn full_and(&self, micros: u64) -> Span {
        Span { micros: self.full.micros + micros, ticks: self.full.ticks }
    }

    /// min(`max_wait`, W), in microseconds.
    #[inline]
    fn patience(&self, request: &Request) -> u64 {
        let micros = request.max_wait_micros;
        if micros < self.queue_micros { micros } else { self.queue_micros }
    }

    #[inline]
    fn plus(&self, a: Span, b: Span) -> Span {
        let (ticks, wrapped) = a.ticks.overflowing_add(b.ticks);
        let carry = wrapped || ticks >= self.ticks_per_micro;
        Span {
            micros: a.micros.saturating_add(b.micros) + u64::from(carry),
            ticks: if carry { ticks.wrapping_sub(self.ticks_per_micro) } else { ticks },
        }
    }

    /// a − b, or zero if b is the longer one.
    #[inline]
    fn minus(&self, a: Span, b: Span) -> Span {
        if a <= b {
            return Span::ZERO;
        }
        let borrow = a.ticks < b.ticks;
        Span {
            micros: a.micros - b.micros - u64::from(borrow),
            ticks: if borrow {
                a.ticks.wrapping_sub(b.ticks).wrapping_add(self.ticks_per_micro)
            } else {
                a.ticks - b.ticks
            },
        }
    }

    #[inline]
    fn in_ticks(&self, span: Span) -> u128 {
        u128::from(span.micros) * u128::from(self.ticks_per_micro) + u128::from(span.ticks)
    }
}

/// `ticks` as whole microseconds and a rest. What is longer than any span here saturates.
fn split(ticks: u128, ticks_per_micro: u32) -> Span {
    let micros = divide(ticks, u64::from(ticks_per_micro));
    let rest = ticks - micros * u128::from(ticks_per_micro);
    Span { micros: u64::try_from(micros).unwrap_or(u64::MAX), ticks: u32::try_from(rest).unwrap_or(0) }
}

impl Algorithm for Bucket {
    type View = Span;

    #[inline]
    fn room(&self, debt: Span, request: &Request, times: u32) -> u32 {
        if self.admit(debt, request).is_none() {
            return 0;
        }
        if times == 1 || request.cost == 0 {
            return times;
        }
        let most = self.full_and(self.patience(request));
        let each = u128::from(request.cost) * u128::from(self.ticks_per_unit);
        let fit = (self.in_ticks(most) - self.in_ticks(debt)) / each;
        u32::try_from(fit).map_or(times, |fit| if fit < times { fit } else { times })
    }

    #[inline]
    fn charge(&self, debt: Span, units: u64) -> Span {
        if units == 0 {
            return debt;
        }
        self.plus(debt, self.span_of(units))
    }

    #[inline]
    fn verdict(&self, debt: Span, request: &Request) -> Verdict {
        let delay = self.minus(self.charge(debt, u64::from(request.cost)), self.full);
        let patience = Span { micros: self.patience(request), ticks: 0 };
        if request.cost == 0 || delay <= patience {
            return Verdict::allowed_after(delay.ceil_micros());
        }
        Verdict::denied_for(self.minus(delay, patience).ceil_micros())
    }

    #[inline]
    fn delay(&self, after: Span) -> u64 {
        self.minus(after, self.full).ceil_micros()
    }

    #[inline]
    fn report(&self, debt: Span, _now: Timestamp) -> Report {
        let left = self.minus(self.full, debt);
        let units = match self.ticks_per_micro {
            1 => left.micros / self.ticks_per_unit,
            _ => u64::try_from(divide(self.in_ticks(left), self.ticks_per_unit)).unwrap_or(u64::MAX),
        };
        Report { remaining: saturate(units), reset_after: debt.ceil_micros() }
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

    use proptest::prelude::*;

    use super::*;

    fn bucket(limit: u32, period: Duration, capacity: u32) -> Bucket {
        Bucket::new(Quota::per(limit, period).build().unwrap(), capacity, 0).unwrap()
    }

    const fn span(micros: u64, ticks: u32) -> Span {
        Span { micros, ticks }
    }

    #[test]
    fn rates_are_in_lowest_terms() {
        let minute = bucket(90, Duration::from_secs(60), 10);
        assert_eq!((minute.ticks_per_micro(), minute.ticks_per_unit()), (3, 2_000_000));
        assert_eq!(minute.span_of(1), span(666_666, 2));
        assert_eq!(minute.span_of(3), span(2_000_000, 0));
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
        assert_eq!(fast.span_of(u64::from(u32::MAX)), span(1, 0));
        assert_eq!(fast.span_of(1), span(0, 1));
        assert_eq!(fast.plus(span(0, u32::MAX - 1), span(0, u32::MAX - 1)), span(1, u32::MAX - 2));
        let slow = bucket(u32::MAX, crate::quota::MAX_PERIOD, u32::MAX);
        assert_eq!(slow.span_of(u64::from(u32::MAX)), span(1 << 50, 0));
        assert_eq!(slow.refund(slow.full(), u32::MAX), Span::ZERO);
    }

    #[test]
    fn a_changed_rate_keeps_the_debt_rounded_up() {
        let thirds = bucket(3, Duration::from_micros(7), 3);
        let stored = BucketState { tat_micros: 100, fraction: 1, denominator: 7 };
        let at = |micros| thirds.view(Some(&stored), Timestamp::from_micros(micros).unwrap());
        assert_eq!((at(99), at(100), at(101)), (span(2, 0), span(1, 0), span(0, 0)));
    }

    proptest! {
        #[test]
        fn spans_add_and_subtract_like_their_ticks(
            limit in 1..=u32::MAX, period in 1..1_u64 << 40, a in 0..1_u64 << 30, b in 0..1_u64 << 30,
        ) {
            let bucket = bucket(limit, Duration::from_micros(period), 1);
            let (x, y) = (bucket.span_of(a), bucket.span_of(b));
            prop_assert_eq!(bucket.plus(x, y), bucket.span_of(a + b));
            prop_assert_eq!(bucket.minus(x, y), bucket.span_of(a.saturating_sub(b)));
            prop_assert_eq!(bucket.in_ticks(x), u128::from(a) * u128::from(bucket.ticks_per_unit()));
        }
    }
}
