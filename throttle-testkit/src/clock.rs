//! [`ManualClock`]: a clock that stands still until a test moves it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use throttle_core::{Clock, Sleep, Timestamp};

/// A [`Clock`] that stands still until it is moved. Clones share the time.
///
/// Whoever sleeps on it wakes when it is moved to the end of the pause or beyond.
///
/// ```
/// use std::time::Duration;
/// use throttle_core::{Clock, Timestamp};
/// use throttle_testkit::ManualClock;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000)?);
/// let pause = tokio::spawn(clock.sleep(Duration::from_secs(3_600)));
/// clock.until_sleeping(1).await;
/// clock.advance(Duration::from_secs(3_600));
/// pause.await?;
/// assert_eq!((clock.now().as_micros(), clock.sleeping()), (1_700_003_600_000_000, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ManualClock(Arc<Mutex<State>>);

struct State {
    now: Timestamp,
    next_id: u64,
    sleepers: BTreeMap<u64, Sleeper>,
    /// Those who wait for others to fall asleep.
    watchers: Vec<Waker>,
}

struct Sleeper {
    until: Timestamp,
    waker: Option<Waker>,
}

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        let (sleepers, watchers) = (BTreeMap::new(), Vec::new());
        Self(Arc::new(Mutex::new(State { now, next_id: 0, sleepers, watchers })))
    }

    /// Moves it on by `span`; fractions of a microsecond are dropped.
    pub fn advance(&self, span: Duration) {
        let now = self.0.lock().now.saturating_add(span);
        self.set(now);
    }

    /// Moves it back by `span`. Nobody wakes, and those who sleep sleep longer.
    pub fn step_back(&self, span: Duration) {
        let now = self.0.lock().now.saturating_sub(span);
        self.set(now);
    }

    /// Moves it to `now`, which may be earlier.
    pub fn set(&self, now: Timestamp) {
        let due = self.0.lock().move_to(now);
        due.into_iter().for_each(Waker::wake);
    }

    /// How many pauses have not ended.
    #[must_use]
    pub fn sleeping(&self) -> usize {
        let state = self.0.lock();
        state.sleepers.values().filter(|sleeper| sleeper.until > state.now).count()
    }

    /// The time from now to the end of the shortest pause, if anybody sleeps.
    #[must_use]
    pub fn until_next(&self) -> Option<Duration> {
        let state = self.0.lock();
        let ends = state.sleepers.values().map(|sleeper| sleeper.until);
        ends.filter(|until| *until > state.now).min().map(|until| until.saturating_since(state.now))
    }

    /// Completes when at least `count` sleep at once, so that a test moves the clock neither too early nor by guess.
    pub async fn until_sleeping(&self, count: usize) {
        std::future::poll_fn(|context| {
            let mut state = self.0.lock();
            if state.sleepers.values().filter(|sleeper| sleeper.until > state.now).count() >= count {
                return Poll::Ready(());
            }
            state.watchers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl State {
    fn move_to(&mut self, now: Timestamp) -> Vec<Waker> {
        self.now = now;
        let due = self.sleepers.values_mut().filter(|sleeper| sleeper.until <= now);
        due.filter_map(|sleeper| sleeper.waker.take()).collect()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.0.lock().now
    }

    fn sleep(&self, span: Duration) -> Sleep {
        let mut state = self.0.lock();
        let (id, until) = (state.next_id, end_of(state.now, span));
        state.next_id += 1;
        state.sleepers.insert(id, Sleeper { until, waker: None });
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        watchers.into_iter().for_each(Waker::wake);
        Box::pin(Pause { clock: self.clone(), id, until })
    }
}

/// A pause ends no earlier than asked: a fraction of a microsecond counts as a whole one.
fn end_of(now: Timestamp, span: Duration) -> Timestamp {
    let rest = u64::from(!span.subsec_nanos().is_multiple_of(1_000));
    now.saturating_add(span.saturating_add(Duration::from_micros(rest)))
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (now, sleeping) = (self.now(), self.sleeping());
        f.debug_struct("ManualClock").field("now", &now).field("sleeping", &sleeping).finish()
    }
}

struct Pause {
    clock: ManualClock,
    id: u64,
    until: Timestamp,
}

impl Future for Pause {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.0.lock();
        if state.now >= self.until {
            return Poll::Ready(());
        }
        let sleeper = Sleeper { until: self.until, waker: Some(context.waker().clone()) };
        state.sleepers.insert(self.id, sleeper);
        Poll::Pending
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.clock.0.lock().sleepers.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> ManualClock {
        ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000).unwrap())
    }

    fn poll(pause: &mut Sleep) -> Poll<()> {
        pause.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn pauses_end_exactly_when_they_are_due() {
        let clock = clock();
        let mut pause = clock.sleep(Duration::from_nanos(2_000_500));
        assert_eq!(clock.until_next(), Some(Duration::from_micros(2_001)), "rounded up");
        clock.advance(Duration::from_micros(2_000));
        assert_eq!(poll(&mut pause), Poll::Pending);
        clock.advance(Duration::from_micros(1));
        assert_eq!(poll(&mut pause), Poll::Ready(()));
        assert_eq!(clock.sleeping(), 0);
    }

    #[test]
    fn a_step_back_prolongs_pauses_and_a_dropped_pause_is_gone() {
        let clock = clock();
        let mut pause = clock.sleep(Duration::from_secs(1));
        clock.step_back(Duration::from_secs(5));
        clock.advance(Duration::from_secs(5));
        assert_eq!(poll(&mut pause), Poll::Pending);
        assert_eq!(clock.sleeping(), 1);
        drop(pause);
        assert_eq!((clock.sleeping(), clock.until_next()), (0, None));
    }
}
