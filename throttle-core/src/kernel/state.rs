//! What stores keep for a key, and what they report of it.

use std::time::Duration;

use super::{
    BucketState, FixedWindow, FixedWindowState, Kernel, LogSummary, Request, SlidingLogState, SlidingWindow,
    SlidingWindowState,
};
use crate::{Action, Policy, Timestamp};

/// What a store keeps of one rule for one key.
///
/// A state that owes nothing is kept all the same until it expires: a clock that steps back must find how far it
/// has been.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StoredState {
    /// Nothing was ever stored.
    #[default]
    Fresh,
    /// Of a [`Bucket`](super::Bucket).
    Bucket(BucketState),
    /// Of a [`FixedWindow`].
    FixedWindow(FixedWindowState),
    /// Of a [`SlidingWindow`].
    SlidingWindow(SlidingWindowState),
    /// Of a [`SlidingLog`](super::SlidingLog).
    SlidingLog(Box<SlidingLogState>),
}

/// What a store reports of one rule for one key: the stored state, a log in summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RuleState {
    /// Nothing was stored.
    #[default]
    Fresh,
    /// Of a [`Bucket`](super::Bucket).
    Bucket(BucketState),
    /// Of a [`FixedWindow`].
    FixedWindow(FixedWindowState),
    /// Of a [`SlidingWindow`].
    SlidingWindow(SlidingWindowState),
    /// Of a [`SlidingLog`](super::SlidingLog).
    SlidingLog(LogSummary),
}

impl StoredState {
    /// When nothing of it counts any more. [`Timestamp::EPOCH`] for [`StoredState::Fresh`].
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        Timestamp::saturating_from_micros(match self {
            Self::Fresh => 0,
            Self::Bucket(state) => state.tat_micros.saturating_add(u64::from(state.fraction > 0)),
            Self::FixedWindow(state) => state.expires_at(),
            Self::SlidingWindow(state) => state.expires_at(),
            Self::SlidingLog(log) => log.expires_at(),
        })
    }

    /// What is reported: seen by `kernel` with `granted` requests still to be charged. The state of another
    /// algorithm counts as none.
    #[inline]
    pub(crate) fn report(&self, kernel: &Kernel, request: &Request, granted: u32) -> RuleState {
        let Kernel::SlidingLog(kernel) = kernel else { return self.without_log() };
        RuleState::SlidingLog(match self {
            Self::SlidingLog(log) => kernel.summarize(log, request, granted),
            _ => kernel.summarize(&SlidingLogState::new(kernel.period_micros()), request, granted),
        })
    }
}

impl StoredState {
    /// What is reported of all but a log.
    #[inline]
    pub(crate) fn without_log(&self) -> RuleState {
        match self {
            Self::Bucket(state) => RuleState::Bucket(*state),
            Self::FixedWindow(state) => RuleState::FixedWindow(*state),
            Self::SlidingWindow(state) => RuleState::SlidingWindow(*state),
            Self::Fresh | Self::SlidingLog(_) => RuleState::Fresh,
        }
    }
}

impl RuleState {
    #[inline]
    pub(crate) const fn bucket(&self) -> Option<&BucketState> {
        if let Self::Bucket(state) = self { Some(state) } else { None }
    }

    pub(crate) fn fixed_window(
        &self,
        kernel: &FixedWindow,
        now: Timestamp,
    ) -> <FixedWindow as super::Algorithm>::View {
        kernel.view(if let Self::FixedWindow(state) = self { Some(state) } else { None }, now)
    }

    pub(crate) fn sliding_window(
        &self,
        kernel: &SlidingWindow,
        now: Timestamp,
    ) -> <SlidingWindow as super::Algorithm>::View {
        kernel.view(if let Self::SlidingWindow(state) = self { Some(state) } else { None }, now)
    }

    pub(crate) fn sliding_log(&self) -> LogSummary {
        match self {
            Self::SlidingLog(summary) => *summary,
            _ => LogSummary { used: 0, newest: 0, fits_at: None },
        }
    }
}

/// What a store keeps for one key: one [`StoredState`] per rule of its policy, by position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyState(States);

/// Inline if there is one rule: nearly always.
#[derive(Debug, Clone, PartialEq, Eq)]
enum States {
    One(StoredState),
    Many(Box<[StoredState]>),
}

impl PolicyState {
    /// The state of a key that has used nothing.
    #[inline]
    #[must_use]
    pub fn fresh(policy: &Policy) -> Self {
        match policy.rules() {
            [_] => Self(States::One(StoredState::Fresh)),
            rules => Self(States::Many(rules.iter().map(|_| StoredState::Fresh).collect())),
        }
    }

    /// The state of rules in these states.
    #[must_use]
    pub fn new(states: Vec<StoredState>) -> Self {
        match <[StoredState; 1]>::try_from(states) {
            Ok([state]) => Self(States::One(state)),
            Err(states) => Self(States::Many(states.into_boxed_slice())),
        }
    }

    /// The states, one per rule.
    #[inline]
    #[must_use]
    pub fn states(&self) -> &[StoredState] {
        match &self.0 {
            States::One(state) => std::slice::from_ref(state),
            States::Many(states) => states,
        }
    }

    #[inline]
    pub(crate) fn states_mut(&mut self) -> &mut [StoredState] {
        match &mut self.0 {
            States::One(state) => std::slice::from_mut(state),
            States::Many(states) => states,
        }
    }

    /// When the key is as good as new.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.states().iter().map(StoredState::expires_at).max().unwrap_or(Timestamp::EPOCH)
    }

    /// How long a store keeps what `action` left at `now`: until it expires, and a margin.
    #[must_use]
    pub fn time_to_live(&self, action: &Action<'_>, now: Timestamp) -> Duration {
        self.expires_at().saturating_since(now) + action.expiry_margin()
    }

    /// Whether nothing was ever stored.
    #[must_use]
    #[inline]
    pub fn is_fresh(&self) -> bool {
        self.states().iter().all(|state| *state == StoredState::Fresh)
    }

    /// As many states as the policy has rules now: a rule that was added is fresh, one that was removed is gone.
    pub(crate) fn fitted(&self, policy: &Policy) -> Self {
        let mut fitted = Self::fresh(policy);
        for (to, from) in fitted.states_mut().iter_mut().zip(self.states()) {
            to.clone_from(from);
        }
        fitted
    }
}
