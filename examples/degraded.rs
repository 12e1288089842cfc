//! A limiter whose store goes away and comes back: `cargo run --example degraded`.
//!
//! Four processes share a quota on a store. While the store is gone, each admits a quarter of it from its own memory, and
//! a breaker keeps callers from waiting for what does not answer.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::{Duration, Instant};

use throttle::memory::MemoryBackend;
use throttle::{Breaker, BreakerState, ErrorKind, FailurePolicy, Policy, RateLimiter, Rule, Source};
use throttle_testkit::{Fault, FaultyBackend, ReferenceBackend};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const DEADLINE: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(200);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    // Stands for a remote store that can be made to fail.
    let store = FaultyBackend::new(ReferenceBackend::default());
    let faults = store.faults();

    let policy = Policy::new("api", [Rule::gcra("100/h")?])?;
    let share = RateLimiter::new(policy.share(1, 4)?, MemoryBackend::default());
    let limiter = RateLimiter::new(policy, store)
        .deadline(DEADLINE)
        .breaker(Breaker::builder().failures(3).pauses(PAUSE, PAUSE).build()?)
        .on_failure(FailurePolicy::fallback(share));

    let decision = limiter.check("alice").await?;
    assert_eq!((decision.source(), decision.remaining()), (Source::Store, 99));
    println!("the store decides:         {} of 100 left", decision.remaining());

    faults.inject(Fault::hang().always());
    let began = Instant::now();
    for call in 1..=20 {
        let decision = limiter.check("alice").await?;
        assert_eq!((decision.source(), decision.remaining()), (Source::Fallback, 25 - call));
    }
    let (waited, asked) = (began.elapsed(), faults.seen().len() - 1);
    assert_eq!((limiter.breaker_state(), asked), (Some(BreakerState::Open), 3));
    assert!(waited < 20 * DEADLINE, "three deadlines, not twenty");
    println!(
        "it stalls, 20 calls:       each answered from memory, {asked} waited for it; {waited:?} in all"
    );

    for _ in 0..5 {
        assert!(limiter.check("alice").await?.is_allowed());
    }
    let denied = limiter.check("alice").await?;
    assert!(!denied.is_allowed() && denied.source() == Source::Fallback);
    println!("a quarter is used up:      {:?} to wait, as memory says", denied.retry_after());

    // A store that refuses is not asked over and over either.
    faults.clear();
    faults.inject(Fault::refuse(ErrorKind::Connection).always());
    tokio::time::sleep(PAUSE).await;
    let _ = limiter.check("alice").await?;
    assert_eq!(limiter.breaker_state(), Some(BreakerState::Open));
    println!("a probe fails:             the breaker stays open");

    faults.clear();
    tokio::time::sleep(PAUSE).await;
    let decision = limiter.check("alice").await?;
    assert_eq!((decision.source(), decision.remaining()), (Source::Store, 98));
    assert_eq!(limiter.breaker_state(), Some(BreakerState::Closed));
    println!("the next one gets through: {} of 100 left at the store", decision.remaining());
    println!("answered by the fallback:  {} calls", limiter.counts().fell_back);
    Ok(())
}
