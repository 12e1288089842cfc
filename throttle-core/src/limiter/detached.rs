//! Calls that are seen through although their caller has gone, so that what they were granted is given back.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::answer::Answer;
use super::{RateLimiter, Taker};
use crate::background::{SeenThrough, finish};
use crate::observe::Call;
use crate::{Action, Store};

/// Units that go back to their key unless they are [kept](Self::keep).
///
/// Dropped, it refunds at once if the store needs no waiting (memory), else on the tokio runtime that is current, or was
/// when they were taken. With neither, the units stay used until time brings them back.
pub(super) struct Held<S: Store> {
    limiter: RateLimiter<S>,
    key: Arc<str>,
    units: u32,
    /// Who took them.
    taker: Option<Taker>,
    runtime: Option<Handle>,
}

impl<S: Store> Held<S> {
    /// `cost` units that `taker` took; none if nobody did.
    fn new(limiter: &RateLimiter<S>, key: Arc<str>, cost: u32, taker: Option<Taker>) -> Self {
        let units = taker.map_or(0, |_| cost);
        Self { limiter: limiter.clone(), key, units, taker, runtime: Handle::try_current().ok() }
    }

    pub(super) fn limiter(&self) -> &RateLimiter<S> {
        &self.limiter
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) const fn units(&self) -> u32 {
        self.units
    }

    /// Who took them, if anybody did.
    pub(super) const fn taker(&self) -> Option<Taker> {
        self.taker
    }

    /// The units are used: nothing goes back.
    pub(super) fn keep(&mut self) {
        self.units = 0;
    }
}

impl<S: Store> Drop for Held<S> {
    fn drop(&mut self) {
        if self.units == 0 {
            return;
        }
        let (limiter, key, units, taker) =
            (self.limiter.clone(), Arc::clone(&self.key), self.units, self.taker);
        // Nobody is left to tell if it fails; the units come back with time.
        let give_back = async move { limiter.give_back(&key, units, taker).await };
        finish(give_back, self.runtime.take());
    }
}

/// Asks for `cost` units, for up to `max_wait` later through the queue. If the caller goes away before the answer is
/// here, the call is still seen through, and what it was granted goes back.
pub(super) async fn ask_held<S: Store>(
    limiter: &RateLimiter<S>,
    call: Call,
    key: &Arc<str>,
    cost: u32,
    max_wait: Duration,
) -> (Answer, Held<S>) {
    let (limiter, key) = (limiter.clone(), Arc::clone(key));
    SeenThrough::new(async move {
        let action = Action::consume(limiter.policy(), &key).with_cost(cost).with_max_wait(max_wait);
        let answer = limiter.answer(call, &action.at(limiter.now()), None).await;
        let taker = answer.outcome.as_ref().ok().and_then(|taken| taken.taker);
        let held = Held::new(&limiter, Arc::clone(&key), cost, taker);
        (answer, held)
    })
    .await
}
