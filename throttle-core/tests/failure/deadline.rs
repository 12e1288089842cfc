//! What becomes of a question that nobody waits for any longer.

use std::time::Duration;

use throttle_core::{Effect, ErrorKind, FailurePolicy, RateLimiter, Source, ThreadClock};
use throttle_testkit::faulty::Answer;
use throttle_testkit::{Fault, FaultyBackend, ReferenceBackend};

use super::{Bench, MILLI, SECOND, policy, settle, soon};

#[tokio::test]
async fn it_is_dropped_its_effect_is_unknown_and_it_is_not_asked_again() {
    for (fault, left) in [(Fault::hang(), 10), (Fault::hang_after_effect(), 9)] {
        let bench = Bench::of("gcra 10/h", |limiter| limiter.deadline(SECOND));
        bench.faults.inject(fault);
        let error = bench.passing(SECOND, bench.limiter.check("key")).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown));
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no answer within 1s");
        assert_eq!((bench.faults.hanging(), bench.clock.sleeping()), (0, 0));
        bench.faults.release();
        settle().await;
        assert_eq!(bench.asked(), 1);
        assert_eq!(bench.faults.seen()[0].answer, Answer::Dropped);
        assert_eq!(bench.left("key").await, left);
    }
}

#[tokio::test]
async fn acquire_and_reserve_do_not_go_on_in_the_background() {
    let bench = Bench::of("gcra 10/h", |limiter| limiter.deadline(SECOND));
    bench.faults.inject(Fault::hang_after_effect().always());
    let asked = [
        bench.passing(SECOND, bench.limiter.acquire("key", 60 * SECOND)).await.unwrap_err().kind(),
        bench.passing(SECOND, bench.limiter.reserve("key", 3)).await.unwrap_err().kind(),
    ];
    settle().await;
    assert_eq!((asked, bench.faults.hanging()), ([ErrorKind::Timeout; 2], 0));
    bench.faults.clear();
    assert_eq!(bench.left("key").await, 6, "what was charged comes back with time");
}

#[tokio::test]
async fn a_caller_that_leaves_a_stalled_store_leaves_no_task_beyond_the_deadline() {
    let bench = Bench::of("gcra 10/h", |limiter| limiter.deadline(SECOND));
    bench.faults.inject(Fault::hang().always());
    let limiter = bench.limiter.clone();
    let caller = tokio::spawn(async move { limiter.acquire("key", 60 * SECOND).await });
    bench.faults.until_hanging(1).await;
    caller.abort();
    settle().await;
    assert_eq!(bench.faults.hanging(), 1, "it is seen through, to give back what it is granted");
    bench.clock.advance(SECOND);
    settle().await;
    assert_eq!((bench.faults.hanging(), bench.clock.sleeping()), (0, 0));
}

#[tokio::test]
async fn a_deadline_of_zero_takes_only_what_is_there_at_once() {
    let bench = Bench::of("gcra 10/h", |limiter| limiter.deadline(Duration::ZERO));
    assert_eq!(bench.limiter.check("key").await.unwrap().remaining(), 9);
    bench.faults.inject(Fault::hang());
    assert_eq!(bench.limiter.check("key").await.unwrap_err().kind(), ErrorKind::Timeout);
}

#[test]
fn where_nothing_measures_time_the_backend_does() {
    let store = FaultyBackend::new(ReferenceBackend::default());
    let limiter = RateLimiter::new(policy("gcra 10/h"), store).deadline(MILLI);
    assert_eq!(limiter.blocking().check("key").unwrap().remaining(), 9);
}

#[test]
fn on_a_runtime_without_a_timer_it_takes_a_clock() {
    let store = FaultyBackend::new(ReferenceBackend::default());
    let faults = store.faults();
    let limiter = RateLimiter::new(policy("gcra 10/h"), store).deadline(MILLI);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(limiter.check("key")).unwrap().is_allowed(), "there is nothing to wait for");
    faults.inject(Fault::hang().always());
    let wait = || runtime.block_on(limiter.check("key"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait));
    assert!(panicked.is_err(), "as documented");
    let on_clock = limiter.clone().with_clock(ThreadClock);
    assert_eq!(runtime.block_on(on_clock.check("key")).unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn without_a_clock_of_its_own_the_limiter_waits_on_the_runtime() {
    let store = FaultyBackend::new(ReferenceBackend::default());
    store.faults().inject(Fault::hang().always());
    let limiter = RateLimiter::new(policy("gcra 10/h"), store).deadline(20 * MILLI);
    let limiter = limiter.on_failure(FailurePolicy::FailOpen);
    assert_eq!(soon(limiter.check("key")).await.unwrap().source(), Source::Policy);
    let handle = tokio::runtime::Handle::current();
    let blocking = limiter.blocking().with_runtime(handle);
    let waited = tokio::task::spawn_blocking(move || blocking.check("key"));
    assert_eq!(soon(waited).await.unwrap().unwrap().source(), Source::Policy);
}
