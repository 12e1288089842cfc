//! Reservations: take an estimate now, settle when the cost is known.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::course::Course;
use super::detached::{Held, ask_held};
use super::{RateLimiter, Taken, Taker};
use crate::observe::Call;
use crate::{Action, Decision, Limited, Store, StoreUnavailableError};

impl<S: Store> RateLimiter<S> {
    /// Takes an `estimate` of units now, to be settled by [`Reservation::commit`] when the cost is known.
    ///
    /// **Cancellation.** A call dropped before it returns gives back what it was granted, as a dropped
    /// [`Reservation`] does.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub async fn reserve(&self, key: &str, estimate: u32) -> Result<Reserve<S>, StoreUnavailableError> {
        let mut course = Course::begin(self, Call::Reserve, key, estimate);
        let (answer, held) = ask_held(self, Call::Reserve, &Arc::from(key), estimate, Duration::ZERO).await;
        let taken = course.note(answer);
        let Taken { decision, .. } = course.end(taken)?;
        Ok(match decision.is_allowed() {
            true => Reserve::Held(Reservation { decision, held }),
            false => Reserve::Denied(decision),
        })
    }
}

/// The answer to [`RateLimiter::reserve`].
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given back"]
pub enum Reserve<S: Store> {
    /// The estimate was taken.
    Held(Reservation<S>),
    /// There was not enough.
    Denied(Decision),
}

impl<S: Store> Reserve<S> {
    /// For those who want `?`.
    ///
    /// # Errors
    ///
    /// [`Limited`] if there was not enough.
    pub fn into_result(self) -> Result<Reservation<S>, Limited> {
        match self {
            Self::Held(reservation) => Ok(reservation),
            Self::Denied(decision) => Err(Limited::of(decision)),
        }
    }
}

/// Units taken on an estimate: none, if a failure policy, a list or shadow mode admitted it. Dropped without being
/// settled, it gives all of them back to whoever took them, the store or the [fallback](crate::FailurePolicy::Fallback),
/// and to nobody else: at once on memory, else on the tokio runtime that is current or was when they were taken. Without
/// one, or while that store does not answer, they come back with time.
#[must_use = "a reservation that is dropped is given back"]
pub struct Reservation<S: Store> {
    decision: Decision,
    held: Held<S>,
}

impl<S: Store> Reservation<S> {
    /// The decision that took the estimate.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Units held.
    #[must_use]
    pub const fn units(&self) -> u32 {
        self.held.units()
    }

    /// Settles: gives back what was held above `actual`, or charges what is missing. What is missing is charged as far
    /// as the key has units left, its queue included; the decision is a denial if that was not far enough. A key never
    /// goes further into debt than its policy allows.
    ///
    /// What the store took is not given back to a fallback: while the store is out of service, it comes back with time,
    /// and the decision says where the key stands at the fallback. What is missing is charged there.
    ///
    /// **Cancellation.** Dropped, the estimate may stay charged in place of the actual cost.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer. The estimate is charged then; whether the difference is
    /// settled, its [effect](StoreUnavailableError::effect) says. [`RateLimiter::refund`] can still give units back.
    pub async fn commit(mut self, actual: u32) -> Result<Decision, StoreUnavailableError> {
        let estimate = self.held.units();
        self.held.keep();
        let (limiter, key) = (self.held.limiter(), self.held.key());
        let mut course = Course::begin(limiter, Call::Settle, key, actual);
        let settled = limiter.settle(&mut course, key, estimate, actual, self.held.taker()).await;
        Ok(course.end(settled)?.decision)
    }

    /// Gives all of it back, and says where the key stands then.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer, as for [`commit`](Self::commit).
    pub async fn release(self) -> Result<Decision, StoreUnavailableError> {
        self.commit(0).await
    }
}

impl<S: Store> RateLimiter<S> {
    /// Settles with whoever took the estimate.
    async fn settle(
        &self,
        course: &mut Course<'_, S>,
        key: &str,
        estimate: u32,
        actual: u32,
        taker: Option<Taker>,
    ) -> Result<Taken, StoreUnavailableError> {
        let policy = self.policy();
        let action = match actual.cmp(&estimate) {
            Ordering::Less => Action::refund(policy, key).with_cost(estimate - actual),
            Ordering::Equal => Action::peek(policy, key).with_cost(0),
            Ordering::Greater => return self.charge(course, key, actual - estimate, taker).await,
        };
        course.note(self.answer(Call::Settle, &action.at(self.now()), taker).await)
    }

    /// Charges `units` that were used already, as far as there are any.
    async fn charge(
        &self,
        course: &mut Course<'_, S>,
        key: &str,
        mut units: u32,
        taker: Option<Taker>,
    ) -> Result<Taken, StoreUnavailableError> {
        loop {
            let action = Action::consume(self.policy(), key).with_times(units).with_max_wait(Duration::MAX);
            let taken = course.note(self.answer(Call::Settle, &action.at(self.now()), taker).await)?;
            units = units.saturating_sub(taken.units);
            if taken.units < action.times() || units == 0 {
                return Ok(taken);
            }
        }
    }
}

impl<S: Store> fmt::Debug for Reservation<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("units", &self.units()).field("decision", &self.decision).finish()
    }
}
