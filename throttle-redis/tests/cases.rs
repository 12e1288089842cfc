//! What went wrong elsewhere, on real servers and at their own time.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use common::own::Own;
use futures_util::future::join_all;
use throttle_core::{
    Action, Decision, Policy, Quota, RateLimiter, Rule, StoreBackend, Timestamp, storage_key,
};
use throttle_redis::RedisBackend;

const SERVER: &str = "THROTTLE_TEST_REDIS_URL";
const CLUSTER: &str = "THROTTLE_TEST_REDIS_CLUSTER_URL";

fn policy(name: &str, rule: &str) -> Policy {
    Policy::new(name, [rule.parse::<Rule>().unwrap()]).unwrap()
}

async fn decide(backend: &RedisBackend, action: &Action<'_>) -> Decision {
    Decision::of(action, &backend.decide(action).await.unwrap(), 0)
}

/// Milliseconds left of the key of `action`, as `PTTL` says.
async fn time_to_live(test: &str, action: &Action<'_>) -> i64 {
    let name = storage_key(&common::prefix(test), action.policy().name(), action.key());
    let value = common::ask(SERVER, redis::cmd("PTTL").arg(name)).await.unwrap();
    redis::from_redis_value(value).unwrap()
}

#[tokio::test]
async fn o_01_the_first_answer_is_exact_on_every_date() {
    common::server(SERVER);
    let backend = common::backend(SERVER, "o01").await;
    for (rule, left, reset) in
        [("gcra 10/s", 9, 100_000), ("gcra 100/min", 99, 600_000), ("gcra 7/min", 6, 8_571_429)]
    {
        let policy = policy("p", rule);
        for (key, seconds) in [1_751_664_256, 1_751_664_257, 1_900_000_000, 4_000_000_000].iter().enumerate()
        {
            let key = format!("{rule} {key}");
            let now = Timestamp::from_micros(seconds * 1_000_000 + 123_457).unwrap();
            let first = decide(&backend, &Action::consume(&policy, &key).at(Some(now))).await;
            assert_eq!(
                (first.remaining(), first.reset_after()),
                (left, Duration::from_micros(reset)),
                "{rule}"
            );
        }
    }
}

#[tokio::test]
async fn o_02_times_keep_their_last_digits() {
    common::server(SERVER);
    let backend = common::backend(SERVER, "o02").await;
    let policy = policy("p", "sliding_window_log 2/h");
    let now = Timestamp::from_micros(1_893_456_000_123_456).unwrap();
    for reset in [3_600_000_000, 3_600_000_000] {
        let decision = decide(&backend, &Action::consume(&policy, "k").at(Some(now))).await;
        assert_eq!(decision.reset_after(), Duration::from_micros(reset));
    }
    let denied = decide(&backend, &Action::consume(&policy, "k").at(Some(now))).await;
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(3_600)));
}

#[tokio::test]
async fn o_10_to_o_20_every_key_expires_when_it_is_as_good_as_new() {
    common::server(SERVER);
    let backend = common::backend(SERVER, "ttl").await;
    for (case, rule, cost, least, most) in [
        ("o_10", "token_bucket 3/s burst 1", 1, 334, 1_335),
        ("o_11", "fixed_window 100/min", 37, 1, 61_000),
        ("o_12", "sliding_window 100 per 900s", 1, 900_001, 1_801_000),
        ("o_15", "gcra 6/min", 1, 10_000, 11_000),
        ("o_17", "gcra 1000/min burst 1001", 1, 60, 1_060),
        ("o_18", "fixed_window 5 per 600001ms", 1, 1, 601_001),
        ("o_18", "sliding_window_log 5 per 1500ms", 1, 1_500, 2_500),
        ("o_20", "gcra 1 per 10000000000s", 1, 10_000_000_000_000, 10_000_000_001_000),
    ] {
        let Ok(rule) = rule.parse::<Rule>() else {
            assert_eq!(case, "o_20", "a period beyond what is counted exactly is a typed error");
            continue;
        };
        let policy = Policy::new("p", [rule]).unwrap();
        let action = Action::consume(&policy, rule.algorithm().name()).with_cost(cost);
        assert!(decide(&backend, &action).await.is_allowed(), "{case}");
        let left = time_to_live("ttl", &action).await;
        assert!(left > least - 500 && left <= most + 1_000 && left > 0, "{case}: {left} ms");
        backend.reset(policy.name(), action.key()).await.unwrap();
    }
    let longest =
        Policy::new("longest", [Rule::gcra(Quota::per(1, throttle_core::quota::MAX_PERIOD)).unwrap()]);
    let longest = longest.unwrap();
    let action = Action::consume(&longest, "k");
    assert!(decide(&backend, &action).await.is_allowed());
    assert!(!decide(&backend, &action).await.is_allowed(), "o_20");
    assert!(time_to_live("ttl", &action).await > 1_000_000_000_000, "o_20");
}

