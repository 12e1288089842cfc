//! The future of a check.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::RateLimiter;
use crate::{Decision, Store, StoreUnavailableError};

pin_project! {
    /// When polled, what the store answers at once, if it does, else the future of `later`. Polled again after it has
    /// answered, it never does.
    ///
    /// By hand, because an `async fn` answers through memory, and each copy there takes a good part of the time that
    /// deciding in memory does; this is inlined into whoever awaits it.
    pub(super) struct Check<'l, 'k, S, L, F> {
        pub(super) limiter: &'l RateLimiter<S>,
        pub(super) key: &'k str,
        pub(super) cost: u32,
        pub(super) later: Option<L>,
        #[pin]
        pub(super) call: Option<F>,
    }
}

impl<S, L, F> Future for Check<'_, '_, S, L, F>
where
    S: Store,
    L: FnOnce() -> F,
    F: Future<Output = Result<Decision, StoreUnavailableError>>,
{
    type Output = F::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(later) = this.later.take() {
            if let Some(decision) = this.limiter.decide_now(&this.limiter.consume(this.key, *this.cost)) {
                return Poll::Ready(Ok(decision));
            }
            this.call.set(Some(later()));
        }
        poll_later(this.call, context)
    }
}

/// Out of line, so that whoever awaits a check has only the code for what is answered at once.
#[inline(never)]
fn poll_later<F: Future>(call: Pin<&mut Option<F>>, context: &mut Context<'_>) -> Poll<F::Output> {
    match call.as_pin_mut() {
        Some(call) => call.poll(context),
        None => Poll::Pending,
    }
}
