//! Sliding window log: every request of the last period, by time. Exact; memory O(min(n, requests per period)).

use std::collections::VecDeque;
use std::num::NonZeroU64;

use super::{Algorithm, Report, Request, Verdict, requests_in, saturate};
use crate::{Quota, SetupError, Timestamp, rule::MAX_LOG_LIMIT};

/// A sliding log's numbers: limit `n` per period `P`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u32,
    period: u64,
}

/// The stored state: entries, oldest first, and the period that says how long they live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlidingLogState {
    period: u64,
    /// Oldest first, no two of the same time.
    entries: VecDeque<LogEntry>,
    /// Sum of the entries' costs, so that a decision need not add them up.
    total: u64,
}

/// Units used at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogEntry {
    /// When, in microseconds since the Unix epoch.
    pub time: u64,
    /// How many units.
    pub cost: u32,
}

/// What a decision needs to know of a log. Stores report this in place of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogSummary {
    /// Units used in the last period.
    pub used: u32,
    /// Time of the newest entry, in microseconds since the Unix epoch; meaningless if none is used.
    pub newest: u64,
    /// When the first request that was not granted would fit, in microseconds since the Unix epoch, if this rule
    /// denies it.
    pub fits_at: Option<NonZeroU64>,
}

impl SlidingLog {
    pub(crate) fn new(quota: Quota) -> Result<Self, SetupError> {
        match quota.limit() {
            limit if limit > MAX_LOG_LIMIT => Err(SetupError::LogTooLong { limit }),
            limit => Ok(Self { limit, period: quota.period_micros() }),
        }
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

    /// What counts at `now`, before `granted` requests are charged; `fits_at` is of the request after them.
    pub(crate) fn summarize(&self, log: &SlidingLogState, request: &Request, granted: u32) -> LogSummary {
        let now = request.now.as_micros();
        let gone = log.entries.iter().take_while(|entry| !self.counts(entry.time, request.now));
        let (dead, gone) =
            gone.fold((0, 0), |(dead, units), entry| (dead + 1, units + u64::from(entry.cost)));
        let used = log.total - gone;
        let after = used + (u64::from(granted) + 1) * u64::from(request.cost);
        let excess = after.saturating_sub(u64::from(self.limit));
        let fits_at = (request.cost > 0 && excess > 0).then(|| {
            let mut freed = 0;
            let frees = |entry: &&LogEntry| {
                freed += u64::from(entry.cost);
                freed >= excess
            };
            let oldest = log.entries.iter().skip(dead).find(frees).map_or(now, |entry| entry.time);
            (if oldest < now { oldest } else { now }) + self.period
        });
        LogSummary {
            used: saturate(used),
            newest: log.entries.back().map_or(0, |entry| entry.time),
            fits_at: fits_at.and_then(NonZeroU64::new),
        }
    }

    /// Adds `units` at `now`. What no longer counts goes, and what is later than `now` becomes now.
    pub(crate) fn append(&self, log: &mut SlidingLogState, now: Timestamp, units: u64) {
        log.period = self.period;
        while log.entries.front().is_some_and(|entry| !self.counts(entry.time, now)) {
            log.pop_front();
        }
        let mut at_now = units;
        while let Some(entry) = log.entries.pop_back_if(|entry| entry.time >= now.as_micros()) {
            log.total -= u64::from(entry.cost);
            at_now += u64::from(entry.cost);
        }
        if at_now > 0 {
            log.push(LogEntry { time: now.as_micros(), cost: saturate(at_now) });
        }
    }

    /// Takes back `units`, the newest first.
    pub(crate) fn take_back(&self, log: &mut SlidingLogState, now: Timestamp, units: u32) {
        self.append(log, now, 0);
        let mut owed = units;
        while let Some(newest) = log.entries.pop_back() {
            log.total -= u64::from(newest.cost);
            if newest.cost > owed {
                log.push(LogEntry { cost: newest.cost - owed, ..newest });
                return;
            }
            owed -= newest.cost;
        }
    }

    fn counts(&self, time: u64, now: Timestamp) -> bool {
        time.saturating_add(self.period) > now.as_micros()
    }
}

impl SlidingLogState {
    /// A log of nothing, of a rule with this period in microseconds.
    #[must_use]
    pub fn new(period: u64) -> Self {
        Self { period, entries: VecDeque::new(), total: 0 }
    }

    /// Adds an entry that is newer than all others.
    pub fn push(&mut self, entry: LogEntry) {
        self.total += u64::from(entry.cost);
        self.entries.push_back(entry);
    }

    /// The period in microseconds of the rule that stored it.
    #[must_use]
    pub fn period(&self) -> u64 {
        self.period
    }

    /// The entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &VecDeque<LogEntry> {
        &self.entries
    }

    /// When nothing counts any more, in microseconds since the Unix epoch.
    pub(crate) fn expires_at(&self) -> u64 {
        self.entries.back().map_or(0, |newest| newest.time.saturating_add(self.period))
    }

    fn pop_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.total -= u64::from(entry.cost);
        }
    }
}

impl Algorithm for SlidingLog {
    type View = LogSummary;

    fn room(&self, view: LogSummary, request: &Request, times: u32) -> u32 {
        requests_in(u64::from(self.limit.saturating_sub(view.used)), request.cost, times)
    }

    fn charge(&self, view: LogSummary, units: u64) -> LogSummary {
        match units {
            0 => view,
            _ => LogSummary { used: saturate(u64::from(view.used) + units), newest: u64::MAX, ..view },
        }
    }

    fn verdict(&self, view: LogSummary, request: &Request) -> Verdict {
        let after = u64::from(view.used) + u64::from(request.cost);
        if request.cost == 0 || after <= u64::from(self.limit) {
            return Verdict::allowed_after(0);
        }
        let now = request.now.as_micros();
        Verdict::denied_for(view.fits_at.map_or(self.period, |at| at.get().saturating_sub(now)))
    }

    fn report(&self, view: LogSummary, now: Timestamp) -> Report {
        let age = now.as_micros().saturating_sub(view.newest);
        Report {
            remaining: self.limit.saturating_sub(view.used),
            reset_after: if view.used > 0 { self.period.saturating_sub(age) } else { 0 },
        }
    }
}
