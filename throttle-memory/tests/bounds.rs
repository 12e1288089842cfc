//! What the store forgets, when, and what it never forgets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use throttle_core::{
    Action, Clock, Decision, Policy, PolicyName, RateLimiter, Rule, Sleep, StoreBackend, Timestamp,
};
use throttle_memory::{MemoryBackend, MemoryConfig};

/// A clock that stands until it is moved.
#[derive(Debug, Clone, Default)]
struct HandClock(Arc<AtomicU64>);

impl HandClock {
    const START: u64 = 1_700_000_000_000_000;

    fn advance(&self, span: Duration) {
        self.0.fetch_add(u64::try_from(span.as_micros()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(Self::START + self.0.load(Ordering::Relaxed)).unwrap()
    }

    fn sleep(&self, _span: Duration) -> Sleep {
        Box::pin(std::future::pending())
    }
}

fn store(max_keys: usize) -> (MemoryBackend, HandClock) {
    let clock = HandClock::default();
    (MemoryBackend::new(MemoryConfig::default().max_keys(max_keys).unwrap().clock(clock.clone())), clock)
}

fn policy(rule: &str) -> Policy {
    Policy::new("test", [rule.parse::<Rule>().unwrap()]).unwrap()
}

fn take(store: &MemoryBackend, policy: &Policy, key: &str, cost: u32) -> Decision {
    let action = Action::consume(policy, key).with_cost(cost);
    let outcome = pollster::block_on(store.decide(&action)).unwrap();
    Decision::of(&action, &outcome, 0)
}

#[test]
fn above_the_bound_the_state_nearest_to_full_goes_first() {
    let (store, _clock) = store(10);
    let policy = policy("gcra 10/m");
    for key in 0..10_u32 {
        let _ = take(&store, &policy, &key.to_string(), 10 - key);
    }
    let _ = take(&store, &policy, "new", 5);
    assert_eq!(store.len(), 10);
    assert_eq!(take(&store, &policy, "9", 0).remaining(), 10, "it owed least, and is forgotten");
    for key in 0..9_u32 {
        assert_eq!(take(&store, &policy, &key.to_string(), 0).remaining(), key);
    }
}

#[test]
fn o_76_a_flood_of_keys_stays_within_the_bound_and_frees_nobody() {
    let (store, _clock) = store(10_000);
    let policy = policy("gcra 10/h");
    assert_eq!(take(&store, &policy, "exhausted", 10).remaining(), 0);
    for key in 0..1_000_000_u32 {
        let _ = take(&store, &policy, &key.to_string(), 1);
        assert!(key % 10_000 != 0 || store.len() <= 10_000);
    }
    assert_eq!(store.len(), 10_000);
    assert!(!take(&store, &policy, "exhausted", 1).is_allowed());
}

#[test]
fn the_bound_is_kept_by_many_threads_at_once() {
    let (store, _clock) = store(5_000);
    let policy = policy("gcra 10/h");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, policy) = (&store, &policy);
            scope.spawn(move || {
                for key in 0..20_000_u32 {
                    let _ = take(store, policy, &format!("{thread}-{key}"), 1);
                    assert!(store.len() <= 5_000 + 4, "a thread that adds one has not yet removed one");
                }
            });
        }
    });
    assert_eq!(store.len(), 5_000);
}

#[test]
fn o_19_expired_states_go_as_calls_are_made_and_memory_with_them() {
    let (store, clock) = store(1_000_000);
    let policy = policy("gcra 1/s");
    for key in 0..100_000_u32 {
        let _ = take(&store, &policy, &key.to_string(), 1);
    }
    let full = store.allocated_bytes();
    clock.advance(Duration::from_secs(1));
    for call in 0..1_000_000_u32 {
        let _ = take(&store, &policy, &format!("steady-{}", call % 100), 1);
    }
    assert!(store.len() <= 100, "{} states left", store.len());
    assert!(store.allocated_bytes() < full / 10, "{} of {full} bytes left", store.allocated_bytes());
}

#[test]
fn a_state_that_still_counts_is_never_swept() {
    let (store, clock) = store(1_000_000);
    let policies = ["gcra 10/m", "fixed_window 10/m", "sliding_window 10/m", "sliding_window_log 10/m"];
    let policies = policies
        .map(|rule| Policy::new(&rule.replace(['/', ' '], "-"), [rule.parse::<Rule>().unwrap()]).unwrap());
    for policy in &policies {
        let resets = take(&store, policy, "key", 10).reset_after();
        clock.advance(resets - Duration::from_micros(1));
        for call in 0..20_000 {
            let _ = take(&store, policy, &format!("other-{}", call % 10), 0);
        }
        assert_eq!(take(&store, policy, "key", 0).reset_after(), Duration::from_micros(1), "{policy:?}");
    }
}

#[test]
fn states_of_injected_time_are_not_swept_by_it() {
    let store = MemoryBackend::default();
    let policy = policy("gcra 1/s");
    let at = |second: u64| Timestamp::from_micros(HandClock::START + second * 1_000_000).ok();
    let decide = |key: &str, second| {
        let action = Action::consume(&policy, key).at(at(second));
        let outcome = pollster::block_on(store.decide(&action)).unwrap();
        Decision::of(&action, &outcome, 0).is_allowed()
    };
    assert!(decide("key", 0));
    for call in 0..10_000_u64 {
        decide(&(call % 10).to_string(), 100 + call);
    }
    assert!(!decide("key", 0), "time stepped back, and finds how far it had been");
}

#[test]
fn denials_probes_and_peeks_store_nothing() {
    let (store, _clock) = store(10);
    let policy = policy("gcra 10/m");
    let limiter = RateLimiter::new(policy.clone(), store.clone()).blocking();
    assert!(limiter.peek("a").unwrap().is_allowed());
    assert!(limiter.check_n("b", 0).unwrap().is_allowed());
    assert!(limiter.check_n("c", 11).unwrap().is_never());
    assert!(store.is_empty());
}

#[test]
fn resetting_a_policy_leaves_the_others_alone() {
    let store = MemoryBackend::default();
    let (a, b) = (policy("gcra 10/m"), Policy::new("other", [Rule::gcra("10/m").unwrap()]).unwrap());
    for key in 0..1_000_u32 {
        let _ = take(&store, &a, &key.to_string(), 1);
        let _ = take(&store, &b, &key.to_string(), 1);
    }
    let reset = |name: &PolicyName| pollster::block_on(store.reset_policy(name)).unwrap();
    assert_eq!(reset(a.name()), 1_000);
    assert_eq!(reset(a.name()), 0);
    assert_eq!(store.len(), 1_000);
    assert_eq!(take(&store, &b, "7", 0).remaining(), 9);
}
