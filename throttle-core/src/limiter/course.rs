//! One call of a limiter from its start to its end: shadow mode, counts, observers.

use std::time::Duration;

use super::answer::Answer;
use super::options::Options;
use super::{RateLimiter, Taken};
use crate::observe::{Call, DecisionEvent, UnavailableEvent};
use crate::{Store, StoreUnavailableError, Timestamp};

/// A call under way. A plain limiter's has nothing to do.
pub(super) struct Course<'c, S> {
    limiter: &'c RateLimiter<S>,
    /// None for a plain limiter.
    options: Option<&'c Options>,
    call: Call,
    key: &'c str,
    cost: u32,
    began: Timestamp,
    store_time: Option<Duration>,
    failure: Option<Failure>,
}

/// How the store failed this call.
pub(super) struct Failure {
    pub(super) error: StoreUnavailableError,
    /// Whether the store was asked.
    pub(super) was_asked: bool,
}

impl<'c, S: Store> Course<'c, S> {
    pub(super) fn begin(limiter: &'c RateLimiter<S>, call: Call, key: &'c str, cost: u32) -> Self {
        let options = limiter.attended().map(|options| &**options);
        let began = match options {
            Some(options) if options.is_observed() => limiter.moment(),
            _ => Timestamp::EPOCH,
        };
        Self { limiter, options, call, key, cost, began, store_time: None, failure: None }
    }

    /// What was asked for, and what is remembered of how it was answered.
    pub(super) fn note<T>(&mut self, answer: Answer<T>) -> Result<T, StoreUnavailableError> {
        if let Some(time) = answer.store_time {
            self.store_time = Some(self.store_time.unwrap_or_default() + time);
        }
        self.failure = answer.failure.or_else(|| self.failure.take());
        answer.outcome
    }

    /// Whether nobody is to be denied, or to wait.
    pub(super) fn is_shadow(&self) -> bool {
        self.options.is_some_and(|options| options.shadow)
    }

    /// What the caller is told, after those who watch.
    pub(super) fn end(
        self,
        outcome: Result<Taken, StoreUnavailableError>,
    ) -> Result<Taken, StoreUnavailableError> {
        let Some(options) = self.options else { return outcome };
        let outcome = outcome.map(|taken| if options.shadow { taken.in_shadow(self.cost) } else { taken });
        if let Ok(taken) = &outcome {
            options.count(&taken.decision);
        }
        if options.is_observed() {
            self.tell_failure(options, outcome.is_err());
            if let Ok(taken) = &outcome {
                self.tell_decision(options, taken);
            }
        }
        outcome
    }

    /// The same for a call without a decision.
    pub(super) fn end_forgetting<T>(
        self,
        outcome: Result<T, StoreUnavailableError>,
    ) -> Result<T, StoreUnavailableError> {
        if let Some(options) = self.options {
            self.tell_failure(options, outcome.is_err());
        }
        outcome
    }

    fn tell_failure(&self, options: &Options, is_propagated: bool) {
        let Some(Failure { error, was_asked }) = &self.failure else { return };
        let (policy, call) = (self.limiter.policy(), self.call);
        let (was_asked, store_time) = (*was_asked, self.store_time);
        let event = UnavailableEvent { policy, call, error, was_asked, is_propagated, store_time };
        options.tell(|observer| observer.on_unavailable(&event));
    }

    fn tell_decision(&self, options: &Options, taken: &Taken) {
        let event = DecisionEvent {
            policy: self.limiter.policy(),
            backend: self.limiter.store().backend_name(),
            call: self.call,
            key: self.key,
            cost: self.cost,
            decision: &taken.decision,
            elapsed: self.limiter.moment().saturating_since(self.began),
            store_time: self.store_time,
        };
        options.tell(|observer| observer.on_decision(&event));
    }
}
