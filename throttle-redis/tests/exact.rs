//! The script against the kernels: the same outcome, and the same bytes in the store.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use throttle_core::kernel::{self, PolicyState};
use throttle_core::{Action, MAX_TIMES, Policy, Rule, StoreBackend, Timestamp, storage_key};
use throttle_redis::RedisBackend;

const SERVER: &str = "THROTTLE_TEST_REDIS_URL";

const RULES: &[&str] = &[
    "gcra 10/s burst 5",
    "gcra 3 per 7s burst 4",
    "gcra 3 per 7us burst 4",
    "gcra 5 per 11us burst 4",
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
    let count = if random.random_bool(0.7) { 1 } else { random.random_range(2..=4) };
    let rules = (0..count).map(|_| RULES[random.random_range(0..RULES.len())].parse::<Rule>().unwrap());
    Policy::new("p", rules.collect::<Vec<_>>()).unwrap()
}

fn step(random: &mut StdRng, rules: &[Rule], until_fresh: i64) -> i64 {
    let period = i64::try_from(rules[0].quota().period().as_micros()).unwrap();
    match random.random_range(0..10) {
        0 => 0,
        1 => 1,
        2 => -random.random_range(0..3 * period + 2),
        3 => random.random_range(0..5 * period + 2),
        4 => period,
        5 => until_fresh + random.random_range(-1..=1),
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
    let times = match random.random_range(0..10) {
        0..=5 => 1,
        6 => MAX_TIMES - random.random_range(0..2),
        _ => random.random_range(1..20),
    };
    let wait = Duration::from_millis(if random.random_bool(0.7) { 0 } else { random.random_range(0..3_000) });
    action
        .with_cost(cost)
        .with_times(times)
        .with_max_wait(wait)
        .at(Some(Timestamp::from_micros(now).unwrap()))
}

const DAY: Duration = Duration::from_secs(86_400);

/// The same key in the store and here.
struct Twin {
    backend: RedisBackend,
    bare: redis::aio::MultiplexedConnection,
    prefix: String,
    state: PolicyState,
}

impl Twin {
    async fn new(prefix: &str) -> Self {
        let backend = common::backend(SERVER, prefix).await;
        let client = common::client(&std::env::var(SERVER).unwrap()).await.unwrap();
        let bare = client.get_multiplexed_async_connection().await.unwrap();
        let state = PolicyState::from_bytes(&[1, 1, 0]).unwrap();
        Self { backend, bare, prefix: common::prefix(prefix), state }
    }

    async fn start_anew(&mut self, policy: &Policy) {
        self.backend.reset(policy.name(), "key").await.unwrap();
        self.state = PolicyState::fresh(policy);
    }

    /// Takes one step on both sides, and compares outcome, bytes and time to live.
    async fn step(&mut self, action: &Action<'_>) {
        let now = action.now().unwrap();
        let before = self.state.clone();
        let expected = kernel::decide(action, now, &mut self.state);
        let context = format!("{action:?} on {before:?}");
        assert_eq!(self.backend.decide(action).await.unwrap(), expected, "{context}");
        let name = storage_key(&self.prefix, action.policy().name(), "key");
        let (bytes, ttl): (Option<Vec<u8>>, i64) =
            redis::pipe().get(&name).pttl(&name).query_async(&mut self.bare).await.unwrap();
        if expected.changes_state(action) {
            assert_eq!(bytes.as_deref(), Some(&self.state.to_bytes()[..]), "{context}");
            let lives = self.state.time_to_live(action, now).max(self.still_ahead().await);
            let most = i64::try_from(lives.as_millis()).unwrap() + 1;
            assert!(ttl > most - 5_000 && ttl <= most, "{ttl} of {most} ms: {context}");
        } else {
            let kept = (!before.is_fresh() || bytes.is_some()).then(|| before.to_bytes());
            assert_eq!(bytes, kept, "{context}");
            self.state = before;
        }
    }

    /// How long a state of a time ahead of the server's is kept for calls at the server's.
    async fn still_ahead(&mut self) -> Duration {
        let expires = Duration::from_micros(self.state.expires_at().as_micros());
        let (seconds, _): (u64, u32) = redis::cmd("TIME").query_async(&mut self.bare).await.unwrap();
        (expires + Duration::from_secs(2)).saturating_sub(Duration::from_secs(seconds)).min(DAY)
    }
}

/// Keys' lives at random.
async fn live(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut twin = Twin::new(&format!("exact{seed}")).await;
    for _ in 0..60 {
        let mut policy_now = policy(&mut random);
        twin.start_anew(&policy_now).await;
        let start = if random.random_bool(0.9) { 1_700_000_000_000_000 } else { (1 << 52) - 20_000_000 };
        let mut now: u64 = start + random.next_u64() % 1_000_000;
        for _ in 0..50 {
            if random.random_bool(0.15) {
                policy_now = policy(&mut random);
            }
            let until_fresh = twin.state.expires_at().as_micros().cast_signed() - now.cast_signed();
            let moved = step(&mut random, policy_now.rules(), until_fresh);
            now = now.saturating_add_signed(moved).min((1 << 52) - 1);
            twin.step(&action(&mut random, &policy_now, now)).await;
        }
    }
}

#[tokio::test]
async fn the_script_is_the_kernel_bit_for_bit() {
    common::server(SERVER);
    for seed in 0..4 {
        live(seed).await;
    }
}

#[tokio::test]
async fn a_changed_period_is_exact_at_the_edges() {
    const SECOND: u64 = 1_000_000;
    common::server(SERVER);
    let mut twin = Twin::new("edges").await;
    let start = 1_700_000_000 * SECOND;
    let at = |now| Some(Timestamp::from_micros(now).unwrap());
    for algorithm in ["fixed_window", "sliding_window", "sliding_window_log"] {
        let [before, after] = ["5 per 10s", "5 per 7s"].map(|quota| {
            Policy::new("p", [format!("{algorithm} {quota}").parse::<Rule>().unwrap()]).unwrap()
        });
        for emptied in [false, true] {
            for edge in [start + SECOND, start + 10 * SECOND, start + 20 * SECOND] {
                for now in [edge - 1, edge, edge + 1] {
                    twin.start_anew(&before).await;
                    twin.step(&Action::consume(&before, "key").with_cost(2).at(at(start))).await;
                    if emptied {
                        twin.step(&Action::refund(&before, "key").with_cost(2).at(at(start + 1))).await;
                    }
                    twin.step(&Action::consume(&after, "key").with_cost(4).at(at(now))).await;
                    twin.step(&Action::consume(&after, "key").at(at(now))).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn many_actions_at_once_are_decided_in_order() {
    common::server(SERVER);
    let backend = common::backend(SERVER, "many").await;
    let mut random = StdRng::seed_from_u64(7);
    let mut policies = Vec::new();
    for name in 0..20 {
        let rules = policy(&mut random).rules().to_vec();
        policies.push(Policy::new(&format!("p{name}"), rules).unwrap());
    }
    let now = 1_700_000_000_000_000;
    let actions: Vec<_> =
        (0..1_000).map(|step| action(&mut random, &policies[step % 20], now + step as u64 / 3)).collect();
    let mut states: Vec<_> = policies.iter().map(PolicyState::fresh).collect();
    let outcomes = backend.decide_many(&actions).await;
    assert_eq!(outcomes.len(), actions.len());
    for (step, (action, outcome)) in actions.iter().zip(outcomes).enumerate() {
        let expected = kernel::decide(action, action.now().unwrap(), &mut states[step % 20]);
        assert_eq!(outcome.unwrap(), expected, "step {step}: {action:?}");
    }
    assert!(backend.decide_many(&[]).await.is_empty());
}
