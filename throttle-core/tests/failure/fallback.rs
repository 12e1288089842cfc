//! Another limiter in place of the store.

use throttle_core::{ErrorKind, FailurePolicy, KeyList, RateLimiter, Reserve, Source};
use throttle_testkit::{Fault, FaultyBackend, ReferenceBackend};

use super::{Bench, SECOND, local, policy, settle};

type Local = RateLimiter<throttle_core::Guarded<ReferenceBackend>>;

/// A limiter of `rule` on the store that falls back on one of `other`.
fn with_fallback(rule: &str, other: &str) -> (Bench, Local) {
    let mut bench = Bench::of(rule, |limiter| limiter);
    let local = local(other, &bench.clock);
    bench.limiter = bench.limiter.on_failure(FailurePolicy::fallback(local.clone())).breaker(None);
    (bench, local)
}

fn outage(bench: &Bench) {
    bench.faults.inject(Fault::refuse(ErrorKind::Connection).always());
}

async fn left_of(local: &Local) -> u32 {
    local.peek_n("key", 0).await.unwrap().remaining()
}

#[tokio::test]
async fn o_75_it_answers_for_a_store_that_fails_and_never_for_one_that_denies() {
    let (bench, local) = with_fallback("gcra 2/s", "gcra 100/s");
    assert!(bench.limiter.check_n("key", 3).await.unwrap().is_never(), "more than the policy can hold");
    assert!(bench.limiter.check_n("key", 2).await.unwrap().is_allowed());
    let denial = bench.limiter.check_n("key", 1).await.unwrap();
    assert_eq!((denial.is_allowed(), denial.source()), (false, Source::Store));
    assert_eq!((left_of(&local).await, bench.limiter.counts().fell_back), (100, 0), "it was not asked");
}

#[tokio::test]
async fn it_answers_every_call() {
    let (bench, local) = with_fallback("gcra 100/h", "gcra 25/h");
    outage(&bench);
    let limiter = &bench.limiter;
    let remaining = |decision: throttle_core::Decision| {
        assert_eq!(decision.source(), Source::Fallback);
        decision.remaining()
    };
    assert_eq!(remaining(limiter.check("key").await.unwrap()), 24);
    assert_eq!(remaining(limiter.peek_n("key", 0).await.unwrap()), 24);
    assert_eq!(remaining(limiter.acquire_n("key", 4, SECOND).await.unwrap()), 20);
    assert_eq!(remaining(limiter.refund("key", 1).await.unwrap()), 21);
    assert_eq!(limiter.take_up_to("key", 30).await.unwrap().units(), 21);
    let denial = limiter.check("key").await.unwrap();
    assert_eq!((denial.is_allowed(), denial.source()), (false, Source::Fallback));
    assert!(limiter.reset("key").await.unwrap(), "forgotten there");
    assert_eq!(left_of(&local).await, 25);
    let _ = limiter.check("key").await.unwrap();
    assert_eq!(limiter.reset_all().await.unwrap_or(0), 1);
    bench.faults.clear();
    assert_eq!(bench.left("key").await, 100, "nothing of it reached the store");
}

#[tokio::test]
async fn a_reset_reaches_both_while_the_store_answers() {
    let (bench, local) = with_fallback("gcra 10/h", "gcra 2/h");
    outage(&bench);
    let _ = bench.limiter.check_n("key", 2).await.unwrap();
    bench.faults.clear();
    assert!(!bench.limiter.reset("key").await.unwrap(), "the store's answer: it had nothing to forget");
    assert_eq!(left_of(&local).await, 2);
}

