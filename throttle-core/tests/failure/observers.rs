//! What observers are told, and what they cannot break.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use throttle_core::observe::{BreakerEvent, DecisionEvent, Observer, UnavailableEvent};
use throttle_core::{ErrorKind, FailurePolicy, Reserve};
use throttle_testkit::Fault;

use super::{Bench, SECOND, breaker};

#[tokio::test]
async fn each_call_is_told_once_with_what_it_came_to() {
    let bench = Bench::of("gcra 5/h", |limiter| limiter);
    let limiter = &bench.limiter;
    let _ = limiter.check_n("key", 2).await.unwrap();
    let _ = limiter.peek("key").await.unwrap();
    let _ = limiter.take_up_to("key", 9).await.unwrap();
    let _ = limiter.take_up_to("key", 0).await.unwrap();
    let _ = limiter.check_n("key", 6).await.unwrap();
    let _ = limiter.refund("key", 4).await.unwrap();
    let Reserve::Held(held) = limiter.reserve("key", 1).await.unwrap() else { panic!("denied") };
    let _ = held.commit(3).await.unwrap();
    drop(limiter.reserve("key", 1).await.unwrap());
    let _ = (limiter.reset("key").await.unwrap(), limiter.reset_all().await.unwrap());
    let expected = [
        "check 2 allowed by store",
        "peek 1 allowed by store",
        "take_up_to 9 denied by store",
        "take_up_to 0 allowed by store",
        "check 6 denied by store",
        "refund 4 allowed by store",
        "reserve 1 allowed by store",
        "settle 3 allowed by store",
        "reserve 1 allowed by store",
    ];
    assert_eq!(bench.journal.take(), expected);
}

#[derive(Default)]
struct Times(Mutex<Vec<(Duration, Option<Duration>)>>);

impl Observer for Times {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        self.0.lock().push((event.elapsed, event.store_time));
    }

    fn on_unavailable(&self, event: &UnavailableEvent<'_>) {
        self.0.lock().push((Duration::ZERO, event.store_time));
    }
}

#[tokio::test]
async fn the_time_that_a_store_takes_to_fail_is_told_whoever_answers() {
    let times = Arc::new(Times::default());
    let bench = Bench::of("gcra 5/h", |limiter| {
        limiter.deadline(SECOND).breaker(breaker(2)).observe(Arc::clone(&times))
    });
    bench.faults.inject(Fault::hang().always());
    bench.passing(SECOND, bench.limiter.check("key")).await.unwrap_err();
    let open = bench.limiter.clone().on_failure(FailurePolicy::FailOpen);
    let _ = bench.passing(SECOND, open.check("key")).await.unwrap();
    bench.limiter.check("key").await.unwrap_err();
    const ZERO: Duration = Duration::ZERO;
    let (failed, not_asked) = ((ZERO, Some(SECOND)), (ZERO, None));
    let told = std::mem::take(&mut *times.0.lock());
    assert_eq!(told, [failed, failed, (SECOND, Some(SECOND)), not_asked]);
}

#[tokio::test]
async fn a_call_that_waits_is_told_once_with_its_waits() {
    let times = Arc::new(Times::default());
    let bench = Bench::of("gcra 1 per 2s", |limiter| limiter.observe(Arc::clone(&times)));
    let _ = bench.limiter.check("key").await.unwrap();
    bench.faults.inject(Fault::delay(SECOND / 2).always());
    let waited = bench.passing(SECOND / 2, bench.limiter.acquire("key", 60 * SECOND)).await.unwrap();
    assert!(waited.is_allowed());
    assert_eq!(bench.journal.take(), ["check 1 allowed by store", "acquire 1 allowed by store"]);
    let never = bench.limiter.check_n("key", 2).await.unwrap();
    assert!(never.is_never());
    const ZERO: Duration = Duration::ZERO;
    let (check, acquire) = ((ZERO, Some(ZERO)), (3 * SECOND, Some(SECOND)));
    assert_eq!(*times.0.lock(), [check, acquire, (ZERO, None)], "asked twice, and not at all");
}

#[tokio::test]
async fn an_outage_is_told_once_per_call_and_says_who_answers() {
    let bench = Bench::of("gcra 5/h", |limiter| limiter.breaker(breaker(2)));
    bench.faults.inject(Fault::refuse(ErrorKind::NotReady).always());
    bench.limiter.check("key").await.unwrap_err();
    let open = bench.limiter.clone().on_failure(FailurePolicy::FailOpen);
    let _ = open.acquire("key", SECOND).await.unwrap();
    let _ = open.check("key").await.unwrap();
    bench.limiter.reset("key").await.unwrap_err();
    let expected = [
        "check unavailable: not_ready, asked, propagated",
        "guarded: closed to open",
        "acquire unavailable: not_ready, asked, answered",
        "acquire 1 allowed by policy",
        "check unavailable: not_ready, not asked, answered",
        "check 1 allowed by policy",
        "reset unavailable: not_ready, not asked, propagated",
    ];
    assert_eq!(bench.journal.take(), expected);
}

/// Panics whenever it is told anything, and again when what it threw is dropped.
struct Bomb(AtomicU32);

struct Splinter;

impl Drop for Splinter {
    fn drop(&mut self) {
        panic!("and what it threw");
    }
}

impl Bomb {
    fn explode(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::panic::panic_any(Splinter);
    }
}

impl Observer for Bomb {
    fn on_decision(&self, _: &DecisionEvent<'_>) {
        self.explode();
    }

    fn on_unavailable(&self, _: &UnavailableEvent<'_>) {
        self.explode();
    }

    fn on_breaker(&self, _: &BreakerEvent<'_>) {
        self.explode();
    }
}

#[tokio::test]
async fn an_observer_that_panics_is_counted_and_changes_nothing() {
    let bomb = Arc::new(Bomb(AtomicU32::new(0)));
    let mut bench = Bench::of("gcra 5/h", |limiter| limiter.on_failure(FailurePolicy::FailOpen));
    let journal = Arc::clone(&bench.journal);
    bench.limiter =
        bench.limiter.breaker(breaker(1)).observe(Arc::clone(&bomb)).observe(Arc::clone(&journal));
    assert_eq!(bench.limiter.check("key").await.unwrap().remaining(), 4);
    assert_eq!(bench.asked(), 1, "the store is asked once");
    bench.faults.inject(Fault::lose_reply(ErrorKind::Connection));
    assert!(bench.limiter.check("key").await.unwrap().is_allowed());
    assert_eq!(bench.asked(), 2);
    // A decision; then the breaker, the outage, the decision. The other observers hear of all of it, here twice.
    assert_eq!((bomb.0.load(Ordering::Relaxed), bench.limiter.counts().observer_panics), (4, 4));
    assert_eq!(journal.take().len(), 8);
    assert_eq!(bench.left("key").await, 3);
}
