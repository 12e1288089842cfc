//! Token bucket, leaky bucket and GCRA: one kernel (ITU-T I.371's virtual scheduling, in exact arithmetic).
//!
//! The state is the theoretical arrival time (TAT) at which the key's debt is paid. With `p/q` the rate in lowest
//! terms (units per µs), every time that occurs is a multiple of 1/p µs; such a multiple is a *tick* here, and all
//! spans are whole numbers of ticks: of 64 bits where they fit, which is nearly always, else of 128.

mod ticks;

pub(crate) use self::ticks::Ticks;
use super::{Algorithm, Report, Request, Verdict, saturate};
use crate::{Quota, SetupError, Timestamp, rule::MAX_SPAN_MICROS};

/// A bucket's numbers: rate `p/q` in lowest terms, capacity `b`, queue `W`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// p: ticks per microsecond.
    ticks_per_micro: u32,
    /// b: units.
    capacity: u32,
    /// q: ticks per unit.
    ticks_per_unit: u64,
    /// W, in microseconds.
    queue_micros: u64,
    /// ceil(F + W), in microseconds.
    longest_micros: u64,
    /// Whether all sums that occur fit 64 bits.
    narrow: bool,
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

/// An exact span of time: `micros` + `ticks`/p µs, with ticks below p.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Whole microseconds.
    pub micros: u64,
    /// The rest, in units of 1/p µs.
    pub ticks: u32,
}

impl Bucket {
    pub(crate) fn new(quota: Quota, capacity: u32, queue_micros: u64) -> Result<Self, SetupError> {
        let period = quota.period_micros();
        let common = greatest_common_divisor(u64::from(quota.limit()), period);
        let ticks_per_micro = saturate(u64::from(quota.limit()) / common);
        let ticks_per_unit = period / common;
        let full = u128::from(capacity) * u128::from(ticks_per_unit);
        let longest = full.div_ceil(u128::from(ticks_per_micro)) + u128::from(queue_micros);
        match u64::try_from(longest) {
            Ok(longest_micros) if longest_micros <= MAX_SPAN_MICROS => {
                let narrow = longest_micros.leading_zeros() + ticks_per_micro.leading_zeros() >= 32 + 2;
                Ok(Self { ticks_per_micro, capacity, ticks_per_unit, queue_micros, longest_micros, narrow })
            }
            _ => Err(SetupError::SpanTooLong { micros: longest }),
        }
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

    /// The time in which `units` flow. What is longer than any rule's span saturates.
    #[must_use]
    pub fn span_of(&self, units: u64) -> Span {
        let (micros, ticks) =
            u128::from(units).times(self.ticks_per_unit).split(u64::from(self.ticks_per_micro));
        Span { micros, ticks: saturate(ticks) }
    }

    /// Whole units that `state` owes at `now`: floor(D/T).
    #[must_use]
    pub fn owed_units(&self, state: &BucketState, now: Timestamp) -> u64 {
        self.exact::<u128>().view(Some(state), now).split(self.ticks_per_unit).0
    }

    /// Whether all sums that occur fit 64 bits.
    #[inline]
    pub(crate) const fn is_narrow(&self) -> bool {
        self.narrow
    }

    /// The same numbers for arithmetic on 64 bits, if it [is narrow](Self::is_narrow), or on 128.
    #[inline]
    pub(crate) fn exact<T: Ticks>(&self) -> Exact<T> {
        Exact { bucket: *self, full: T::from(u64::from(self.capacity)).times(self.ticks_per_unit) }
    }
}

/// A bucket that counts in `T`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact<T> {
    bucket: Bucket,
    /// F = b·T.
    full: T,
}

impl<T: Ticks> Exact<T> {
    #[inline]
    pub(crate) const fn capacity(&self) -> u32 {
        self.bucket.capacity
    }

