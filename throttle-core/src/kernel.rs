//! The decision kernels: pure functions from a stored state, a time and a request to the next state. They define
//! what every store answers; scripts and SQL are translations of this module. Integers only.

mod bucket;
mod codec;
mod decide;
mod explain;
mod fixed_window;
mod share;
mod sliding_log;
mod sliding_window;
mod state;

pub use self::bucket::{Bucket, BucketState, Span};
pub use self::decide::decide;
pub(crate) use self::explain::explain;
pub use self::fixed_window::{FixedWindow, FixedWindowState};
pub use self::sliding_log::{LogEntry, LogSummary, SlidingLog, SlidingLogState};
pub use self::sliding_window::{SlidingWindow, SlidingWindowState};
pub use self::state::{PolicyState, RuleState, StoredState};

use crate::Timestamp;

/// The numbers a [`Rule`](crate::Rule) computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kernel {
    /// Token bucket, leaky bucket and GCRA.
    Bucket(Bucket),
    /// Fixed window.
    FixedWindow(FixedWindow),
    /// Sliding window of two counters.
    SlidingWindow(SlidingWindow),
    /// Sliding window log.
    SlidingLog(SlidingLog),
}

/// A bucket whose numbers fit 64 bits: nearly every rule.
pub(crate) type NarrowBucket = bucket::Exact<u64>;

impl Kernel {
    /// The bucket, if it is a narrow one.
    #[inline(always)]
    pub(crate) fn narrow_bucket(&self) -> Option<NarrowBucket> {
        match self {
            Self::Bucket(bucket) if bucket.is_narrow() => Some(bucket.exact()),
            _ => None,
        }
    }
}

/// What is asked of one rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) now: Timestamp,
    pub(crate) cost: u32,
    pub(crate) max_wait_micros: u64,
}

/// One rule's own answer to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    /// Its delay if it was allowed, the time to retry if not; in microseconds.
    pub(crate) wait: u64,
}

impl Verdict {
    #[inline]
    pub(crate) const fn allowed_after(delay: u64) -> Self {
        Self { allowed: true, wait: delay }
    }

    #[inline]
    pub(crate) const fn denied_for(retry_after: u64) -> Self {
        Self { allowed: false, wait: retry_after }
    }
}

/// Where a rule stands after a request: units left, and microseconds until it is as good as new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) remaining: u32,
    pub(crate) reset_after: u64,
}

/// What the algorithms have in common: a state, once seen at a moment, is a small value that requests move.
pub(crate) trait Algorithm {
    /// The state as seen at one moment.
    type View: Copy;

    /// How many requests of this kind fit one after the other, at most `times`.
    fn room(&self, view: Self::View, request: &Request, times: u32) -> u32;

    /// The view with `units` more used.
    fn charge(&self, view: Self::View, units: u64) -> Self::View;

    /// The rule's answer to one request.
    fn verdict(&self, view: Self::View, request: &Request) -> Verdict;

    /// How long a request that was granted waits, in microseconds, from the view after it.
    #[inline]
    fn delay(&self, _after: Self::View) -> u64 {
        0
    }

    /// Where the rule stands.
    fn report(&self, view: Self::View, now: Timestamp) -> Report;
}

/// `count` requests of `cost` fit into `room` units.
#[inline]
pub(crate) fn requests_in(room: u64, cost: u32, times: u32) -> u32 {
    match room.checked_div(u64::from(cost)) {
        None => times,
        Some(fit) => u32::try_from(fit).map_or(times, |fit| if fit < times { fit } else { times }),
    }
}

#[inline]
pub(crate) fn saturate(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
