//! What dropping, deadlines and company do, on the paused clock of tokio.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use throttle_core::retry::{
    Admission, DecorrelatedJitter, ErrorClass, Exponential, Refusal, Retry, RetryBudget, RetryError,
    TokenBucket,
};
use throttle_core::{Clock, Timestamp};
use tokio::time::{Instant, advance};

use super::support::{Failed, Steady, TokioClock, retryable};

const SECOND: Duration = Duration::from_secs(1);

fn is_pending<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> bool {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

fn clock() -> TokioClock {
    TokioClock(Instant::now())
}

fn budget() -> Arc<RetryBudget> {
    Arc::new(RetryBudget::default())
}

#[tokio::test(start_paused = true)]
async fn dropped_while_waiting_it_gives_the_budget_back() {
    let (clock, budget, calls) = (clock(), budget(), AtomicU32::new(0));
    let retry = Retry::builder(Steady(10 * SECOND)).clock(clock).budget(Arc::clone(&budget)).build().unwrap();
    let fail = || async {
        calls.fetch_add(1, Ordering::Relaxed);
        Err::<(), _>(Failed(503))
    };
    let mut running = Box::pin(retry.run(fail, retryable));
    assert!(is_pending(&mut running));
    advance(9 * SECOND).await;
    assert!(is_pending(&mut running));
    assert_eq!(budget.balance(clock.now()), 90, "withdrawn before the wait");
    drop(running);
    assert_eq!(budget.balance(clock.now()), 100);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn dropped_during_a_retry_it_stays_charged() {
    let (clock, budget, calls) = (clock(), budget(), AtomicU32::new(0));
    let bucket = Arc::new(TokenBucket::new("1/h burst 5").unwrap());
    let retry = Retry::builder(Steady(SECOND))
        .clock(clock)
        .budget(Arc::clone(&budget))
        .admission(Arc::clone(&bucket))
        .build()
        .unwrap();
    let hang_second = || async {
        if calls.fetch_add(1, Ordering::Relaxed) == 1 {
            pending::<()>().await;
        }
        Err::<(), _>(Failed(503))
    };
    let mut running = Box::pin(retry.run(hang_second, retryable));
    assert!(is_pending(&mut running));
    advance(2 * SECOND).await;
    assert!(is_pending(&mut running));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    drop(running);
    assert_eq!(
        (budget.balance(clock.now()), bucket.available(clock.now())),
        (90, 3),
        "it may have been sent"
    );
}

#[tokio::test(start_paused = true)]
async fn o_91_dropping_waiters_as_their_wait_ends_loses_no_permit() {
    let (clock, bucket) = (clock(), Arc::new(TokenBucket::new("1/h burst 54").unwrap()));
    let budget = Arc::new(RetryBudget::builder().initial(200).build().unwrap());
    let retry = Retry::builder(Steady(SECOND))
        .clock(clock)
        .budget(Arc::clone(&budget))
        .admission(Arc::clone(&bucket))
        .build()
        .unwrap();
    let mut waiters: Vec<_> =
        (0..14).map(|_| Box::pin(retry.run(|| async { Err::<(), _>(Failed(503)) }, retryable))).collect();
    assert!(waiters.iter_mut().all(is_pending));
    assert_eq!(budget.balance(clock.now()), 60);
    advance(SECOND).await;
    drop(waiters);
    assert_eq!(budget.balance(clock.now()), 200);
    assert_eq!((0..50).filter(|_| bucket.try_acquire(clock.now()).is_ok()).count(), 40);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_is_dropped_at_the_deadline() {
    let clock = clock();
    let retry = Retry::builder(Steady(SECOND)).clock(clock).deadline(5 * SECOND).build().unwrap();
    let end = retry.run(pending::<Result<(), Failed>>, retryable).await;
    assert!(matches!(end, Err(RetryError::DeadlineExceeded { last: None })), "{end:?}");
    assert_eq!(clock.0.elapsed(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn an_admission_that_hangs_is_dropped_at_the_deadline_and_the_budget_given_back() {
    #[derive(Default)]
    struct HangsTheSecondTime(AtomicU32);
    impl Admission for HangsTheSecondTime {
        async fn try_admit(&self, _now: Timestamp) -> Result<(), Refusal> {
            if self.0.fetch_add(1, Ordering::Relaxed) == 0 { Ok(()) } else { pending().await }
        }
    }
    let (clock, budget) = (clock(), budget());
    let retry = Retry::builder(Steady(SECOND))
        .clock(clock)
        .budget(Arc::clone(&budget))
        .admission(HangsTheSecondTime::default())
        .deadline(5 * SECOND)
        .build()
        .unwrap();
    let end = retry.run(|| async { Err::<(), _>(Failed(503)) }, retryable).await;
    assert!(matches!(end, Err(RetryError::DeadlineExceeded { last: Some(Failed(503)) })), "{end:?}");
    assert_eq!((clock.0.elapsed(), budget.balance(clock.now())), (5 * SECOND, 100));
}

#[tokio::test(start_paused = true)]
async fn a_success_at_the_deadline_counts() {
    let clock = clock();
    let retry = Retry::builder(Steady(SECOND)).clock(clock).deadline(5 * SECOND).build().unwrap();
    let slow = || async {
        tokio::time::sleep(5 * SECOND).await;
        Ok::<_, Failed>("just in time")
    };
    assert_eq!(retry.run(slow, retryable).await.unwrap(), "just in time");
}

#[tokio::test(start_paused = true)]
async fn tasks_share_one_budget() {
    let (clock, attempts) = (clock(), Arc::new(AtomicU32::new(0)));
    let jitter = DecorrelatedJitter::new(Duration::from_millis(10), SECOND).unwrap();
    let retry = Arc::new(Retry::builder(jitter).clock(clock).max_attempts(10).build().unwrap());
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let (retry, attempts) = (Arc::clone(&retry), Arc::clone(&attempts));
            tokio::spawn(async move {
                let fail = || async {
                    attempts.fetch_add(1, Ordering::Relaxed);
                    Err::<(), _>(Failed(503))
                };
                retry.run(fail, retryable).await
            })
        })
        .collect();
    for task in tasks {
        let end = task.await.unwrap();
        assert!(matches!(end, Err(RetryError::RetryBudgetExhausted { .. })), "{end:?}");
    }
    assert_eq!(attempts.load(Ordering::Relaxed), 110);
}

#[tokio::test(start_paused = true)]
async fn the_system_clock_is_the_default() {
    let retry = Retry::builder(Exponential::plain(SECOND, SECOND).unwrap()).max_attempts(2).build().unwrap();
    let before = Instant::now();
    let end = retry.run(|| async { Err::<(), _>(Failed(503)) }, |_| ErrorClass::RetryAfter(7 * SECOND)).await;
    assert!(matches!(end, Err(RetryError::AttemptsExhausted { attempts: 2, .. })), "{end:?}");
    assert_eq!(before.elapsed(), 7 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_polled_again_after_it_ended() {
    let retry = Retry::builder(Steady(SECOND)).clock(clock()).build().unwrap();
    let mut running = Box::pin(retry.run(|| async { Ok::<_, Failed>(1) }, retryable));
    let polled = running.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(1))), "an operation that is ready needs one poll");
}
