//! Each policy, at each call, under each fault.

use throttle_core::{BreakerState, Effect, ErrorKind, FailurePolicy, Reserve, Source, StoreUnavailableError};
use throttle_testkit::Fault;

use super::{Bench, SECOND, local};

type Fails = Fault<std::convert::Infallible>;

/// Every fault of the store, with its kind as the limiter sees it and what the store has charged.
fn faults() -> Vec<(Fails, ErrorKind, u32)> {
    let refuse = ErrorKind::ALL.iter().map(|kind| (Fault::refuse(*kind).always(), *kind, 0));
    let lose = ErrorKind::ALL.iter().map(|kind| (Fault::lose_reply(*kind).always(), *kind, 1));
    let slow = [
        (Fault::hang().always(), ErrorKind::Timeout, 0),
        (Fault::hang_after_effect().always(), ErrorKind::Timeout, 1),
        (Fault::delay(2 * SECOND).always(), ErrorKind::Timeout, 0),
    ];
    refuse.chain(lose).chain(slow).collect()
}

#[tokio::test]
async fn each_fault_is_answered_by_the_policy_if_it_is_an_outage_and_else_returned() {
    for (fault, kind, charged) in faults() {
        for policy in ["propagate", "open", "closed", "fallback"] {
            let bench = Bench::of("gcra 10/h", |limiter| limiter.deadline(SECOND));
            let policy_set = match policy {
                "propagate" => FailurePolicy::Propagate,
                "open" => FailurePolicy::FailOpen,
                "closed" => FailurePolicy::FailClosed,
                _ => FailurePolicy::fallback(local("gcra 4/h", &bench.clock)),
            };
            let limiter = bench.limiter.clone().on_failure(policy_set);
            bench.faults.inject(fault.clone());
            let answer = bench.passing(SECOND / 4, limiter.check("key")).await;
            let context = format!("{policy} under {fault:?}");
            let told =
                answer.map(|decision| (decision.is_allowed(), decision.remaining(), decision.source()));
            match (policy, kind.is_outage()) {
                ("open", true) => assert_eq!(told.unwrap(), (true, 9, Source::Policy), "{context}"),
                ("closed", true) => assert_eq!(told.unwrap(), (false, 0, Source::Policy), "{context}"),
                ("fallback", true) => assert_eq!(told.unwrap(), (true, 3, Source::Fallback), "{context}"),
                _ => assert_eq!(told.unwrap_err().kind(), kind, "{context}"),
            }
            assert_eq!(bench.asked(), 1, "asked once: {context}");
            bench.faults.clear();
            assert_eq!(bench.left("key").await, 10 - charged, "{context}");
        }
    }
}

#[tokio::test]
async fn a_store_that_is_slow_within_the_deadline_decides() {
    let bench =
        Bench::of("gcra 10/h", |limiter| limiter.deadline(SECOND).on_failure(FailurePolicy::FailOpen));
    bench.faults.inject(Fault::delay(SECOND / 2).always());
    let decision = bench.passing(SECOND / 4, bench.limiter.check("key")).await.unwrap();
    assert_eq!((decision.source(), decision.remaining()), (Source::Store, 9));
    assert_eq!(bench.clock.sleeping(), 0, "nobody waits for the rest of the deadline");
}

fn kind<T: std::fmt::Debug>(answer: Result<T, StoreUnavailableError>) -> ErrorKind {
    answer.unwrap_err().kind()
}

#[tokio::test]
async fn open_allows_every_call_and_counts_none() {
    let bench = Bench::of("gcra 10/h", |limiter| limiter.on_failure(FailurePolicy::FailOpen).breaker(None));
    let limiter = &bench.limiter;
    bench.faults.inject(Fault::refuse(ErrorKind::Connection).always());
    for (decision, remaining) in [
        (limiter.check_n("key", 4).await.unwrap(), 6),
        (limiter.peek_n("key", 4).await.unwrap(), 10),
        (limiter.acquire_n("key", 4, SECOND).await.unwrap(), 6),
    ] {
        assert!(decision.is_allowed() && decision.source() == Source::Policy);
        assert_eq!((decision.limit(), decision.remaining(), decision.retry_after()), (10, remaining, None));
        assert!(decision.delay().is_zero() && decision.rules().len() == 1);
    }
    let taken = limiter.take_up_to("key", 50).await.unwrap();
    assert_eq!((taken.units(), taken.decision().remaining()), (50, 0));
    assert_eq!(limiter.refund("key", 2).await.unwrap().remaining(), 10);
    let Reserve::Held(held) = limiter.reserve("key", 3).await.unwrap() else { panic!("denied") };
    assert_eq!(held.units(), 0);
    assert!(held.commit(5).await.unwrap().is_allowed());
    assert_eq!(kind(limiter.reset("key").await), ErrorKind::Connection, "nobody can say it is done");
    assert_eq!(kind(limiter.reset_all().await), ErrorKind::Connection);
    assert!(limiter.check_n("key", 11).await.unwrap().is_never(), "no store is needed for that");
    bench.faults.clear();
    assert_eq!(bench.left("key").await, 10);
    assert_eq!(limiter.counts().failed_open, 7);
}

