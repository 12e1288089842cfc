//! What went wrong elsewhere, on real servers and at their own time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr, reason = "tests, with helpers")]

mod common;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use common::{SERVER, ask, config, connect, database, server};
use futures_util::future::join_all;
use sqlx::Row;
use sqlx::postgres::PgPoolOptions;
use throttle_core::{Action, Algorithm, GroupCommit, Policy, Rule, StoreBackend};
use throttle_postgres::{PostgresBackend, PostgresConfig};

fn policy(rule: &str) -> Policy {
    Policy::new("p", [rule.parse::<Rule>().unwrap()]).unwrap()
}

async fn number(url: &str, statement: &str) -> i64 {
    ask(url, statement).await.unwrap()[0].try_get(0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn o_80_batches_in_any_order_do_not_deadlock() {
    let url = database(SERVER, "o80").await.unwrap();
    let backend = PostgresBackend::connect(config(&url)).await.unwrap();
    let policy = policy("gcra 1000000/h");
    let before =
        number(&url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await;
    let caller = async |caller: usize| {
        for round in 0..100 {
            // Known keys in two orders, and a hundred new ones that the other callers meet for the first time too.
            let mut keys: Vec<_> = (0..20).map(|key| format!("{key}")).collect();
            keys.extend((0..10).map(|key| format!("{round}-{key}")));
            if caller % 2 == 1 {
                keys.reverse();
            }
            keys.rotate_left(caller % 7);
            let actions: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
            for outcome in backend.decide_many(&actions).await {
                assert_eq!(outcome.unwrap().granted(), 1);
            }
        }
    };
    join_all((0..8).map(caller)).await;
    let after =
        number(&url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await;
    assert_eq!(after - before, 0, "40P01");
    let peek = Action::peek(&policy, "0").with_cost(0);
    assert_eq!(backend.decide(&peek).await.unwrap().granted(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_81_o_84_strict_defaults_and_contention_deny_nobody() {
    for level in ["serializable", "repeatable read", "read committed"] {
        let url = database(SERVER, "o81").await.unwrap();
        ask(&url, &format!("ALTER DATABASE test_o81 SET default_transaction_isolation = '{level}'"))
            .await
            .unwrap();
        let backend = PostgresBackend::connect(config(&url)).await.unwrap();
        let policy = policy("gcra 400/h");
        let caller = async |_| {
            let mut granted = 0;
            for _ in 0..10 {
                granted += backend.decide(&Action::consume(&policy, "key")).await.unwrap().granted();
            }
            granted
        };
        let granted: u32 = join_all((0..50).map(caller)).await.into_iter().sum();
        assert_eq!(granted, 400, "{level}");
        assert!(backend.reset(policy.name(), "key").await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o_83_a_sweep_is_bounded_and_leaves_what_counts() {
    let url = database(SERVER, "o83").await.unwrap();
    let backend = PostgresBackend::connect(config(&url).sweep_interval(None).unwrap()).await.unwrap();
    let rows = 200_000;
    let insert = format!(
        "INSERT INTO throttle SELECT 'old', convert_to(n::text, 'UTF8'), '{{1,1,0,1}}', 1 FROM generate_series(1, {rows}) n"
    );
    ask(&url, &insert).await.unwrap();
    let policy = policy("gcra 1/h");
    backend.decide(&Action::consume(&policy, "new")).await.unwrap();
    let mut holder = connect(&url).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT * FROM throttle WHERE key = '7' FOR UPDATE")
        .execute(&mut holder)
        .await
        .unwrap();
    let swept = async { backend.sweep().await.unwrap() };
    let decided = async {
        let mut slowest = Duration::ZERO;
        for key in 0..50 {
            let since = Instant::now();
            backend.decide(&Action::consume(&policy, &key.to_string())).await.unwrap();
            slowest = slowest.max(since.elapsed());
        }
        slowest
    };
    let (swept, slowest) = tokio::join!(swept, decided);
    assert_eq!(swept, rows - 1, "the row that somebody holds is left");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    assert_eq!(backend.sweep().await.unwrap(), 1);
    assert_eq!(number(&url, "SELECT count(*) FROM throttle").await, 51);
}

#[tokio::test]
async fn one_sweeps_at_a_time_and_stops_with_its_backend() {
    let url = database(SERVER, "sweeper").await.unwrap();
    let often = config(&url).sweep_interval(Some(Duration::from_millis(50))).unwrap();
    let backend = PostgresBackend::connect(often).await.unwrap();
    let insert = "INSERT INTO throttle VALUES ('old', 'k', '{1,1,0,1}', 1)";
    let rows = "SELECT count(*) FROM throttle";
    let mut other = connect(&url).await.unwrap();
    let lock = "BEGIN; SELECT pg_advisory_xact_lock('throttle'::regclass::oid::integer, 1416130632)";
    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    ask(&url, insert).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(number(&url, rows).await, 1, "another sweeps");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    let since = Instant::now();
    while number(&url, rows).await > 0 {
        assert!(since.elapsed() < Duration::from_secs(10), "nobody sweeps");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(backend.clone());
    drop(backend);
    ask(&url, insert).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(number(&url, rows).await, 1, "the sweep ended with its backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_processes_start_at_once() {
    let url = database(SERVER, "start").await.unwrap();
    let config = config(&url).schema("limits").unwrap().table("api_limits").unwrap().unlogged(true);
    let config = config.max_connections(1).unwrap();
    let started = join_all((0..12).map(|_| PostgresBackend::connect(config.clone()))).await;
    let policy = policy("gcra 12/h");
    for backend in started {
        let backend = backend.unwrap();
        assert_eq!(backend.decide(&Action::consume(&policy, "key")).await.unwrap().granted(), 1);
    }
    let persistence = "SELECT relpersistence::text FROM pg_class WHERE oid = 'limits.api_limits'::regclass";
    let persistence: String = ask(&url, persistence).await.unwrap()[0].try_get(0).unwrap();
    assert_eq!(persistence, "u");
    let elsewhere = "SELECT count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace \
        WHERE n.nspname = 'public' UNION ALL SELECT count(*) FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace \
        WHERE n.nspname = 'public' AND proname LIKE '%throttle%'";
    for row in ask(&url, elsewhere).await.unwrap() {
        assert_eq!(row.try_get::<i64, _>(0).unwrap(), 0);
    }
}

#[tokio::test]
async fn keys_are_bytes_and_never_one_another() {
    let url = database(SERVER, "keys").await.unwrap();
    let backend = PostgresBackend::connect(config(&url)).await.unwrap();
    let policy = policy("gcra 1/h");
    let long = "x".repeat(300);
    let keys = [
        "",
        " ",
        "a",
        "A",
        "a ",
        " a",
        "a\0",
        "a\0b",
        "ä",
        "a\u{308}",
        "'",
        "\\",
        "{}",
        "\"",
        &long,
        &long[1..],
    ];
    for key in keys {
        assert_eq!(backend.decide(&Action::consume(&policy, key)).await.unwrap().granted(), 1, "{key:?}");
        assert_eq!(backend.decide(&Action::consume(&policy, key)).await.unwrap().granted(), 0, "{key:?}");
    }
    let rows = ask(&url, "SELECT key FROM throttle").await.unwrap();
    let stored: HashSet<Vec<u8>> = rows.iter().map(|row| row.try_get_unchecked(0).unwrap()).collect();
    assert_eq!(stored.len(), keys.len());
}

#[tokio::test]
async fn through_tls() {
    let ca = server("THROTTLE_TEST_POSTGRES_CA");
    let url = database(SERVER, "tls").await.unwrap();
    let ca = std::fs::read(ca).unwrap();
    let backend = PostgresBackend::connect(config(&url).root_certificates(&ca).unwrap()).await.unwrap();
    backend.ping().await.unwrap();
    let used = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
        WHERE ssl AND datname = current_database() AND pid <> pg_backend_pid()";
    assert!(number(&url, used).await >= 1);
    let stranger = PostgresConfig::new(&format!("{url}?sslmode=verify-full")).unwrap();
    assert!(PostgresBackend::connect(stranger).await.is_err(), "Mozilla does not know this authority");
}

/// What is stored is `kernel::decide`'s state, number for number; the suite compares what is reported.
#[tokio::test]
async fn stored_states_are_those_of_the_kernels() {
    let url = database(SERVER, "stored").await.unwrap();
    let backend = PostgresBackend::connect(config(&url)).await.unwrap();
    let now = throttle_core::Timestamp::from_micros(1_700_000_000_000_007).unwrap();
    let rules = Algorithm::ALL.map(|algorithm| Rule::new(algorithm, "7 per 13s").unwrap());
    let rules =
        rules.map(
            |rule| if rule.capacity() == 1 { Rule::leaky_bucket("7 per 13s burst 7").unwrap() } else { rule },
        );
    let policy = Policy::new("p", rules).unwrap();
    backend.decide(&Action::consume(&policy, "k").at(Some(now)).with_cost(2)).await.unwrap();
    let state: String = ask(&url, "SELECT state::text FROM throttle").await.unwrap()[0].try_get(0).unwrap();
    // Two units take 26/7 s: 3,714,285 µs and 5/7.
    let bucket = "1,1700000003714292,5,7";
    let (fixed, sliding) = ("2,13000000,130769230,2", "3,13000000,130769230,2,0");
    assert_eq!(
        state,
        format!("{{{bucket},{bucket},{bucket},{fixed},{sliding},4,13000000,1,1700000000000007,2}}")
    );
}

/// Must show: after a million decisions on a hundred keys, table and indexes are below 10 MB with no VACUUM by hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_million_decisions_do_not_bloat_the_table() {
    let url = database(SERVER, "bloat").await.unwrap();
    let pool = PgPoolOptions::new().max_connections(4).connect(&url).await.unwrap();
    let backend = PostgresBackend::from_pool(pool, &config(&url)).await.unwrap();
    let policy = policy("gcra 1000000000/h");
    let grouped = GroupCommit::new(backend.clone());
    let keys: Vec<_> = (0..100).map(|key| format!("client-{key}")).collect();
    let decisions = if cfg!(debug_assertions) { 250_000 } else { 1_000_000 };
    let actions: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
    for _ in 0..decisions / 100 {
        for outcome in backend.decide_many(&actions).await {
            assert_eq!(outcome.unwrap().granted(), 1);
        }
    }
    assert_eq!(grouped.decide(&actions[0]).await.unwrap().granted(), 1);
    let size = number(&url, "SELECT pg_total_relation_size('throttle')").await;
    let hot = "SELECT n_tup_hot_upd * 100 / n_tup_upd FROM pg_stat_user_tables WHERE relname = 'throttle'";
    tokio::time::sleep(Duration::from_secs(1)).await;
    let hot = number(&url, hot).await;
    eprintln!("{decisions} decisions: {size} bytes, {hot} % of the updates are HOT");
    assert!(size < 10_000_000, "{size} bytes");
    assert!(hot >= 90, "{hot} % HOT");
}
