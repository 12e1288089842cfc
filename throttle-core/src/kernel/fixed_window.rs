//! Fixed window: a counter per period `[i·P, (i+1)·P)` on the epoch.

use super::{Algorithm, Report, Request, StoredState, Verdict, requests_in, saturate};
use crate::{Quota, Timestamp};

/// A fixed window's numbers: limit `n` per period `P`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u32,
    period: u64,
}

/// The stored state: how many units window `index` of `period` has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FixedWindowState {
    /// The period in microseconds that the index counts in.
    pub period: u64,
    /// Which window.
    pub index: u64,
    /// Units used in it.
    pub count: u32,
}

/// The window that counts at one moment, and its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FixedWindowView {
    index: u64,
    count: u64,
}

impl FixedWindow {
    pub(crate) const fn new(quota: Quota) -> Self {
        Self { limit: quota.limit(), period: quota.period_micros() }
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

    /// The stored window if time has stepped back by less than a period, else the present one. A count of another
    /// period moves to the present window for as long as it would have lived.
    pub(crate) fn view(&self, state: Option<&FixedWindowState>, now: Timestamp) -> FixedWindowView {
        let present = now.as_micros() / self.period;
        let Some(state) = state else { return FixedWindowView { index: present, count: 0 } };
        let count = u64::from(state.count);
        if state.period != self.period {
            let alive = state.expires_at() > now.as_micros();
            return FixedWindowView { index: present, count: if alive { count } else { 0 } };
        }
        match state.index {
            index if index == present.wrapping_add(1) => FixedWindowView { index, count },
            index if index >= present => FixedWindowView { index: present, count },
            _ => FixedWindowView { index: present, count: 0 },
        }
    }

    pub(crate) fn refund(&self, view: FixedWindowView, units: u32) -> FixedWindowView {
        FixedWindowView { count: view.count.saturating_sub(u64::from(units)), ..view }
    }

    pub(crate) fn store(&self, view: FixedWindowView) -> StoredState {
        StoredState::FixedWindow(FixedWindowState {
            period: self.period,
            index: view.index,
            count: saturate(view.count),
        })
    }

    fn until_end(&self, view: FixedWindowView, now: Timestamp) -> u64 {
        (view.index + 1) * self.period - now.as_micros()
    }
}

impl FixedWindowState {
    /// When nothing counts any more, in microseconds since the Unix epoch.
    pub(crate) fn expires_at(&self) -> u64 {
        let windows = u64::from(self.count > 0);
        self.index.saturating_add(windows).saturating_mul(self.period)
    }
}

impl Algorithm for FixedWindow {
    type View = FixedWindowView;

    fn room(&self, view: FixedWindowView, request: &Request, times: u32) -> u32 {
        requests_in(u64::from(self.limit).saturating_sub(view.count), request.cost, times)
    }

    fn charge(&self, view: FixedWindowView, units: u64) -> FixedWindowView {
        FixedWindowView { count: view.count + units, ..view }
    }

    fn verdict(&self, view: FixedWindowView, request: &Request) -> Verdict {
        if request.cost == 0 || view.count + u64::from(request.cost) <= u64::from(self.limit) {
            return Verdict::allowed_after(0);
        }
        Verdict::denied_for(self.until_end(view, request.now))
    }

    fn report(&self, view: FixedWindowView, now: Timestamp) -> Report {
        Report {
            remaining: saturate(u64::from(self.limit).saturating_sub(view.count)),
            reset_after: if view.count > 0 { self.until_end(view, now) } else { 0 },
        }
    }
}