    /// Debt D(now) = min(max(0, TAT − now), F + W).
    #[inline(always)]
    pub(crate) fn view(&self, state: Option<&BucketState>, now: Timestamp) -> T {
        let Some(state) = state else { return T::from(0) };
        let (tat, fraction) = match state.fraction {
            rest if state.denominator == self.bucket.ticks_per_micro => (state.tat_micros, rest),
            0 => (state.tat_micros, 0),
            _ => (state.tat_micros.saturating_add(1), 0),
        };
        let Some(ahead) = tat.checked_sub(now.as_micros()) else { return T::from(0) };
        let most = self.full + self.ticks(self.bucket.queue_micros);
        if ahead > self.bucket.longest_micros {
            return most;
        }
        let debt = self.ticks(ahead) + T::from(u64::from(fraction));
        if debt < most { debt } else { most }
    }

    /// The debt after one request, if it is allowed.
    #[inline(always)]
    pub(crate) fn admit(&self, debt: T, request: &Request) -> Option<T> {
        if request.cost == 0 {
            return Some(debt);
        }
        if request.cost > self.bucket.capacity {
            return None;
        }
        let after = debt + self.span(u64::from(request.cost));
        (after <= self.full + self.patience(request)).then_some(after)
    }

    pub(crate) fn refund(&self, debt: T, units: u32) -> T {
        debt.less(self.span(u64::from(units)))
    }

    #[inline(always)]
    pub(crate) fn state(&self, debt: T, now: Timestamp) -> BucketState {
        let (micros, fraction) = self.split(debt);
        BucketState {
            tat_micros: now.as_micros() + micros,
            fraction: saturate(fraction),
            denominator: self.bucket.ticks_per_micro,
        }
    }

    #[inline]
    fn span(&self, units: u64) -> T {
        T::from(units).times(self.bucket.ticks_per_unit)
    }

    #[inline]
    fn ticks(&self, micros: u64) -> T {
        T::from(micros).times(u64::from(self.bucket.ticks_per_micro))
    }

    #[inline]
    fn split(&self, ticks: T) -> (u64, u64) {
        ticks.split(u64::from(self.bucket.ticks_per_micro))
    }

    #[inline]
    fn ceil_micros(&self, ticks: T) -> u64 {
        let (micros, rest) = self.split(ticks);
        micros + u64::from(rest > 0)
    }

    /// min(`max_wait`, W).
    #[inline]
    fn patience(&self, request: &Request) -> T {
        self.ticks(request.max_wait_micros.min(self.bucket.queue_micros))
    }
}

impl<T: Ticks> Algorithm for Exact<T> {
    type View = T;

    #[inline]
    fn room(&self, debt: T, request: &Request, times: u32) -> u32 {
        if self.admit(debt, request).is_none() {
            return 0;
        }
        if times == 1 || request.cost == 0 {
            return times;
        }
        let left = (self.full + self.patience(request)).less(debt);
        // The span of a cost that was admitted once is at most `left`, and counts in 64 bits as units of q do.
        let (units, _) = left.split(self.bucket.ticks_per_unit);
        saturate(units / u64::from(request.cost)).min(times)
    }

    #[inline]
    fn charge(&self, debt: T, units: u64) -> T {
        debt + self.span(units)
    }

    #[inline]
    fn verdict(&self, debt: T, request: &Request) -> Verdict {
        let delay = self.charge(debt, u64::from(request.cost)).less(self.full);
        let patience = self.patience(request);
        if request.cost == 0 || delay <= patience {
            return Verdict::allowed_after(self.ceil_micros(delay));
        }
        Verdict::denied_for(self.ceil_micros(delay.less(patience)))
    }

    #[inline]
    fn delay(&self, after: T) -> u64 {
        if after <= self.full { 0 } else { self.ceil_micros(after.less(self.full)) }
    }

