//! Work that outlives its caller: seen through when it is dropped half-way, or done when something is dropped.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

use crate::panics::contain;

/// A future that goes on in the background when it is dropped half-way: on the tokio runtime on which it is dropped, and
/// without one not. One that was never polled does nothing.
///
/// For what the next caller needs too, such as a connection: callers that have less time than it takes would else begin it
/// again and again. It must end by itself, so give it a deadline inside.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use throttle_core::SeenThrough;
/// # use tokio::sync::OnceCell;
/// # use tokio::time::{sleep, timeout};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let connection = Arc::new(OnceCell::new());
/// let connect = || {
///     let connection = Arc::clone(&connection);
///     SeenThrough::new(async move {
///         let made = connection.get_or_init(|| async { sleep(Duration::from_millis(50)).await });
///         timeout(Duration::from_secs(1), made).await.is_ok()
///     })
/// };
/// assert!(timeout(Duration::from_millis(10), connect()).await.is_err(), "this caller has gone");
/// sleep(Duration::from_millis(100)).await;
/// assert!(connection.initialized());
/// # }
/// ```
#[must_use = "a future does nothing unless it is awaited"]
pub struct SeenThrough<T: Send + 'static> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    is_begun: bool,
}

impl<T: Send + 'static> SeenThrough<T> {
    /// Sees `future` through, once it was polled.
    pub fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
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

impl<T: Send + 'static> fmt::Debug for SeenThrough<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeenThrough").field("is_begun", &self.is_begun).finish_non_exhaustive()
    }
}

/// Runs `future` to its end: here if it needs no waiting, else on the current tokio runtime or the one given; with
/// neither, not. Called from destructors, so a panic of a backend ends here.
pub(crate) fn finish(future: impl Future<Output = ()> + Send + 'static, runtime: Option<Handle>) {
    let runtime = Handle::try_current().ok().or(runtime);
    let _entered = runtime.as_ref().map(Handle::enter);
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    let polled = contain(|| future.as_mut().poll(&mut context));
    match (polled, &runtime) {
        (Some(Poll::Pending), Some(runtime)) => drop(runtime.spawn(future)),
        // Its destructors may be a backend's too.
        _ => drop(contain(|| drop(future))),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// What a backend can do to those who drop its futures.
    struct Bomb(Arc<AtomicU32>);

    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::panic::panic_any(Splinter);
        }
    }

    struct Splinter;

    impl Drop for Splinter {
        fn drop(&mut self) {
            panic!("and what it threw");
        }
    }

    #[test]
    fn destructors_that_panic_end_here() {
        let dropped = Arc::new(AtomicU32::new(0));
        let bomb = Bomb(Arc::clone(&dropped));
        let waits = async move {
            let _bomb = bomb;
            pending::<()>().await;
        };
        finish(waits, None);
        let bomb = Bomb(Arc::clone(&dropped));
        finish(async move { drop(bomb) }, None);
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_was_never_polled_is_not_begun() {
        let begun = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&begun);
        drop(SeenThrough::new(async move { count.fetch_add(1, Ordering::Relaxed) }));
        assert_eq!(begun.load(Ordering::Relaxed), 0);
    }
}
