//! The script against the kernels: the same outcome, and the same bytes in the store.

mod common;

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use throttle_core::kernel::{self, PolicyState};
use throttle_core::{Action, Policy, Rule, StoreBackend, Timestamp, storage_key};

const RULES: &[&str] = &[
    "gcra 10/s burst 5",
    "gcra 3 per 7s burst 4",
    "token_bucket 7 per 13us burst 3",
    "leaky_bucket 90/min queue 2s",
    "gcra 4294967295 per 1us burst 4294967295",
    "token_bucket 1000000007 per 999999937us burst 1000",
    "fixed_window 5 per 10s",
    "fixed_window 4294967295 per 7us",
    "sliding_window 7 per 1ms",
    "sliding_window 1000 per 1h",
    "sliding_window 3 per 1048577us",
    "sliding_window_log 5 per 1s",
    "sliding_window_log 50 per 1ms",
    "sliding_window_log 65536 per 3s",
];

fn policy(random: &mut StdRng) -> Policy {
    let count = if random.random_bool(0.6) { 1 } else { random.random_range(2..=4) };
    let rules = (0..count).map(|_| RULES[random.random_range(0..RULES.len())].parse::<Rule>().unwrap());
    Policy::new("p", rules.collect::<Vec<_>>()).unwrap()
}

fn step(random: &mut StdRng, rules: &[Rule]) -> i64 {
    let period = i64::try_from(rules[0].quota().period().as_micros()).unwrap();
    match random.random_range(0..10) {
        0 => 0,
        1 => 1,
        2 => -random.random_range(0..3 * period + 2),
        3 => random.random_range(0..5 * period + 2),
        4 => period,
        _ => random.random_range(0..period / 4 + 2),
    }
}

fn action<'a>(random: &mut StdRng, policy: &'a Policy, now: u64) -> Action<'a> {
    let action = match random.random_range(0..8) {
        0 => Action::peek(policy, "key"),
        1 => Action::refund(policy, "key"),
        _ => Action::consume(policy, "key"),
    };
    let cost = match random.random_range(0..8) {
        0 => 0,
        1 => policy.capacity(),
        2 => policy.capacity().saturating_add(1),
        3 => u32::MAX,
        _ => random.random_range(0..4),
    };
    let times = if random.random_bool(0.6) { 1 } else { random.random_range(1..20) };
    let wait = Duration::from_millis(if random.random_bool(0.7) { 0 } else { random.random_range(0..3_000) });
    action
        .with_cost(cost)
        .with_times(times)
        .with_max_wait(wait)
        .at(Some(Timestamp::from_micros(now).unwrap()))
}

/// One key's life: each step on the same state in the store and here.
async fn live(url: &str, seed: u64) {
    let backend = common::backend(url, &format!("exact{seed}")).await;
    let mut bare = common::bare(url).await;
    let mut random = StdRng::seed_from_u64(seed);
    for life in 0..60 {
        let mut policy_now = policy(&mut random);
        let mut state = PolicyState::fresh(&policy_now);
        backend.reset_policy(policy_now.name()).await.unwrap();
        let name = storage_key(&format!("exact{seed}-{}", std::process::id()), policy_now.name(), "key");
        let start = if random.random_bool(0.9) { 1_700_000_000_000_000 } else { (1 << 52) - 20_000_000 };
        let mut now: u64 = start + random.next_u64() % 1_000_000;
        for _ in 0..50 {
            if random.random_bool(0.03) {
                policy_now = policy(&mut random);
            }
            let moved = step(&mut random, policy_now.rules());
            now = now.saturating_add_signed(moved).min((1 << 52) - 1);
            let action = action(&mut random, &policy_now, now);
            let before = state.clone();
            let expected = kernel::decide(&action, Timestamp::from_micros(now).unwrap(), &mut state);
            let outcome = backend.decide(&action).await.unwrap();
            let context = format!("seed {seed}, life {life}: {action:?} on {before:?}");
            assert_eq!(outcome, expected, "{context}");
            let (bytes, ttl): (Option<Vec<u8>>, i64) =
                redis::pipe().get(&name).pttl(&name).query_async(&mut bare).await.unwrap();
            if expected.changes_state(&action) {
                assert_eq!(bytes.as_deref(), Some(&state.to_bytes()[..]), "{context}");
                let lives = state.time_to_live(&action, Timestamp::from_micros(now).unwrap());
                let most = i64::try_from(lives.as_micros().div_ceil(1_000)).unwrap();
                assert!(ttl > most - 5_000 && ttl <= most, "{ttl} of {most} ms: {context}");
            } else {
                let kept = (!before.is_fresh() || bytes.is_some()).then(|| before.to_bytes());
                assert_eq!(bytes, kept, "{context}");
                state = before;
            }
        }
    }
}

#[tokio::test]
async fn the_script_is_the_kernel_bit_for_bit() {
    let Some(url) = common::server("THROTTLE_TEST_REDIS_URL") else { return };
    for seed in 0..4 {
        live(&url, seed).await;
    }
}
