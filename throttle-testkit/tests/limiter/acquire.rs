//! Waiting.

use std::time::Duration;

use throttle_core::Clock;
use throttle_testkit::Fault;

use super::{Bench, MICRO, SECOND, settle, soon};

#[tokio::test]
async fn a_free_unit_is_granted_without_waiting() {
    let bench = Bench::of("gcra 1/s");
    assert!(soon(bench.limiter.acquire("key", Duration::ZERO)).await.unwrap().is_allowed());
    assert_eq!((bench.asked(), bench.clock.sleeping()), (1, 0));
}

#[tokio::test]
async fn waits_exactly_until_the_unit_is_there() {
    let bench = Bench::of("gcra 1/s burst 1");
    let _ = bench.limiter.check("key").await.unwrap();
    let waiter = bench.spawn_acquire(10 * SECOND);
    bench.until_sleeping(1).await;
    assert_eq!(bench.clock.until_next(), Some(SECOND));
    bench.clock.advance(SECOND - MICRO);
    settle().await;
    assert!(!waiter.is_finished(), "a microsecond early");
    bench.clock.advance(MICRO);
    assert_eq!(waiter.await.unwrap(), Some(SECOND));
    assert_eq!(bench.asked(), 3, "the check, the denial, the admission");
}

#[tokio::test]
async fn waits_exactly_as_long_as_the_caller_will() {
    let bench = Bench::of("gcra 1/s burst 1");
    let _ = bench.limiter.check("key").await.unwrap();
    let waiter = bench.spawn_acquire(SECOND);
    bench.until_sleeping(1).await;
    bench.clock.advance(SECOND);
    assert_eq!(waiter.await.unwrap(), Some(SECOND));
}

#[tokio::test]
async fn skips_a_wait_that_cannot_help() {
    let bench = Bench::of("gcra 1/s burst 1");
    let _ = bench.limiter.check("key").await.unwrap();
    let decision = soon(bench.limiter.acquire("key", SECOND - MICRO)).await.unwrap();
    assert_eq!(decision.retry_after(), Some(SECOND), "it says how long it would have been");
    assert_eq!((bench.asked(), bench.clock.sleeping()), (2, 0));
}

#[tokio::test]
async fn gives_up_when_others_were_faster_and_the_rest_is_too_short() {
    let bench = Bench::of("fixed_window 1 per 10s");
    let _ = bench.limiter.check("key").await.unwrap();
    let waiter = bench.spawn_acquire(15 * SECOND);
    bench.until_sleeping(1).await;
    // Moved by a step that does not wake the waiter before the other has asked.
    bench.clock.advance(10 * SECOND);
    assert!(bench.limiter.check("key").await.unwrap().is_allowed());
    assert_eq!(waiter.await.unwrap(), None, "5 s are left, the next unit is 10 s away");
}

#[tokio::test]
async fn the_queue_serves_in_the_order_of_arrival() {
    let bench = Bench::of("leaky_bucket 1/s queue 10s");
    let mut waiters = Vec::new();
    for place in 0..4 {
        waiters.push(bench.spawn_acquire(60 * SECOND));
        bench.until_sleeping(place).await;
        settle().await;
    }
    for (place, waiter) in (0..).zip(waiters) {
        settle().await;
        assert!(waiter.is_finished(), "number {place} is next");
        assert_eq!(waiter.await.unwrap(), Some(place * SECOND));
        bench.clock.advance(SECOND);
    }
    assert_eq!(bench.asked(), 4, "each asked once");
}

