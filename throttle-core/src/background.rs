//! Work that outlives its caller: seen through when it is dropped half-way, or done when something is dropped.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

/// A future that goes on in the background when it is dropped half-way. One that was never polled does nothing.
pub(crate) struct SeenThrough<T: Send + 'static> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    is_begun: bool,
}

impl<T: Send + 'static> SeenThrough<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Some(Box::pin(future)), is_begun: false }
    }
}

impl<T: Send + 'static> Future for SeenThrough<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Taken out, so that a future that panics is gone, and not polled again when this is dropped.
        let Some(mut future) = self.future.take() else { return Poll::Pending };
        self.is_begun = true;
        let answer = future.as_mut().poll(context);
        if answer.is_pending() {
            self.future = Some(future);
        }
        answer
    }
}

impl<T: Send + 'static> Drop for SeenThrough<T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take().filter(|_| self.is_begun) {
            finish(async move { drop(future.await) }, None);
        }
    }
}

/// Runs what users gave, and whose panic must change nothing; whether it panicked.
pub(crate) fn contained(run: impl FnOnce()) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(run)) else { return false };
    // What was thrown may panic when it is dropped.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
    true
}

/// Runs `future` to its end: here if it needs no waiting, else on the current tokio runtime or the one given; with
/// neither, not. Called from destructors, so a panic of a backend ends here.
pub(crate) fn finish(future: impl Future<Output = ()> + Send + 'static, runtime: Option<Handle>) {
    let runtime = Handle::try_current().ok().or(runtime);
    let _entered = runtime.as_ref().map(Handle::enter);
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
    match (polled, &runtime) {
        (Ok(Poll::Pending), Some(runtime)) => drop(runtime.spawn(future)),
        // Its destructors may be a backend's too.
        _ => drop(catch_unwind(AssertUnwindSafe(|| drop(future)))),
    }
}