#[tokio::test]
async fn units_go_back_to_where_they_came_from() {
    let (bench, local) = with_fallback("gcra 10/h", "gcra 8/h");
    let Reserve::Held(of_store) = bench.limiter.reserve("key", 3).await.unwrap() else { panic!("denied") };
    outage(&bench);
    let Reserve::Held(dropped) = bench.limiter.reserve("key", 3).await.unwrap() else { panic!("denied") };
    let Reserve::Held(more) = bench.limiter.reserve("key", 1).await.unwrap() else { panic!("denied") };
    let Reserve::Held(less) = bench.limiter.reserve("key", 2).await.unwrap() else { panic!("denied") };
    assert_eq!((left_of(&local).await, dropped.units()), (2, 3));
    bench.faults.clear();
    drop(dropped);
    settle().await;
    assert_eq!((left_of(&local).await, bench.left("key").await), (5, 7));
    assert_eq!(less.release().await.unwrap().source(), Source::Fallback);
    assert_eq!(more.commit(4).await.unwrap().remaining(), 4);
    assert_eq!((left_of(&local).await, bench.left("key").await), (4, 7));
    assert_eq!(of_store.release().await.unwrap().source(), Source::Store);
    assert_eq!((left_of(&local).await, bench.left("key").await), (4, 10));
}

#[tokio::test]
async fn what_open_admitted_gives_the_store_nothing_back() {
    let bench = Bench::of("gcra 10/h", |limiter| limiter.on_failure(FailurePolicy::FailOpen));
    let _ = bench.limiter.check_n("key", 6).await.unwrap();
    outage(&bench);
    let Reserve::Held(dropped) = bench.limiter.reserve("key", 5).await.unwrap() else { panic!("denied") };
    let Reserve::Held(settled) = bench.limiter.reserve("key", 5).await.unwrap() else { panic!("denied") };
    bench.faults.clear();
    drop(dropped);
    settle().await;
    assert_eq!(bench.left("key").await, 4);
    assert_eq!(settled.commit(1).await.unwrap().remaining(), 3, "what was used is charged all the same");
}

#[tokio::test]
async fn more_than_the_share_can_hold_is_denied_and_not_for_ever() {
    let (bench, _) = with_fallback("gcra 100/h", "gcra 25/h");
    outage(&bench);
    let denial = bench.limiter.check_n("key", 26).await.unwrap();
    assert!(!denial.is_allowed() && !denial.is_never());
    assert_eq!((denial.source(), denial.retry_after()), (Source::Fallback, Some(SECOND)));
    bench.faults.clear();
    assert!(bench.limiter.check_n("key", 26).await.unwrap().is_allowed());
}

#[tokio::test]
async fn if_it_fails_too_the_error_is_that_of_the_store() {
    let second = FaultyBackend::new(ReferenceBackend::default());
    second.faults().inject(Fault::refuse(ErrorKind::Overloaded).always());
    let second = RateLimiter::new(policy("gcra 5/h"), second);
    let bench = Bench::of("gcra 10/h", |limiter| limiter.on_failure(FailurePolicy::fallback(second.clone())));
    outage(&bench);
    assert_eq!(bench.limiter.check("key").await.unwrap_err().kind(), ErrorKind::Connection);
    let reset = bench.limiter.reset("key").await;
    assert_eq!(reset.unwrap_err().kind(), ErrorKind::Connection);
}

#[tokio::test]
async fn it_can_have_a_policy_and_lists_of_its_own() {
    let second = FaultyBackend::new(ReferenceBackend::default());
    second.faults().inject(Fault::refuse(ErrorKind::Overloaded).always());
    let second = RateLimiter::new(policy("gcra 5/h"), second)
        .on_failure(FailurePolicy::FailOpen)
        .block(KeyList::new().keys(["mallory"]));
    let bench = Bench::of("gcra 10/h", |limiter| limiter.on_failure(FailurePolicy::fallback(second)));
    outage(&bench);
    let decision = bench.limiter.check("key").await.unwrap();
    assert_eq!((decision.is_allowed(), decision.source()), (true, Source::Fallback));
    assert!(bench.limiter.check("mallory").await.unwrap().is_never());
}

