//! Sliding window of two counters: the past period's count fades as the present one goes by.
//!
//! Time within a period is cut into at most 2^20 units, so that a weighted count stays below 2^53.

use super::{Algorithm, Report, Request, StoredState, Verdict, requests_in, saturate};
use crate::{Quota, Timestamp};

/// A sliding window's numbers: limit `n` per period `P` of `U` units of `u` µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    limit: u32,
    period: u64,
    /// u = ceil(P / 2^20), in microseconds.
    unit: u64,
    /// U = ceil(P / u).
    units: u64,
}

/// The stored state: units used in window `index` of `period`, and in the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingWindowState {
    /// The period in microseconds that the index counts in.
    pub period: u64,
    /// Which window is the current one.
    pub index: u64,
    /// Units used in it.
    pub current: u32,
    /// Units used in the one before.
    pub previous: u32,
}

/// The two windows that count at one moment, and how far the current one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlidingWindowView {
    index: u64,
    current: u64,
    previous: u64,
    /// e: units of time since the current window began.
    elapsed: u64,
}

impl SlidingWindow {
    pub(crate) const fn new(quota: Quota) -> Self {
        let period = quota.period_micros();
        let unit = period.div_ceil(1 << 20);
        Self { limit: quota.limit(), period, unit, units: period.div_ceil(unit) }
    }

    /// n: units per period.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// P, in microseconds.
    #[must_use]
    pub const fn period_micros(&self) -> u64 {
        self.period
    }

    /// u, the unit in which elapsed time is weighed, in microseconds.
    #[must_use]
    pub const fn unit_micros(&self) -> u64 {
        self.unit
    }

    /// U, how many such units make a period.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// The stored windows if time has stepped back by less than a period, else the present ones. Counts of another
    /// period move to the present window for as long as they would have lived.
    pub(crate) fn view(&self, state: Option<&SlidingWindowState>, now: Timestamp) -> SlidingWindowView {
        let present = now.as_micros() / self.period;
        let elapsed = now.as_micros() % self.period / self.unit;
        let seen = |current, previous| SlidingWindowView { index: present, current, previous, elapsed };
        let Some(state) = state else { return seen(0, 0) };
        let (current, previous) = (u64::from(state.current), u64::from(state.previous));
        if state.period != self.period {
            return match now.as_micros() {
                now if now < state.current_ends_at() => seen(current, previous),
                now if now < state.expires_at() => seen(0, current),
                _ => seen(0, 0),
            };
        }
        match state.index {
            index if index == present.wrapping_add(1) => {
                SlidingWindowView { index, current, previous, elapsed: 0 }
            }
            index if index >= present => seen(current, previous),
            index if index.wrapping_add(1) == present => seen(0, current),
            _ => seen(0, 0),
        }
    }

    pub(crate) fn refund(&self, view: SlidingWindowView, units: u32) -> SlidingWindowView {
        SlidingWindowView { current: view.current.saturating_sub(u64::from(units)), ..view }
    }

    pub(crate) fn store(&self, view: SlidingWindowView) -> StoredState {
        StoredState::SlidingWindow(SlidingWindowState {
            period: self.period,
            index: view.index,
            current: saturate(view.current),
            previous: saturate(view.previous),
        })
    }

    /// Units used, in 1/U.
    fn used(&self, view: SlidingWindowView) -> u64 {
        view.previous * (self.units - view.elapsed) + view.current * self.units
    }

    fn room_weight(&self) -> u64 {
        u64::from(self.limit) * self.units
    }

    /// The least unit of time at which `fading` units, and no other, weigh at most `slack`.
    fn faded_to(&self, fading: u64, slack: u64) -> Option<u64> {
        let weight = (slack * self.units).checked_div(fading)?;
        let at = self.units.saturating_sub(weight) * self.unit;
        (at < self.period).then_some(at)
    }

    /// When a denied request fits, in microseconds since the epoch: in this window, where the past one fades, or in
    /// the next, where the current one has become the past one and fades.
    fn fits_at(&self, view: SlidingWindowView, cost: u64) -> u64 {
        let limit = u64::from(self.limit);
        let start = view.index * self.period;
        if let Some(slack) = limit.checked_sub(view.current + cost)
            && let Some(at) = self.faded_to(view.previous, slack)
        {
            return start + at;
        }
        let next = start + self.period;
        if view.current == 0 {
            return next;
        }
        self.faded_to(view.current, limit.saturating_sub(cost)).map_or(next + self.period, |at| next + at)
    }
}

impl SlidingWindowState {
    /// When the current window ends, in microseconds since the Unix epoch.
    fn current_ends_at(&self) -> u64 {
        self.index.saturating_add(1).saturating_mul(self.period)
    }

    /// When nothing counts any more, in microseconds since the Unix epoch.
    pub(crate) fn expires_at(&self) -> u64 {
        let windows = match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 2,
        };
        self.index.saturating_add(windows).saturating_mul(self.period)
    }
}

impl Algorithm for SlidingWindow {
    type View = SlidingWindowView;

    fn room(&self, view: SlidingWindowView, request: &Request, times: u32) -> u32 {
        let left = self.room_weight().saturating_sub(self.used(view)) / self.units;
        requests_in(left, request.cost, times)
    }

    fn charge(&self, view: SlidingWindowView, units: u64) -> SlidingWindowView {
        SlidingWindowView { current: view.current + units, ..view }
    }

    fn verdict(&self, view: SlidingWindowView, request: &Request) -> Verdict {
        let cost = u64::from(request.cost);
        if cost == 0 || self.used(view) + cost * self.units <= self.room_weight() {
            return Verdict::allowed_after(0);
        }
        Verdict::denied_for(self.fits_at(view, cost) - request.now.as_micros())
    }

    fn report(&self, view: SlidingWindowView, now: Timestamp) -> Report {
        let windows = match (view.current, view.previous) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 2,
        };
        let ends = if windows > 0 { (view.index + windows) * self.period - now.as_micros() } else { 0 };
        let left = self.room_weight().saturating_sub(self.used(view));
        Report { remaining: saturate(left / self.units), reset_after: ends }
    }
}
