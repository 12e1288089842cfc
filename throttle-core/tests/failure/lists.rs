//! Keys that are always allowed, or never.

use throttle_core::{KeyList, Reserve, Source};

use super::{Bench, SECOND};

fn listed() -> Bench {
    Bench::of("gcra 3/h", |limiter| {
        let allowed = KeyList::new().keys(["health"]).networks(["10.0.0.0/8"]).unwrap();
        let blocked = KeyList::new().keys(["mallory"]).networks(["10.66.0.0/16", "192.0.2.0/24"]).unwrap();
        limiter.allow(allowed).block(blocked)
    })
}

#[tokio::test]
async fn an_allowed_key_is_allowed_every_call_and_takes_nothing() {
    let bench = listed();
    let limiter = &bench.limiter;
    for key in ["health", "10.1.2.3", "::ffff:10.1.2.3"] {
        for cost in [0, 1, 3, 4, u32::MAX] {
            let decision = limiter.check_n(key, cost).await.unwrap();
            assert!(decision.is_allowed() && decision.source() == Source::AllowList, "{key} {cost}");
            assert_eq!((decision.limit(), decision.remaining()), (3, 3 - cost.min(3)));
        }
        assert_eq!(limiter.take_up_to(key, 50).await.unwrap().units(), 50);
        assert!(limiter.acquire_n(key, 3, SECOND).await.unwrap().delay().is_zero());
        let Reserve::Held(held) = limiter.reserve(key, 3).await.unwrap() else { panic!("denied") };
        assert_eq!(held.units(), 0);
        assert_eq!(held.commit(2).await.unwrap().source(), Source::AllowList);
        assert_eq!(limiter.refund(key, 1).await.unwrap().source(), Source::AllowList);
    }
    assert_eq!((bench.asked(), limiter.counts().allow_listed), (0, 30));
}

#[tokio::test]
async fn a_blocked_key_is_never_allowed_and_the_store_is_not_asked() {
    let bench = listed();
    let limiter = &bench.limiter;
    for key in ["mallory", "192.0.2.9", "::ffff:192.0.2.9"] {
        for decision in [
            limiter.check(key).await.unwrap(),
            limiter.check_n(key, 0).await.unwrap(),
            limiter.acquire(key, 60 * SECOND).await.unwrap(),
        ] {
            assert!(decision.is_never() && decision.source() == Source::BlockList, "{key}");
            assert_eq!((decision.retry_after(), decision.remaining()), (None, 0));
            assert_eq!(decision.into_result().unwrap_err().to_string(), "rate limited: the key is blocked");
        }
        assert_eq!(limiter.take_up_to(key, 5).await.unwrap().units(), 0);
        assert!(matches!(limiter.reserve(key, 1).await.unwrap(), Reserve::Denied(_)));
    }
    assert_eq!((bench.asked(), limiter.counts().block_listed), (0, 15));
}

#[tokio::test]
async fn allowed_wins_over_blocked_and_others_are_decided() {
    let bench = listed();
    assert_eq!(bench.limiter.check("10.66.0.1").await.unwrap().source(), Source::AllowList);
    let decision = bench.limiter.check("alice").await.unwrap();
    assert_eq!((decision.source(), decision.remaining()), (Source::Store, 2));
    assert_eq!(bench.journal.take(), ["check 1 allowed by allow_list", "check 1 allowed by store"]);
    assert!(bench.limiter.reset("alice").await.unwrap(), "a reset goes to the store");
}