#[tokio::test]
async fn what_the_store_took_never_goes_back_to_a_fallback() {
    let (bench, local) = with_fallback("gcra 100/h", "gcra 25/h");
    let held = async |units| bench.limiter.reserve("key", units).await.unwrap().into_result().unwrap();
    let (dropped, released, less, equal) = (held(30).await, held(20).await, held(20).await, held(1).await);
    let more = held(1).await;
    outage(&bench);
    assert!(bench.limiter.check_n("key", 24).await.unwrap().is_allowed());
    drop(dropped);
    settle().await;
    for settled in [released.release().await, less.commit(3).await, equal.commit(1).await] {
        let settled = settled.unwrap();
        assert!(settled.is_allowed(), "done, as far as anybody can");
        assert_eq!((settled.source(), settled.remaining()), (Source::Fallback, 1));
    }
    assert_eq!(more.commit(2).await.unwrap().remaining(), 0, "what is missing is charged there");
    assert_eq!(left_of(&local).await, 0, "it admits its share and no more");
    bench.faults.clear();
    assert_eq!(bench.left("key").await, 28, "what the store took comes back with time");
}

#[tokio::test]
async fn units_go_back_through_a_chain_of_fallbacks_to_where_they_came_from() {
    let mut bench = Bench::of("gcra 100/h", |limiter| limiter);
    let store = FaultyBackend::new(ReferenceBackend::default()).with_clock(bench.clock.clone());
    let (second_faults, last) = (store.faults(), local("gcra 10/h", &bench.clock));
    let second = RateLimiter::new(policy("gcra 50/h"), store)
        .with_clock(bench.clock.clone())
        .on_failure(FailurePolicy::fallback(last.clone()))
        .breaker(None);
    bench.limiter = bench.limiter.on_failure(FailurePolicy::fallback(second.clone())).breaker(None);
    outage(&bench);
    let held = async |units| bench.limiter.reserve("key", units).await.unwrap().into_result().unwrap();
    let (of_second, also) = (held(20).await, held(5).await);
    second_faults.inject(Fault::refuse(ErrorKind::Connection).always());
    let (of_last, last_too) = (held(6).await, held(1).await);
    assert_eq!(left_of(&last).await, 3);
    drop(of_second);
    settle().await;
    assert_eq!(also.release().await.unwrap().remaining(), 3);
    assert_eq!(left_of(&last).await, 3, "it never took them");
    second_faults.clear();
    bench.faults.clear();
    drop(of_last);
    settle().await;
    assert_eq!(last_too.release().await.unwrap().remaining(), 10);
    let left_of_second = second.peek_n("key", 0).await.unwrap().remaining();
    assert_eq!((left_of(&last).await, left_of_second, bench.left("key").await), (10, 25, 100));
}

#[tokio::test]
async fn what_a_fallback_admits_without_taking_it_is_not_given_back() {
    for shadow in [false, true] {
        let mut bench = Bench::of("gcra 100/h", |limiter| limiter);
        let store = FaultyBackend::new(ReferenceBackend::default()).with_clock(bench.clock.clone());
        let (faults, clock) = (store.faults(), bench.clock.clone());
        let second = RateLimiter::new(policy("gcra 50/h"), store).with_clock(clock).breaker(None);
        let second = if shadow { second.shadow() } else { second.on_failure(FailurePolicy::FailOpen) };
        bench.limiter = bench.limiter.on_failure(FailurePolicy::fallback(second.clone())).breaker(None);
        outage(&bench);
        assert!(bench.limiter.check_n("key", 50).await.unwrap().is_allowed());
        if !shadow {
            faults.inject(Fault::refuse(ErrorKind::Connection).always());
        }
        let Reserve::Held(held) = bench.limiter.reserve("key", 9).await.unwrap() else { panic!("denied") };
        assert_eq!((held.units(), held.decision().source()), (0, Source::Fallback));
        faults.clear();
        drop(held);
        settle().await;
        assert_eq!(second.peek_n("key", 0).await.unwrap().remaining(), 0, "shadow: {shadow}");
    }
}
