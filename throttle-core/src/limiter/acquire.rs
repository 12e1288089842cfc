//! Waiting for admission, within a deadline.

use std::sync::Arc;
use std::time::Duration;

use super::RateLimiter;
use super::Taken;
use super::course::Course;
use super::detached::ask_held;
use crate::observe::Call;
use crate::{Clock, Decision, Store, StoreUnavailableError};

impl<S: Store> RateLimiter<S> {
    /// Takes one unit, waiting for it at most `within`. See [`acquire_n`](Self::acquire_n).
    ///
    /// # Panics
    ///
    /// As [`acquire_n`](Self::acquire_n).
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub async fn acquire(&self, key: &str, within: Duration) -> Result<Decision, StoreUnavailableError> {
        self.acquire_n(key, 1, within).await
    }

    /// Takes `cost` units, waiting for them at most `within`. An allowed decision is returned when it is time to go
    /// ahead; a denied one as soon as no wait within the deadline can help, which may be at once.
    ///
    /// Where a rule has a queue, callers are served in the order in which they came. Otherwise those who wait ask again
    /// when there may be room, and the first to ask gets it. A store that is slow to answer is waited for beyond `within`,
    /// up to its [deadline](Self::deadline); a place in the queue that would come later than `within` then is given back.
    ///
    /// **Cancellation.** A caller that goes away before this returns gives back what it was granted: at once on
    /// memory, else on the current tokio runtime. Its place in a queue goes to whoever comes next; those who are queued
    /// already keep the times they were told.
    ///
    /// # Panics
    ///
    /// When it has to wait outside a tokio runtime with a timer, unless the limiter has a
    /// [clock](RateLimiter::with_clock) of its own.
    ///
    /// # Errors
    ///
    /// [`StoreUnavailableError`] if the store does not answer.
    pub async fn acquire_n(
        &self,
        key: &str,
        cost: u32,
        within: Duration,
    ) -> Result<Decision, StoreUnavailableError> {
        self.acquire_on(self.wait_clock(), key, cost, within).await
    }

    pub(super) async fn acquire_on(
        &self,
        clock: Arc<dyn Clock>,
        key: &str,
        cost: u32,
        within: Duration,
    ) -> Result<Decision, StoreUnavailableError> {
        let mut course = Course::begin(self, Call::Acquire, key, cost);
        let taken = self.wait_for(&mut course, &*clock, &Arc::from(key), cost, within).await;
        Ok(course.end(taken)?.decision)
    }

    async fn wait_for(
        &self,
        course: &mut Course<'_, S>,
        clock: &dyn Clock,
        key: &Arc<str>,
        cost: u32,
        within: Duration,
    ) -> Result<Taken, StoreUnavailableError> {
        let started = clock.now();
        let left = || within.saturating_sub(clock.now().saturating_since(started));
        loop {
            let (answer, mut held) = ask_held(self, Call::Acquire, key, cost, left()).await;
            let taken = course.note(answer)?;
            let decision = &taken.decision;
            let (wait, left) = (decision.retry_after().unwrap_or_else(|| decision.delay()), left());
            if course.is_shadow() || decision.is_never() || wait.is_zero() {
                held.keep();
                return Ok(taken);
            }
            match (decision.is_allowed(), wait > left) {
                // The answer took too long for a place so far back; `held` gives it to the next.
                (true, true) => return Ok(taken.too_late(left)),
                (false, true) => return Ok(taken),
                _ => clock.sleep(wait).await,
            }
            if decision.is_allowed() {
                held.keep();
                return Ok(taken);
            }
        }
    }
}
