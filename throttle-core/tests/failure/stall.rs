//! A store that stalls, and a thousand callers.

use std::time::Duration;

use futures_util::future::join_all;
use throttle_core::{BreakerState, Clock, FailurePolicy, Source};
use throttle_testkit::Fault;

use super::{Bench, SECOND, breaker, settle};

const CALLERS: usize = 1_000;

fn stalled() -> Bench {
    let bench = Bench::of("gcra 100000/h", |limiter| {
        limiter.on_failure(FailurePolicy::FailOpen).deadline(SECOND).breaker(breaker(5))
    });
    bench.faults.inject(Fault::hang().always());
    bench
}

/// How long each of a crowd waited.
async fn crowd(bench: &Bench) -> Vec<Duration> {
    let call = |_| {
        let (limiter, clock) = (bench.limiter.clone(), bench.clock.clone());
        tokio::spawn(async move {
            let since = clock.now();
            assert_eq!(limiter.check("key").await.unwrap().source(), Source::Policy);
            clock.now().saturating_since(since)
        })
    };
    let calls: Vec<_> = (0..CALLERS).map(call).collect();
    bench.passing(SECOND / 4, join_all(calls)).await.into_iter().map(Result::unwrap).collect()
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn o_71_those_who_come_at_once_pay_one_deadline_and_those_who_come_later_none() {
    let bench = stalled();
    let before = alive();
    let waits = crowd(&bench).await;
    assert!(waits.iter().all(|wait| *wait == SECOND), "one deadline each");
    assert_eq!((bench.asked(), bench.limiter.breaker_state()), (CALLERS, Some(BreakerState::Open)));
    let waits = crowd(&bench).await;
    assert!(waits.iter().all(Duration::is_zero), "none");
    settle().await;
    assert_eq!((bench.asked(), bench.faults.hanging(), bench.clock.sleeping()), (CALLERS, 0, 0));
    assert_eq!(alive(), before, "no task is left");
}

#[tokio::test]
async fn those_who_come_one_after_the_other_pay_until_it_opens() {
    let bench = stalled();
    let mut waits = Vec::new();
    for _ in 0..CALLERS {
        let since = bench.clock.now();
        let _ = bench.passing(SECOND, bench.limiter.check("key")).await.unwrap();
        waits.push(bench.clock.now().saturating_since(since));
    }
    assert_eq!(waits.iter().filter(|wait| !wait.is_zero()).count(), 5);
    assert!(waits[..5].iter().all(|wait| *wait == SECOND));
    assert_eq!(bench.asked(), 5);
}

#[tokio::test]
async fn while_it_stalls_on_one_caller_per_pause_is_delayed() {
    let bench = stalled();
    let _ = crowd(&bench).await;
    let asked = bench.asked();
    for round in 1..=10 {
        bench.clock.advance(SECOND);
        let waits = crowd(&bench).await;
        assert_eq!(waits.iter().filter(|wait| !wait.is_zero()).count(), 1, "the probe");
        assert_eq!(bench.asked(), asked + round);
    }
    bench.faults.clear();
    bench.clock.advance(SECOND);
    assert_eq!(bench.limiter.check("key").await.unwrap().source(), Source::Store, "back without a restart");
}

#[tokio::test]
async fn acquire_and_reserve_pile_up_no_tasks() {
    let bench = stalled();
    let before = alive();
    let calls = (0..CALLERS).map(|place| {
        let limiter = bench.limiter.clone();
        tokio::spawn(async move {
            match place % 2 {
                0 => limiter.acquire("key", SECOND).await.unwrap().is_allowed(),
                _ => matches!(limiter.reserve("key", 1).await.unwrap(), throttle_core::Reserve::Held(_)),
            }
        })
    });
    let calls: Vec<_> = calls.collect();
    bench.faults.until_hanging(CALLERS).await;
    calls.iter().take(CALLERS / 2).for_each(tokio::task::JoinHandle::abort);
    settle().await;
    bench.clock.advance(SECOND);
    for call in calls.into_iter().skip(CALLERS / 2) {
        assert!(call.await.unwrap());
    }
    settle().await;
    assert_eq!((alive(), bench.faults.hanging(), bench.clock.sleeping()), (before, 0, 0));
}
