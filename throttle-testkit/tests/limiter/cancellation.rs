//! Callers that go away while they wait: what nobody waits for is given back.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use throttle_core::{Operation, Reserve};
use throttle_testkit::Fault;
use throttle_testkit::faulty::Answer;

use super::{Bench, SECOND, settle};

/// Polls `future` at most `polls` times, and drops it; whether it was done.
async fn abandon<F: Future>(future: F, polls: u32) -> bool {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await
}

#[tokio::test]
async fn dropped_before_it_is_polled_it_asks_nobody() {
    let bench = Bench::of("gcra 5/h");
    drop(bench.limiter.acquire("key", SECOND));
    drop(bench.limiter.reserve("key", 1));
    settle().await;
    assert_eq!(bench.asked(), 0);
}

#[tokio::test]
async fn dropped_while_the_store_hangs_it_is_seen_through_and_given_back() {
    for fault in [Fault::hang(), Fault::hang_after_effect()] {
        let bench = Bench::of("gcra 5/h");
        bench.faults.inject(fault);
        assert!(!abandon(bench.limiter.acquire_n("key", 3, SECOND), 1).await);
        settle().await;
        assert_eq!(bench.faults.hanging(), 1, "the call goes on without its caller");
        bench.faults.release();
        settle().await;
        assert_eq!(bench.remaining().await, 5, "three units were given back");
        let seen = bench.faults.seen();
        assert_eq!(seen.len(), 3, "the decision, the refund, the peek");
        assert!(seen.iter().all(|seen| seen.answer == Answer::Ok && seen.operation == Operation::Decide));
    }
}

#[tokio::test]
async fn dropped_while_it_waits_in_the_queue_it_gives_its_place_back_at_once() {
    let bench = Bench::of("leaky_bucket 1/s queue 10s");
    let _ = bench.limiter.check("key").await.unwrap();
    let waiter = bench.spawn_acquire(10 * SECOND);
    bench.until_sleeping(1).await;
    assert_eq!(bench.limiter.peek_n("key", 0).await.unwrap().reset_after(), 2 * SECOND);
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    assert_eq!(bench.limiter.peek_n("key", 0).await.unwrap().reset_after(), SECOND);
    assert_eq!(bench.clock.sleeping(), 0);
}

#[tokio::test]
async fn dropped_while_it_waits_to_ask_again_it_has_nothing_to_give_back() {
    let bench = Bench::of("fixed_window 1 per 10s");
    let _ = bench.limiter.check("key").await.unwrap();
    let waiter = bench.spawn_acquire(10 * SECOND);
    bench.until_sleeping(1).await;
    waiter.abort();
    settle().await;
    assert_eq!(bench.asked(), 2, "the check and the denial");
    assert_eq!(bench.remaining().await, 0);
}

#[tokio::test]
async fn dropped_after_any_number_of_polls_it_leaves_a_legal_state() {
    for polls in 0..12 {
        let bench = Bench::of("leaky_bucket 1/s burst 2 queue 60s");
        bench.faults.inject(Fault::delay(SECOND).always());
        let clock = bench.clock.clone();
        let passing = tokio::spawn(async move {
            loop {
                clock.until_sleeping(1).await;
                clock.advance(SECOND);
                tokio::task::yield_now().await;
            }
        });
        let finished = abandon(bench.limiter.acquire_n("other", 2, 60 * SECOND), polls).await;
        settle().await;
        passing.abort();
        settle().await;
        bench.faults.clear();
        let left = bench.limiter.peek_n("other", 0).await.unwrap();
        assert!(finished || left.remaining() == 2, "{left:?} after {polls} polls");
    }
}

#[tokio::test]
async fn a_dropped_reserve_is_given_back_too() {
    let bench = Bench::of("gcra 5/h");
    bench.faults.inject(Fault::hang_after_effect());
    assert!(!abandon(bench.limiter.reserve("key", 4), 1).await);
    bench.faults.release();
    settle().await;
    assert_eq!(bench.remaining().await, 5);
}

#[test]
fn without_a_runtime_what_hangs_is_left_to_time() {
    let bench = Bench::of("gcra 5/h");
    bench.faults.inject(Fault::hang_after_effect());
    let waiting = bench.limiter.acquire("key", SECOND);
    let mut waiting = Box::pin(waiting);
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(context).is_pending());
    drop(waiting);
    let left = bench.limiter.blocking().peek_n("key", 0).unwrap();
    assert_eq!(left.remaining(), 4, "charged, as the documentation says");
}

#[tokio::test]
async fn o_90_a_cancelled_place_shortens_the_queue_by_exactly_that() {
    let bench = Bench::of("gcra 1/s burst 1 queue 10s");
    assert!(bench.limiter.acquire("key", SECOND).await.unwrap().is_allowed());
    let second = bench.spawn_acquire(10 * SECOND);
    bench.until_sleeping(1).await;
    let third = bench.spawn_acquire(10 * SECOND);
    bench.until_sleeping(2).await;
    second.abort();
    settle().await;
    let fourth = bench.spawn_acquire(10 * SECOND);
    bench.until_sleeping(2).await;
    bench.clock.advance(2 * SECOND);
    assert_eq!(third.await.unwrap(), Some(2 * SECOND));
    assert_eq!(fourth.await.unwrap(), Some(2 * SECOND), "not three");
}

/// How many of 40 who wait are granted, when 14 of them are cancelled at the instant of the grant.
async fn granted_but_for_cancelled(bench: &Bench) -> u32 {
    let waiters: Vec<_> = (0..40).map(|_| bench.spawn_acquire(60 * SECOND)).collect();
    bench.until_sleeping(40).await;
    bench.clock.advance(10 * SECOND);
    waiters.iter().take(14).for_each(tokio::task::JoinHandle::abort);
    let mut granted = 0;
    for waiter in waiters {
        granted += u32::from(matches!(waiter.await, Ok(Some(_))));
    }
    settle().await;
    granted
}

#[tokio::test]
async fn o_91_cancelling_at_the_instant_of_the_grant_loses_no_permit() {
    let bench = Bench::of("fixed_window 40 per 10s");
    assert_eq!(bench.limiter.take_up_to("key", 50).await.unwrap().units(), 40);
    let granted = granted_but_for_cancelled(&bench).await;
    let left = bench.limiter.take_up_to("key", 50).await.unwrap().units();
    assert_eq!((granted, granted + left), (26, 40));
}

#[tokio::test]
async fn o_91_cancelling_queued_waiters_at_their_instant_gives_their_places_back() {
    let bench = Bench::of("leaky_bucket 40 per 10s burst 40 queue 10s");
    assert_eq!(bench.limiter.take_up_to("key", 50).await.unwrap().units(), 40);
    let granted = granted_but_for_cancelled(&bench).await;
    assert_eq!((granted, bench.remaining().await), (26, 14));
}

#[tokio::test]
async fn a_kept_reservation_holds_on_while_others_are_dropped() {
    let bench = Bench::of("gcra 5/h");
    let Reserve::Held(kept) = bench.limiter.reserve("key", 2).await.unwrap() else { panic!("denied") };
    drop(bench.limiter.reserve("key", 3).await.unwrap());
    settle().await;
    assert_eq!(bench.remaining().await, 3);
    drop(kept);
    assert_eq!(bench.remaining().await, 5);
}
