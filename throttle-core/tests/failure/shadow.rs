//! A limiter that denies nobody.

use throttle_core::{Decision, ErrorKind, FailurePolicy, KeyList, Policy, RateLimiter, Reserve, Source};
use throttle_testkit::{Fault, ReferenceBackend};

use super::{Bench, SECOND, local};

fn shadow() -> Bench {
    Bench::of("gcra 2/h", |limiter| limiter.shadow().block(KeyList::new().keys(["mallory"])))
}

fn would_deny(decision: &Decision) {
    assert!(decision.is_allowed() && decision.would_deny() && !decision.is_never(), "{decision:?}");
    assert_eq!((decision.retry_after(), decision.delay()), (None, std::time::Duration::ZERO));
}

#[tokio::test]
async fn every_call_is_allowed_and_says_what_it_would_have_been() {
    let bench = shadow();
    let limiter = &bench.limiter;
    let first = limiter.check_n("key", 2).await.unwrap();
    assert!(first.is_allowed() && !first.would_deny());
    let denied = limiter.check("key").await.unwrap();
    would_deny(&denied);
    assert_eq!((denied.remaining(), denied.rules()[0].is_allowed()), (0, false));
    would_deny(&limiter.check_n("key", 3).await.unwrap());
    would_deny(&limiter.peek("key").await.unwrap());
    would_deny(&limiter.check("mallory").await.unwrap());
    would_deny(&limiter.acquire("key", 60 * SECOND).await.unwrap());
    let taken = limiter.take_up_to("key", 5).await.unwrap();
    would_deny(taken.decision());
    assert_eq!(taken.units(), 5);
    let Reserve::Held(held) = limiter.reserve("key", 1).await.unwrap() else { panic!("denied") };
    assert_eq!(held.units(), 0, "nothing was taken, nothing goes back");
    would_deny(&held.commit(1).await.unwrap());
    assert_eq!(limiter.counts().would_deny, 8);
    assert_eq!(bench.left("key").await, 0);
    assert!(bench.journal.take().contains(&"check 1 would deny by store".to_owned()));
}

#[tokio::test]
async fn nobody_waits_in_a_queue_either() {
    let bench = Bench::of("leaky_bucket 1/s queue 10s", RateLimiter::shadow);
    for place in 0..4 {
        let decision = bench.limiter.acquire("key", 60 * SECOND).await.unwrap();
        assert_eq!(decision.delay(), place * SECOND, "what it would have waited");
    }
    assert_eq!(bench.clock.sleeping(), 0);
}

#[tokio::test]
async fn an_outage_denies_nobody_if_a_policy_answers() {
    let bench = Bench::of("gcra 2/h", |limiter| limiter.shadow().on_failure(FailurePolicy::FailClosed));
    bench.faults.inject(Fault::refuse(ErrorKind::Connection).always());
    let decision = bench.limiter.check("key").await.unwrap();
    would_deny(&decision);
    assert_eq!(decision.source(), Source::Policy);
    let plain = bench.limiter.clone().on_failure(FailurePolicy::Propagate);
    assert_eq!(plain.check("key").await.unwrap_err().kind(), ErrorKind::Connection);
}

#[tokio::test]
async fn it_counts_as_a_limiter_that_enforces() {
    let bench = shadow();
    let store = ReferenceBackend::default();
    let enforcing = local("gcra 3 per 10s", &bench.clock);
    let policy: Policy = enforcing.policy().clone();
    let watching = RateLimiter::new(policy.clone(), store.clone()).with_clock(bench.clock.clone()).shadow();
    for step in 0..50_u64 {
        let cost = u32::try_from(step % 4).unwrap();
        let (enforced, watched) =
            (enforcing.check_n("k", cost).await.unwrap(), watching.check_n("k", cost).await.unwrap());
        assert!(watched.is_allowed());
        assert_eq!(
            (watched.would_deny(), watched.remaining()),
            (!enforced.is_allowed(), enforced.remaining())
        );
        let state = |backend: &ReferenceBackend| backend.state(policy.name(), "k");
        assert_eq!(state(&store), state(enforcing.store().get_ref()));
        bench.clock.advance(SECOND * u32::try_from(step % 3).unwrap());
    }
    assert!(watching.counts().would_deny > 5);
}
