//! Without a fault, a limiter with everything set decides as a plain one.

use std::time::Duration;

use proptest::prelude::*;
use throttle_core::{Decision, FailurePolicy, KeyList, Policy, RateLimiter, Reserve, StoreUnavailableError};
use throttle_testkit::ReferenceBackend;

use super::{Bench, SECOND, breaker, local};

type Answer = Result<(u32, Decision), StoreUnavailableError>;

async fn ask<S: throttle_core::Store>(limiter: &RateLimiter<S>, call: u8, key: &str, cost: u32) -> Answer {
    let one = |decision: Decision| (1, decision);
    match call {
        0 => limiter.check_n(key, cost).await.map(one),
        1 => limiter.peek_n(key, cost).await.map(one),
        2 => limiter.refund(key, cost).await.map(one),
        3 => limiter.acquire_n(key, cost, Duration::ZERO).await.map(one),
        4 => limiter.take_up_to(key, cost).await.map(|taken| (taken.units(), taken.decision().clone())),
        5 => match limiter.reserve(key, cost).await? {
            Reserve::Held(held) => held.commit(cost / 2 + 1).await.map(one),
            Reserve::Denied(denial) => Ok((0, denial)),
        },
        _ => limiter.reset(key).await.map(|forgotten| (u32::from(forgotten), Decision::never(0))),
    }
}

proptest! {
    #[test]
    fn as_a_plain_one(
        algorithm in prop::sample::select(throttle_core::Algorithm::ALL.to_vec()),
        limit in 1_u32..6,
        history in prop::collection::vec((0_u8..7, 0_u32..8, 0_u64..2_000_000, any::<bool>()), 0..40),
    ) {
        let policy = Policy::parse("p", algorithm, &format!("{limit}/s, 9/m")).unwrap();
        let bench = Bench::of("gcra 1/s", |limiter| limiter);
        let plain = RateLimiter::new(policy, ReferenceBackend::default()).with_clock(bench.clock.clone());
        let everything = RateLimiter::new(plain.policy().clone(), ReferenceBackend::default())
            .with_clock(bench.clock.clone())
            .on_failure(FailurePolicy::fallback(local("gcra 1/s", &bench.clock)))
            .deadline(SECOND)
            .breaker(breaker(1))
            .allow(KeyList::new().keys(["health"]))
            .block(KeyList::new().networks(["::/0"]).unwrap())
            .observe(std::sync::Arc::clone(&bench.journal));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let told = history.iter().filter(|(call, ..)| *call < 5).count();
        for (call, cost, micros, other) in history {
            let key = if other { "a" } else { "b" };
            let (expected, given) = runtime.block_on(async {
                (ask(&plain, call, key, cost).await.unwrap(), ask(&everything, call, key, cost).await.unwrap())
            });
            prop_assert_eq!(given, expected);
            bench.clock.advance(Duration::from_micros(micros));
        }
        let lines = bench.journal.take();
        let singles = lines.iter().filter(|line| !line.starts_with("reserve") && !line.starts_with("settle"));
        prop_assert_eq!(singles.count(), told);
    }
}