#[tokio::test]
async fn closed_denies_every_call_until_the_store_is_asked_again() {
    let bench = Bench::of("gcra 10/h", |limiter| {
        limiter.on_failure(FailurePolicy::FailClosed).breaker(super::breaker(4))
    });
    let limiter = &bench.limiter;
    bench.faults.inject(Fault::refuse(ErrorKind::Connection).always());
    for decision in [
        limiter.check("key").await.unwrap(),
        limiter.check_n("key", 0).await.unwrap(),
        limiter.peek("key").await.unwrap(),
    ] {
        assert!(!decision.is_allowed() && !decision.is_never() && decision.source() == Source::Policy);
        assert_eq!((decision.limit(), decision.remaining()), (10, 0));
        assert_eq!((decision.retry_after(), decision.reset_after()), (Some(SECOND), SECOND));
    }
    let taken = limiter.take_up_to("key", 50).await.unwrap();
    assert_eq!((taken.units(), taken.decision().is_allowed()), (0, false));
    assert_eq!(limiter.breaker_state(), Some(BreakerState::Open));
    bench.clock.advance(SECOND / 4);
    let Reserve::Denied(denial) = limiter.reserve("key", 3).await.unwrap() else { panic!("held") };
    assert_eq!(denial.retry_after(), Some(SECOND * 3 / 4), "the rest of the pause");
    assert!(!limiter.refund("key", 1).await.unwrap().is_allowed());
    assert_eq!(kind(limiter.reset("key").await), ErrorKind::Connection);
    assert_eq!((bench.asked(), limiter.counts().failed_closed), (4, 6));

    // Who can wait for longer than that waits, and is served by the store when it is back.
    bench.faults.clear();
    let decision = bench.passing(SECOND / 4, limiter.acquire("key", 2 * SECOND)).await.unwrap();
    assert_eq!((decision.source(), decision.remaining()), (Source::Store, 9));
}

#[tokio::test]
async fn what_is_no_outage_is_answered_only_if_asked_for() {
    for kind in ErrorKind::ALL.iter().copied().filter(|kind| !kind.is_outage()) {
        let bench = Bench::of("gcra 10/h", |limiter| limiter.on_failure(FailurePolicy::FailOpen));
        bench.faults.inject(Fault::refuse(kind).always());
        for _ in 0..20 {
            assert_eq!(bench.limiter.check("key").await.unwrap_err().kind(), kind);
        }
        assert_eq!(bench.limiter.breaker_state(), Some(BreakerState::Closed), "{kind}");
        let asked_for = bench.limiter.clone().also_on([kind]);
        assert_eq!(asked_for.check("key").await.unwrap().source(), Source::Policy, "{kind}");
    }
}

#[tokio::test]
async fn without_a_policy_a_breaker_still_keeps_callers_away() {
    let bench = Bench::of("gcra 10/h", |limiter| limiter.breaker(super::breaker(2)));
    bench.faults.inject(Fault::lose_reply(ErrorKind::Timeout).always());
    for effect in [Effect::Unknown, Effect::Unknown, Effect::NotApplied] {
        let error = bench.limiter.check("key").await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, effect));
    }
    let error = bench.limiter.check("key").await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap();
    assert_eq!(cause.to_string(), "the circuit breaker is open");
    assert_eq!(cause.source().unwrap().to_string(), "reference failed to decide: timeout");
    assert_eq!(bench.asked(), 2);
}

#[test]
fn the_blocking_face_is_answered_by_policy_too() {
    let bench = Bench::of("gcra 10/h", |limiter| {
        limiter.on_failure(FailurePolicy::FailOpen).deadline(SECOND).breaker(None)
    });
    bench.faults.inject(Fault::refuse(ErrorKind::NotReady).always());
    let blocking = bench.limiter.blocking();
    assert_eq!(blocking.check("key").unwrap().source(), Source::Policy);
    assert_eq!(blocking.acquire("key", SECOND).unwrap().source(), Source::Policy);
    assert_eq!(blocking.take_up_to("key", 3).unwrap().units(), 3);
    let Reserve::Held(held) = blocking.reserve("key", 3).unwrap() else { panic!("denied") };
    assert_eq!(blocking.commit(held, 1).unwrap().source(), Source::Policy);
    assert_eq!(blocking.reset("key").unwrap_err().kind(), ErrorKind::NotReady);
}
