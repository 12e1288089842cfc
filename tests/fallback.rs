//! The embedded store as a fallback: bounded, and no way around a limit.
#![cfg(feature = "memory")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use throttle::memory::{MemoryBackend, MemoryConfig};
use throttle::{ErrorKind, FailurePolicy, Policy, RateLimiter, Rule, Source};
use throttle_testkit::{Fault, FaultyBackend, ReferenceBackend};

#[test]
fn o_76_a_flood_of_keys_neither_fills_the_memory_nor_frees_an_exhausted_key() {
    const BOUND: usize = 10_000;
    let store = FaultyBackend::new(ReferenceBackend::default());
    store.faults().inject(Fault::refuse(ErrorKind::Connection).always());
    let policy = Policy::new("api", [Rule::gcra("8/h").unwrap()]).unwrap();
    let memory = MemoryBackend::new(MemoryConfig::default().max_keys(BOUND).unwrap());
    let share = RateLimiter::new(policy.share(1, 4).unwrap(), memory.clone());
    let limiter = RateLimiter::new(policy, store).on_failure(FailurePolicy::fallback(share)).blocking();

    assert!(limiter.check_n("mallory", 2).unwrap().is_allowed());
    for flood in 0..300_000_u64 {
        let key = format!("{:016x}", flood.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!(limiter.check(&key).unwrap().is_allowed());
    }
    let again = limiter.check("mallory").unwrap();
    assert_eq!((again.is_allowed(), again.source()), (false, Source::Fallback));
    assert!(memory.len() <= BOUND, "{} keys", memory.len());
}
