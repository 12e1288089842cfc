//! The states of a breaker, in order.

use std::sync::Arc;

use throttle_core::observe::{BreakerEvent, Observer};
use throttle_core::{
    Breaker, BreakerState, ErrorKind, FailurePolicy, Guarded, RateLimiter, SetupError, Source,
};
use throttle_testkit::{Fault, FaultyBackend, ReferenceBackend};

use super::{Bench, MILLI, SECOND, Store, breaker, settle};

fn open_after(failures: u32) -> Bench {
    Bench::of("gcra 1000/h", |limiter| {
        limiter.on_failure(FailurePolicy::FailOpen).breaker(breaker(failures)).deadline(SECOND)
    })
}

fn down(bench: &Bench) {
    bench.faults.inject(Fault::refuse(ErrorKind::Connection).always());
}

async fn source(limiter: &RateLimiter<Store>) -> Source {
    limiter.check("key").await.unwrap().source()
}

#[tokio::test]
async fn closed_open_half_open_open_half_open_closed() {
    let bench = open_after(3);
    down(&bench);
    for _ in 0..5 {
        assert_eq!(source(&bench.limiter).await, Source::Policy);
    }
    assert_eq!((bench.asked(), bench.limiter.breaker_state()), (3, Some(BreakerState::Open)));
    bench.clock.advance(SECOND - MILLI);
    assert_eq!((source(&bench.limiter).await, bench.asked()), (Source::Policy, 3), "too early");
    bench.clock.advance(MILLI);
    assert_eq!((source(&bench.limiter).await, bench.asked()), (Source::Policy, 4), "a probe, in vain");
    assert_eq!((source(&bench.limiter).await, bench.asked()), (Source::Policy, 4));
    bench.faults.clear();
    bench.clock.advance(SECOND);
    assert_eq!(
        (source(&bench.limiter).await, bench.asked()),
        (Source::Store, 5),
        "a probe that gets through"
    );
    assert_eq!((source(&bench.limiter).await, bench.asked()), (Source::Store, 6));
    let told: Vec<_> = bench.journal.take().into_iter().filter(|line| line.starts_with("guarded")).collect();
    let expected = [
        "closed to open",
        "open to half_open",
        "half_open to open",
        "open to half_open",
        "half_open to closed",
    ];
    assert_eq!(told, expected.map(|change| format!("guarded: {change}")));
}

#[tokio::test]
async fn only_failures_in_a_row_count_and_an_answer_that_is_no_outage_is_one() {
    let bench = open_after(3);
    for answer in [None, Some(ErrorKind::Corrupt), Some(ErrorKind::Bug)] {
        for _ in 0..2 {
            bench.faults.inject(Fault::refuse(ErrorKind::Timeout));
            assert_eq!(source(&bench.limiter).await, Source::Policy);
        }
        if let Some(kind) = answer {
            bench.faults.inject(Fault::refuse(kind));
        }
        let _ = bench.limiter.check("key").await;
        assert_eq!(bench.limiter.breaker_state(), Some(BreakerState::Closed));
    }
}

#[tokio::test]
async fn one_probe_waits_for_the_store_and_nobody_else() {
    let bench = open_after(1);
    down(&bench);
    let _ = source(&bench.limiter).await;
    bench.faults.clear();
    bench.faults.inject(Fault::hang().always());
    bench.clock.advance(SECOND);
    let limiter = bench.limiter.clone();
    let probe = tokio::spawn(async move { source(&limiter).await });
    bench.faults.until_hanging(1).await;
    assert_eq!(bench.limiter.breaker_state(), Some(BreakerState::HalfOpen));
    for _ in 0..100 {
        assert_eq!(source(&bench.limiter).await, Source::Policy);
    }
    assert_eq!((bench.asked(), bench.faults.hanging(), bench.clock.sleeping()), (2, 1, 1));
    bench.faults.release();
    assert_eq!(probe.await.unwrap(), Source::Store);
    assert_eq!(bench.limiter.breaker_state(), Some(BreakerState::Closed));
}

#[tokio::test]
async fn a_probe_that_stalls_pays_the_deadline_and_opens_it_again() {
    let bench = open_after(1);
    down(&bench);
    let _ = source(&bench.limiter).await;
    bench.faults.clear();
    bench.faults.inject(Fault::hang().always());
    bench.clock.advance(SECOND);
    assert_eq!(bench.passing(SECOND, source(&bench.limiter)).await, Source::Policy);
    assert_eq!(bench.limiter.breaker_state(), Some(BreakerState::Open));
}

#[tokio::test]
async fn a_cancelled_probe_does_not_leave_it_half_open() {
    let bench = open_after(1);
    down(&bench);
    let _ = source(&bench.limiter).await;
    bench.faults.clear();
    bench.faults.inject(Fault::hang());
    bench.clock.advance(SECOND);
    let limiter = bench.limiter.clone();
    let probe = tokio::spawn(async move { source(&limiter).await });
    bench.faults.until_hanging(1).await;
    probe.abort();
    assert!(probe.await.unwrap_err().is_cancelled());
    assert_eq!(bench.limiter.breaker_state(), Some(BreakerState::Open));
    assert_eq!(source(&bench.limiter).await, Source::Policy, "not one after the other");
    bench.clock.advance(SECOND);
    assert_eq!(source(&bench.limiter).await, Source::Store);
}