    #[inline]
    fn report(&self, debt: T, _now: Timestamp) -> Report {
        let (units, _) = self.full.less(debt).split(self.bucket.ticks_per_unit);
        Report { remaining: saturate(units), reset_after: self.ceil_micros(debt) }
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
    fn what_is_owed_is_counted_in_whole_units_rounded_down() {
        let thirds = bucket(3, Duration::from_micros(7), 3);
        let state = BucketState { tat_micros: 107, fraction: 0, denominator: 3 };
        let owed =
            [100, 101, 103, 107].map(|at| thirds.owed_units(&state, Timestamp::from_micros(at).unwrap()));
        assert_eq!(owed, [3, 2, 1, 0]);
    }

    #[test]
    fn o_03_long_idling_overflows_nothing() {
        let bucket = bucket(300_000, Duration::from_secs(60), 300_000);
        let drained =
            BucketState { tat_micros: 60_000_000, fraction: 0, denominator: bucket.ticks_per_micro() };
        let debt =
            bucket.exact::<u64>().view(Some(&drained), Timestamp::from_micros(43_200_000_000).unwrap());
        let report = bucket.exact::<u64>().report(debt, Timestamp::EPOCH);
        assert_eq!(report, Report { remaining: 300_000, reset_after: 0 });
    }

    #[test]
    fn the_extremes_are_exact() {
        let fast = bucket(u32::MAX, Duration::from_micros(1), u32::MAX);
        assert!(fast.is_narrow());
        assert_eq!(fast.span_of(u64::from(u32::MAX)), span(1, 0));
        assert_eq!(fast.span_of(1), span(0, 1));
        let slow = bucket(u32::MAX, crate::quota::MAX_PERIOD, u32::MAX);
        assert!(!slow.is_narrow());
        assert_eq!(slow.span_of(u64::from(u32::MAX)), span(1 << 50, 0));
        let wide = slow.exact::<u128>();
        assert_eq!(wide.refund(wide.full, u32::MAX), 0);
    }

    #[test]
    fn a_changed_rate_keeps_the_debt_rounded_up() {
        let thirds = bucket(3, Duration::from_micros(7), 3);
        let stored = BucketState { tat_micros: 100, fraction: 1, denominator: 7 };
        let at = |micros| thirds.exact::<u64>().view(Some(&stored), Timestamp::from_micros(micros).unwrap());
        assert_eq!((at(99), at(100), at(101)), (6, 3, 0));
    }

    proptest! {
        #[test]
        fn narrow_and_wide_arithmetic_agree(
            limit in 1..1_000_000_u32, period in 1..1_u64 << 36, capacity in 1..100_u32, queue in 0..1_u64 << 36,
            ahead in 0..1_u64 << 53, fraction: u32, cost in 0..=u32::MAX, times in 1..=crate::MAX_TIMES, wait: u64,
        ) {
            let quota = Quota::per(limit, Duration::from_micros(period)).build().unwrap();
            let Ok(bucket) = Bucket::new(quota, capacity, queue) else { return Ok(()) };
            prop_assume!(bucket.is_narrow());
            let (narrow, wide) = (bucket.exact::<u64>(), bucket.exact::<u128>());
            let denominator = bucket.ticks_per_micro();
            let state = BucketState { tat_micros: ahead, fraction: fraction % denominator, denominator };
            let now = Timestamp::EPOCH;
            let (a, b) = (narrow.view(Some(&state), now), wide.view(Some(&state), now));
            prop_assert_eq!(u128::from(a), b);
            let request = Request { now, cost: cost.min(capacity), max_wait_micros: wait };
            prop_assert_eq!(narrow.verdict(a, &request), wide.verdict(b, &request));
            prop_assert_eq!(narrow.room(a, &request, times), wide.room(b, &request, times));
            prop_assert_eq!(narrow.report(a, now), wide.report(b, now));
            prop_assert_eq!(narrow.state(a, now), wide.state(b, now));
            prop_assert_eq!(u128::from(narrow.refund(a, cost)), wide.refund(b, cost));
        }
    }
}
