//! What a limiter is asked besides waiting, and what it passes on.

use throttle_core::{AnyStore, Effect, ErrorKind, Guarded, Operation, Policy, RateLimiter, Rule};
use throttle_testkit::{Fault, FaultyBackend, ReferenceBackend};

use super::{Bench, SECOND};

#[tokio::test]
async fn take_up_to_takes_what_there_is() {
    let bench = Bench::of("gcra 5 per 5s");
    let some = bench.limiter.take_up_to("key", 3).await.unwrap();
    assert_eq!((some.units(), some.decision().is_allowed(), some.decision().remaining()), (3, true, 2));
    let rest = bench.limiter.take_up_to("key", 3).await.unwrap();
    assert_eq!((rest.units(), rest.decision().is_allowed()), (2, false));
    assert_eq!(rest.decision().retry_after(), Some(SECOND), "for one more");
    let none = bench.limiter.take_up_to("key", 3).await.unwrap();
    assert_eq!((none.units(), none.decision().retry_after()), (0, Some(SECOND)));
    let nothing = bench.limiter.take_up_to("key", 0).await.unwrap();
    assert_eq!((nothing.units(), nothing.decision().is_allowed()), (0, true));
    assert_eq!(bench.asked(), 4, "one call each");
}

#[tokio::test]
async fn o_41_taking_up_to_from_a_debt_takes_nothing() {
    let bench = Bench::of("token_bucket 50/s queue 1s");
    let _ = bench.limiter.check_n("key", 50).await.unwrap();
    let waiter = bench.spawn_acquire(SECOND);
    bench.until_sleeping(1).await;
    let taken = bench.limiter.take_up_to("key", 20).await.unwrap();
    assert_eq!((taken.units(), taken.decision().remaining()), (0, 0));
    waiter.abort();
}

#[tokio::test]
async fn reset_forgets_one_key_and_reset_all_every_one() {
    let bench = Bench::of("gcra 5/h; sliding_window 5/h");
    for key in ["key", "other", "third"] {
        let _ = bench.limiter.check_n(key, 5).await.unwrap();
    }
    assert!(bench.limiter.reset("key").await.unwrap());
    assert!(!bench.limiter.reset("key").await.unwrap());
    assert_eq!(bench.remaining().await, 5);
    assert!(!bench.limiter.check("other").await.unwrap().is_allowed());
    assert_eq!(bench.limiter.reset_all().await.unwrap(), 2);
    assert!(bench.limiter.check("other").await.unwrap().is_allowed());
}

#[tokio::test]
async fn any_store_answers_alike() {
    let policy = Policy::new("any", [Rule::gcra("2/h").unwrap()]).unwrap();
    let bench = Bench::of("gcra 2/h");
    let store = AnyStore::new(Guarded::new(ReferenceBackend::default()));
    let any = RateLimiter::on(policy, store).with_clock(bench.clock.clone());
    for _ in 0..3 {
        assert_eq!(any.check("key").await.unwrap(), bench.limiter.check("key").await.unwrap());
    }
    assert_eq!(any.peek("key").await.unwrap(), bench.limiter.peek("key").await.unwrap());
    assert!(any.reset("key").await.unwrap());
    assert!(any.acquire("key", SECOND).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_denial_is_an_error_only_for_those_who_ask() {
    let bench = Bench::of("gcra 1/s burst 1");
    assert!(bench.limiter.check("key").await.unwrap().into_result().unwrap().is_allowed());
    let limited = bench.limiter.check("key").await.unwrap().into_result().unwrap_err();
    assert_eq!(limited.to_string(), "rate limited: retry after 1s");
    assert_eq!(limited.decision().retry_after(), Some(SECOND));
    let never = bench.limiter.check_n("key", 2).await.unwrap().into_result().unwrap_err();
    assert_eq!(never.to_string(), "rate limited: the cost is above the capacity of 1");
}

#[tokio::test]
async fn a_failing_store_is_the_one_error_of_every_call() {
    let bench = Bench::of("gcra 5/h");
    let limiter = &bench.limiter;
    bench.faults.inject(Fault::lose_reply(ErrorKind::Timeout).always());
    for (operation, error) in [
        (Operation::Decide, limiter.check("key").await.unwrap_err()),
        (Operation::Decide, limiter.peek("key").await.unwrap_err()),
        (Operation::Decide, limiter.take_up_to("key", 2).await.unwrap_err()),
        (Operation::Decide, limiter.refund("key", 1).await.unwrap_err()),
        (Operation::Decide, limiter.acquire("key", SECOND).await.unwrap_err()),
        (Operation::Reset, limiter.reset("key").await.unwrap_err()),
        (Operation::ResetPolicy, limiter.reset_all().await.unwrap_err()),
    ] {
        assert_eq!((error.operation(), error.kind()), (operation, ErrorKind::Timeout));
        assert_eq!((error.effect(), error.backend()), (Effect::Unknown, "reference"));
    }
}

#[tokio::test]
async fn a_lost_reply_is_not_sent_again() {
    let bench = Bench::of("gcra 5/h");
    bench.faults.inject(Fault::lose_reply(ErrorKind::Connection));
    bench.limiter.acquire("key", SECOND).await.unwrap_err();
    assert_eq!((bench.asked(), bench.remaining().await), (1, 4));
}

#[tokio::test]
async fn clones_share_and_other_policies_do_not() {
    let store = FaultyBackend::new(ReferenceBackend::default());
    let rule = Rule::gcra("1/h").unwrap();
    let one = RateLimiter::new(Policy::new("one", [rule]).unwrap(), store.clone());
    let two = RateLimiter::new(Policy::new("two", [rule]).unwrap(), store);
    assert!(one.check("key").await.unwrap().is_allowed());
    assert!(!one.clone().check("key").await.unwrap().is_allowed());
    assert!(two.check("key").await.unwrap().is_allowed());
}