#[tokio::test]
async fn the_queue_is_no_longer_than_it_says() {
    let bench = Bench::of("leaky_bucket 1/s queue 2s");
    let waiters: Vec<_> = (0..3).map(|_| bench.spawn_acquire(60 * SECOND)).collect();
    bench.until_sleeping(2).await;
    settle().await;
    let late = soon(bench.limiter.acquire("key", Duration::from_millis(500))).await.unwrap();
    assert_eq!(late.retry_after(), Some(3 * SECOND - Duration::from_millis(500)));
    bench.clock.advance(2 * SECOND);
    for waiter in waiters {
        assert!(waiter.await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_place_that_comes_too_late_because_the_answer_did_is_given_back() {
    let slow = Duration::from_millis(900);
    for (within, waited) in [(1_500, None), (1_899, None), (1_900, Some(1_900))] {
        let bench = Bench::of("leaky_bucket 1/s queue 10s; leaky_bucket 2/s queue 10s");
        let _ = bench.limiter.check("key").await.unwrap();
        bench.faults.inject(Fault::delay(slow));
        let within = Duration::from_millis(within);
        let waiter = bench.spawn_acquire(within);
        bench.until_sleeping(1).await;
        bench.clock.advance(slow);
        settle().await;
        assert_eq!(waiter.is_finished(), waited.is_none(), "it waits only if that is within {within:?}");
        let reset_after = bench.limiter.peek_n("key", 0).await.unwrap().reset_after();
        let places = if waited.is_some() { 2 } else { 1 };
        assert_eq!(reset_after, places * SECOND - slow, "so many places are taken");
        bench.clock.advance(SECOND);
        assert_eq!(waiter.await.unwrap(), waited.map(Duration::from_millis));
    }
}

#[tokio::test]
async fn the_denial_of_a_place_that_comes_too_late_says_how_much_too_late() {
    let bench = Bench::of("leaky_bucket 1/s queue 10s; leaky_bucket 2/s queue 10s");
    let _ = bench.limiter.check("key").await.unwrap();
    bench.faults.inject(Fault::delay(SECOND / 2));
    let limiter = bench.limiter.clone();
    let waiter = tokio::spawn(async move { limiter.acquire("key", SECOND + SECOND / 4).await });
    bench.until_sleeping(1).await;
    bench.clock.advance(SECOND / 2);
    let denial = soon(waiter).await.unwrap().unwrap();
    assert_eq!((denial.is_allowed(), denial.delay()), (false, Duration::ZERO));
    assert_eq!(denial.retry_after(), Some(SECOND / 4), "a second to wait, three quarters left");
    let rules: Vec<_> = denial.rules().iter().map(throttle_core::RuleDecision::is_allowed).collect();
    assert_eq!(rules, [false, true], "half a second would have done for the other");
}

#[tokio::test]
async fn o_36_o_37_more_than_the_capacity_is_never_and_nobody_is_asked() {
    let bench = Bench::of("gcra 3 per 2s queue 60s");
    for decision in [
        bench.limiter.check_n("key", 4).await.unwrap(),
        bench.limiter.peek_n("key", 4).await.unwrap(),
        soon(bench.limiter.acquire_n("key", 4, 60 * SECOND)).await.unwrap(),
    ] {
        assert!(decision.is_never());
        assert_eq!((decision.retry_after(), decision.limit(), decision.remaining()), (None, 3, 0));
    }
    assert_eq!((bench.asked(), bench.clock.sleeping()), (0, 0));
    assert_eq!(bench.remaining().await, 3, "nothing was taken");
}

#[tokio::test]
async fn o_92_ten_waiters_go_in_threes() {
    let bench = Bench::of("fixed_window 3 per 3s");
    let waiters: Vec<_> = (0..10).map(|_| bench.spawn_acquire(60 * SECOND)).collect();
    for left in [7, 4, 1] {
        bench.until_sleeping(left).await;
        settle().await;
        assert_eq!((bench.clock.sleeping(), bench.clock.until_next()), (left, Some(3 * SECOND)));
        bench.clock.advance(3 * SECOND);
    }
    let mut waits = Vec::new();
    for waiter in waiters {
        waits.push(waiter.await.unwrap().unwrap().as_secs());
    }
    waits.sort_unstable();
    assert_eq!(waits, [0, 0, 0, 3, 3, 3, 6, 6, 6, 9]);
}

#[tokio::test]
async fn a_clock_that_steps_back_prolongs_the_wait_and_loses_nobody() {
    let bench = Bench::of("gcra 1/s burst 1");
    let _ = bench.limiter.check("key").await.unwrap();
    let start = bench.clock.now();
    let waiter = bench.spawn_acquire(10 * SECOND);
    bench.until_sleeping(1).await;
    bench.clock.step_back(5 * SECOND);
    bench.clock.advance(6 * SECOND);
    assert_eq!(waiter.await.unwrap(), Some(SECOND));
    assert_eq!(bench.clock.now().saturating_since(start), SECOND);
}
