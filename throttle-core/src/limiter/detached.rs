//! Calls that are seen through although their caller has gone, so that what they were granted is given back.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;

use super::RateLimiter;
use super::answer::Answer;
use crate::observe::Call;
use crate::{Action, Source, Store};

/// Units that go back to their key unless they are [kept](Self::keep).
///
/// Dropped, it refunds at once if the store needs no waiting (memory), else on the tokio runtime that is current, or was
/// when they were taken. With neither, the units stay used until time brings them back.
pub(super) struct Held<S: Store> {
    limiter: RateLimiter<S>,
    key: Arc<str>,
    units: u32,
    /// Who took them.
    whom: Source,
    runtime: Option<Handle>,
}

impl<S: Store> Held<S> {
    pub(super) fn new(limiter: &RateLimiter<S>, key: Arc<str>, units: u32, whom: Source) -> Self {
        Self { limiter: limiter.clone(), key, units, whom, runtime: Handle::try_current().ok() }
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

    /// Who took them: the store, or the fallback.
    pub(super) const fn whom(&self) -> Source {
        self.whom
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
        let (limiter, key, units, whom) =
            (self.limiter.clone(), Arc::clone(&self.key), self.units, self.whom);
        // Nobody is left to tell if it fails; the units come back with time.
        let give_back = async move { limiter.give_back(&key, units, whom).await };
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
        let answer = limiter.answer(call, &action.at(limiter.now()), Source::Store).await;
        let whom = answer.taken_from();
        let units = if whom.is_some() { cost } else { 0 };
        let held = Held::new(&limiter, Arc::clone(&key), units, whom.unwrap_or(Source::Store));
        (answer, held)
    })
    .await
}

/// A future that goes on in the background when it is dropped half-way.
struct SeenThrough<T>(Option<Pin<Box<dyn Future<Output = T> + Send>>>)
where
    T: Send + 'static;

impl<T: Send + 'static> SeenThrough<T> {
    fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<T: Send + 'static> Future for SeenThrough<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Taken out, so that a future that panics is gone, and not polled again when this is dropped.
        let Some(mut future) = self.0.take() else { return Poll::Pending };
        let answer = future.as_mut().poll(context);
        if answer.is_pending() {
            self.0 = Some(future);
        }
        answer
    }
}

impl<T: Send + 'static> Drop for SeenThrough<T> {
    fn drop(&mut self) {
        if let Some(future) = self.0.take() {
            finish(async move { drop(future.await) }, None);
        }
    }
}

/// Runs `future` to its end: here if it needs no waiting, else on the current tokio runtime or the one given. Called
/// from destructors, so a panic of a backend ends here.
fn finish(future: impl Future<Output = ()> + Send + 'static, runtime: Option<Handle>) {
    let runtime = Handle::try_current().ok().or(runtime);
    let _entered = runtime.as_ref().map(Handle::enter);
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
    if let (Ok(Poll::Pending), Some(runtime)) = (polled, &runtime) {
        runtime.spawn(future);
    }
}