/// A time to live is set anew only where the next full second is reached: the state is stored for as long as it counts.
#[tokio::test]
async fn a_state_is_stored_while_it_counts() {
    common::server(SERVER);
    let backend = common::backend(SERVER, "hot").await;
    let policy = policy("p", "gcra 100/s burst 300");
    let action = Action::consume(&policy, "k");
    for call in 0..120 {
        let decision = decide(&backend, &action).await;
        let (left, reset) = (time_to_live("hot", &action).await, decision.reset_after().as_millis());
        let reset = i64::try_from(reset).unwrap();
        assert!(left > reset + 500 && left <= reset + 2_100, "call {call}: {left} ms, full in {reset} ms");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_state_of_another_time_is_stored_while_it_counts() {
    common::server(SERVER);
    let backend = common::backend(SERVER, "mixed").await;
    let policy = policy("p", "gcra 1 per 30min burst 10");
    let action = Action::consume(&policy, "k");
    let server = backend.decide(&Action::peek(&policy, "k")).await.unwrap().now().as_micros();
    for ahead in [0, 3_600_000_000] {
        let brought = Timestamp::from_micros(server + ahead).unwrap();
        assert!(decide(&backend, &action.at(Some(brought))).await.is_allowed());
        let decision = decide(&backend, &action).await;
        let left = time_to_live("mixed", &action).await;
        let reset = i64::try_from(decision.reset_after().as_millis()).unwrap();
        assert!(left > reset + 500, "{ahead} µs ahead: {left} ms, full in {reset} ms");
    }
}

#[tokio::test]
async fn o_10_a_bucket_of_one_limits() {
    common::server(SERVER);
    let backend = common::backend(SERVER, "o10").await;
    let policy = policy("p", "token_bucket 3/s burst 1");
    let action = Action::consume(&policy, "k");
    let allowed = [(); 3].map(|()| async { decide(&backend, &action).await.is_allowed() });
    let [first, second, third] = allowed;
    assert_eq!((first.await, second.await, third.await), (true, false, false));
}

#[tokio::test]
async fn o_13_o_14_o_16_a_steady_client_is_never_locked_out() {
    common::server(SERVER);
    let backend = common::backend(SERVER, "o13").await;
    let window = policy("window", "fixed_window 1 per 50ms");
    for _ in 0..40 {
        let action = Action::consume(&window, "health");
        let decision = decide(&backend, &action).await;
        if !decision.is_allowed() {
            assert!(decision.retry_after().unwrap() <= Duration::from_millis(50));
        }
        let left = time_to_live("o13", &action).await;
        assert!(left > 0 && left <= 2_050, "{left} ms");
        tokio::time::sleep(decision.reset_after()).await;
    }
    let steady = policy("steady", "fixed_window 5 per 200ms");
    for _ in 0..20 {
        assert!(decide(&backend, &Action::consume(&steady, "k")).await.is_allowed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn o_17_a_thousand_per_minute_counts_down() {
    common::server(SERVER);
    let backend = common::backend(SERVER, "o17").await;
    let policy = policy("p", "gcra 1000/min burst 1001");
    let now = Some(Timestamp::from_micros(1_700_000_000_000_000).unwrap());
    for left in [1_000, 999, 998] {
        assert_eq!(decide(&backend, &Action::consume(&policy, "k").at(now)).await.remaining(), left);
    }
}

#[tokio::test]
async fn o_19_ten_thousand_keys_go_by_themselves() {
    common::server(SERVER);
    let backend = common::backend(SERVER, "o19").await;
    let policy = policy("p", "gcra 1 per 100ms");
    let keys: Vec<_> = (0..10_000).map(|key| key.to_string()).collect();
    let actions: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
    assert!(
        backend.decide_many(&actions).await.iter().all(|outcome| outcome.as_ref().unwrap().granted() == 1)
    );
    drop(backend);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    // KEYS does not show what has expired, removed or not.
    assert_eq!(common::count_keys(SERVER, "o19", policy.name()).await.unwrap(), 0);
}

#[tokio::test]
async fn o_68_any_key_works_on_a_cluster() {
    common::server(CLUSTER);
    let backend = common::backend(CLUSTER, "o68").await;
    let policy = policy("p", "gcra 1/h");
    for key in ["a:b", "a{b}c", "{}x", "{", "}{", ""] {
        let action = Action::consume(&policy, key);
        assert!(decide(&backend, &action).await.is_allowed(), "{key}");
        assert!(!decide(&backend, &action).await.is_allowed(), "{key}");
    }
    assert_eq!(backend.reset_policy(policy.name()).await.unwrap(), 6);
}

async fn flushed_under_load(variable: &'static str, test: &str) {
    let backend = common::backend(variable, test).await;
    let policy = policy("p", "gcra 100000/h");
    let flushing = tokio::spawn(async move {
        for _ in 0..50 {
            common::ask(variable, redis::cmd("SCRIPT").arg("FLUSH")).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let calls = (0..50).map(|_| async {
        let mut counted = 0;
        while !flushing.is_finished() {
            counted += backend.decide(&Action::consume(&policy, "k")).await.unwrap().granted();
            let many = [Action::consume(&policy, "k"), Action::consume(&policy, "k")];
            for outcome in backend.decide_many(&many).await {
                counted += outcome.unwrap().granted();
            }
        }
        counted
    });
    let counted: u32 = join_all(calls).await.into_iter().sum();
    assert!(counted > 150, "{counted} calls");
    let left = decide(&backend, &Action::peek(&policy, "k").with_cost(0)).await.remaining();
    // Some have flowed back meanwhile: 28 a second.
    let used = 100_000 - left;
    assert!(used <= counted && used + 2_000 > counted, "{used} of {counted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o_69_scripts_flushed_under_load_count_every_call_once() {
    common::server(SERVER);
    flushed_under_load(SERVER, "o69").await;
    common::server(CLUSTER);
    flushed_under_load(CLUSTER, "o69").await;
}

#[tokio::test]
async fn o_69_each_of_fifty_callers_after_a_flush_is_counted_once() {
    let server = Own::start(&[]).await;
    let backend = server.backend().await;
    let policy = policy("p", "fixed_window 1000 per 24h");
    let now = Some(Timestamp::from_micros(1_700_000_000_000_000).unwrap());
    for round in 1..=10 {
        let _: () = server.ask("SCRIPT FLUSH").await;
        let calls = (0..50).map(|_| async { decide(&backend, &Action::consume(&policy, "k").at(now)).await });
        let left: HashSet<_> = join_all(calls).await.iter().map(Decision::remaining).collect();
        assert_eq!(left, (1_000 - 50 * round..1_000 - 50 * (round - 1)).collect());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o_74_a_hot_key_takes_one_trip_each() {
    let server = Own::start(&[]).await;
    let limiter = std::sync::Arc::new(RateLimiter::new(
        policy("p", "fixed_window 1000 per 24h"),
        server.backend().await,
    ));
    let _: () = server.ask("CONFIG RESETSTAT").await;
    let calls: Vec<_> = (0..400)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut allowed = 0;
                for _ in 0..5 {
                    allowed += u32::from(limiter.check("hot").await.unwrap().is_allowed());
                }
                allowed
            })
        })
        .collect();
    let allowed: u32 = join_all(calls).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(allowed, 1_000);
    let stats: String = server.ask("INFO commandstats").await;
    let scripts = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:calls=2000,"));
    assert!(scripts.is_some(), "{stats}");
}

#[tokio::test]
async fn resets_leave_other_policies_alone_and_never_block() {
    let server = Own::start(&[]).await;
    let config = server.config().prefix("a*[b]?").unwrap();
    let backend = RedisBackend::connect(config).await.unwrap();
    let (mine, other) = (policy("p", "gcra 1/h"), policy("p.q", "gcra 1/h"));
    let keys: Vec<_> = (0..5_000).map(|key| format!("k{key}")).collect();
    for policy in [&mine, &other] {
        let actions: Vec<_> = keys.iter().map(|key| Action::consume(policy, key)).collect();
        backend.decide_many(&actions).await;
    }
    let _: () = server.ask("DEBUG POPULATE 200000 axb:1:p:").await;
    let _: () = server.ask("CONFIG RESETSTAT").await;
    assert_eq!(backend.reset_policy(mine.name()).await.unwrap(), 5_000);
    let stats: String = server.ask("INFO commandstats").await;
    let calls = |command: &str| -> Option<u64> {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")))?;
        line.split(',').next()?.parse().ok()
    };
    assert!(calls("scan").unwrap() > 210_000 / 1_024, "in steps of some hundred keys: {stats}");
    assert_eq!((calls("unlink"), calls("keys"), calls("del")), (Some(5_000), None, None), "{stats}");
    assert_eq!(server.ask::<i64>("DBSIZE").await, 205_000);
    assert!(backend.reset(other.name(), "k0").await.unwrap());
    assert!(!backend.reset(other.name(), "k0").await.unwrap());
}

#[tokio::test]
async fn the_largest_log_is_decided() {
    let server = Own::start(&[]).await;
    let backend = server.backend().await;
    let policy = policy("p", "sliding_window_log 65536 per 1h");
    let at = |step: u64| Some(Timestamp::from_micros(1_700_000_000_000_000 + step).unwrap());
    let actions: Vec<_> = (0..20_000).map(|step| Action::consume(&policy, "k").at(at(step))).collect();
    for outcome in backend.decide_many(&actions[..2_000]).await {
        assert_eq!(outcome.unwrap().granted(), 1);
    }
    let since = Instant::now();
    let decision = decide(&backend, &Action::peek(&policy, "k").at(at(20_000))).await;
    assert_eq!(decision.remaining(), 65_536 - 2_000);
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
}