#[tokio::test]
async fn answers_to_what_was_asked_before_the_change_do_not_count() {
    let bench = open_after(2);
    bench.faults.inject(Fault::hang().nth(1));
    bench.faults.inject(Fault::hang().nth(1));
    let limiter = bench.limiter.clone().deadline(10 * SECOND);
    let late = tokio::spawn(async move { source(&limiter).await });
    bench.faults.until_hanging(1).await;
    down(&bench);
    for _ in 0..2 {
        let _ = source(&bench.limiter).await;
    }
    bench.faults.clear();
    bench.faults.release();
    assert_eq!(late.await.unwrap(), Source::Store);
    assert_eq!(bench.limiter.breaker_state(), Some(BreakerState::Open), "only a probe closes it");
}

#[tokio::test]
async fn a_clock_that_steps_back_does_not_keep_it_open() {
    let bench = open_after(1);
    down(&bench);
    let _ = source(&bench.limiter).await;
    bench.faults.clear();
    bench.clock.step_back(MILLI);
    assert_eq!(source(&bench.limiter).await, Source::Policy, "a small step is no pause");
    bench.clock.step_back(3_600 * SECOND);
    assert_eq!(source(&bench.limiter).await, Source::Store);
}

#[tokio::test]
async fn limiters_on_one_store_can_share_it() {
    let bench = open_after(2);
    let shared = Breaker::builder().name("main-store").failures(2).build().unwrap();
    let first = bench.limiter.clone().breaker(shared.clone());
    let second = bench.limiter.clone().breaker(shared.clone());
    down(&bench);
    let _ = (source(&first).await, source(&second).await);
    assert_eq!(shared.state(), BreakerState::Open);
    let _ = (source(&first).await, source(&second).await);
    assert_eq!(bench.asked(), 2);
    assert!(bench.journal.take().contains(&"main-store: closed to open".to_owned()));
}

/// Asks everything of the limiter while it is told.
struct Curious(parking_lot::Mutex<Option<RateLimiter<Store>>>);

impl Observer for Curious {
    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        let limiter = self.0.lock().clone().unwrap();
        assert_eq!(limiter.breaker_state(), Some(event.to));
        let _ = limiter.blocking().check("other").unwrap();
    }
}

#[tokio::test]
async fn who_is_told_may_ask_the_limiter() {
    let curious = Arc::new(Curious(parking_lot::Mutex::new(None)));
    let store = Guarded::new(FaultyBackend::new(ReferenceBackend::default()));
    store.get_ref().faults().inject(Fault::refuse(ErrorKind::Connection).always());
    let limiter = RateLimiter::on(super::policy("gcra 9/h"), store)
        .on_failure(FailurePolicy::FailOpen)
        .breaker(breaker(1))
        .observe(Arc::clone(&curious));
    *curious.0.lock() = Some(limiter.clone());
    let _ = limiter.check("key").await.unwrap();
    settle().await;
    assert_eq!((limiter.breaker_state(), limiter.counts().observer_panics), (Some(BreakerState::Open), 0));
    assert_eq!(limiter.counts().failed_open, 2, "the check, and the one of the observer");
    *curious.0.lock() = None;
}

#[test]
fn it_comes_along_unless_one_was_chosen_in_whichever_order() {
    let state = |options: fn(RateLimiter<Store>) -> RateLimiter<Store>| {
        Bench::of("gcra 9/h", options).limiter.breaker_state()
    };
    let closed = Some(BreakerState::Closed);
    assert_eq!(state(|limiter| limiter.on_failure(FailurePolicy::FailOpen)), closed);
    assert_eq!(state(|limiter| limiter.on_failure(FailurePolicy::FailOpen).breaker(None)), None);
    assert_eq!(state(|limiter| limiter.breaker(None).on_failure(FailurePolicy::FailOpen)), None);
    let back = |limiter: RateLimiter<Store>| {
        limiter.on_failure(FailurePolicy::FailOpen).on_failure(FailurePolicy::Propagate)
    };
    assert_eq!(state(back), None, "it goes as it came");
    let kept = |limiter: RateLimiter<Store>| limiter.breaker(breaker(1)).on_failure(FailurePolicy::Propagate);
    assert_eq!(state(kept), closed);
}

#[tokio::test]
async fn another_policy_keeps_the_breaker_that_came_along() {
    let bench = Bench::of("gcra 9/h", |limiter| limiter.on_failure(FailurePolicy::FailOpen));
    down(&bench);
    for _ in 0..5 {
        let _ = source(&bench.limiter).await;
    }
    let closed = bench.limiter.clone().on_failure(FailurePolicy::FailClosed);
    assert_eq!((closed.breaker_state(), source(&closed).await), (Some(BreakerState::Open), Source::Policy));
    assert_eq!(bench.asked(), 5);
}

#[test]
fn what_cannot_be_a_breaker_is_refused() {
    let setting = |built: Result<Breaker, SetupError>| match built {
        Err(SetupError::Setting { setting, .. }) => setting,
        other => panic!("{other:?}"),
    };
    assert_eq!(setting(Breaker::builder().failures(0).build()), "failures");
    assert_eq!(setting(Breaker::builder().pauses(std::time::Duration::ZERO, SECOND).build()), "base");
    assert_eq!(setting(Breaker::builder().pauses(2 * SECOND, SECOND).build()), "cap");
}
