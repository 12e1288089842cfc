//! What a limiter is told at once is what the reference decides.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use proptest::prelude::*;
use throttle_core::{Policy, RateLimiter, Rule, Timestamp};
use throttle_memory::MemoryBackend;
use throttle_testkit::{ManualClock, ReferenceBackend};

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let rule = prop::sample::select(vec![
        "gcra 10/s burst 3",
        "gcra 7 per 13s burst 5",
        "token_bucket 90/m",
        "leaky_bucket 4/s queue 2s",
        "gcra 4294967295/h",
        "fixed_window 5/s",
        "sliding_window_log 5/s",
    ]);
    prop::collection::vec(rule.prop_map(|rule| rule.parse().unwrap()), 1..3)
}

proptest! {
    #[test]
    fn checks_at_once_are_the_reference_s(
        policies in prop::collection::vec(rules(), 1..3),
        steps in prop::collection::vec((any::<prop::sample::Index>(), 0..3_000_000_i64, 0..8_u32, 0..4_u8), 1..60),
    ) {
        let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000).unwrap());
        let (memory, reference) = (MemoryBackend::default(), ReferenceBackend::default());
        let limiters = policies.into_iter().map(|rules| {
            let policy = Policy::new("same", rules).unwrap();
            let ours = RateLimiter::new(policy.clone(), memory.clone()).with_clock(clock.clone()).blocking();
            let theirs = RateLimiter::new(policy, reference.clone()).with_clock(clock.clone()).blocking();
            (ours, theirs)
        });
        let limiters: Vec<_> = limiters.collect();
        for (which, micros, cost, kind) in steps {
            let (ours, theirs) = which.get(&limiters);
            if kind == 0 {
                clock.step_back(Duration::from_micros(micros.unsigned_abs()));
            } else {
                clock.advance(Duration::from_micros(micros.unsigned_abs()));
            }
            prop_assert_eq!(ours.check_n("key", cost).unwrap(), theirs.check_n("key", cost).unwrap());
            prop_assert_eq!(ours.peek("key").unwrap(), theirs.peek("key").unwrap());
        }
    }
}
