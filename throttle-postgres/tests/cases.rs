//! What went wrong elsewhere, on real servers and at their own time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr, reason = "tests, with helpers")]

mod common;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use common::own::Own;
use common::{POOLER, SERVER, ask, config, connect, database, server};
use futures_util::future::join_all;
use sqlx::Row;
use throttle_core::{
    Action, Algorithm, BaseErrorSet, Effect, ErrorKind, GroupCommit, Outcome, Policy, Rule, StoreBackend,
};
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
async fn a_row_that_others_change_while_a_batch_waits_is_decided_by_what_it_is_then() {
    let url = database(SERVER, "changed").await.unwrap();
    let backend = PostgresBackend::connect(config(&url)).await.unwrap();
    let policy = policy("gcra 2/h");
    let actions = ["c", "b", "a"].map(|key| Action::consume(&policy, key));
    let decide = async || {
        let outcomes = backend.decide_many(&actions).await;
        outcomes.into_iter().map(|outcome| outcome.unwrap().granted()).collect::<Vec<_>>()
    };
    assert_eq!(decide().await, [1, 1, 1], "new keys");
    let mut other = connect(&url).await.unwrap();
    let use_up = "BEGIN; UPDATE throttle SET state[2] = state[2] + 1800000000 WHERE key = 'b'";
    sqlx::raw_sql(use_up).execute(&mut other).await.unwrap();
    let commit = async {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while number(&url, waiting).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
    };
    let (granted, ()) = tokio::join!(decide(), commit);
    assert_eq!(granted, [1, 0, 1]);

    sqlx::raw_sql("BEGIN; SELECT * FROM throttle FOR UPDATE").execute(&mut other).await.unwrap();
    assert_eq!(decide().await, [0, 0, 0], "a denial waits for nobody");
}

/// What this process has in memory, in kB.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn o_83_a_million_expired_rows_go_in_steps_and_decisions_go_on() {
    let url = database(SERVER, "o83").await.unwrap();
    let backend = PostgresBackend::connect(config(&url).sweep_interval(None).unwrap()).await.unwrap();
    let rows = 1_000_000;
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
    let before = resident();
    let done = std::sync::atomic::AtomicBool::new(false);
    let swept = async {
        let swept = backend.sweep().await.unwrap();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        swept
    };
    let decided = async {
        let (mut keys, mut slowest) = (0, Duration::ZERO);
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            let (key, since) = (keys.to_string(), Instant::now());
            for granted in [1, 0] {
                let outcome = backend.decide(&Action::consume(&policy, &key)).await.unwrap();
                assert_eq!(outcome.granted(), granted, "{key}");
            }
            slowest = slowest.max(since.elapsed());
            keys += 1;
        }
        (keys, slowest)
    };
    let (swept, (keys, slowest)) = tokio::join!(swept, decided);
    let grown = resident() - before;
    assert_eq!(swept, rows - 1, "the row that somebody holds is left");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    assert!(grown < 50_000, "a sweep took {grown} kB");
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    assert_eq!(backend.sweep().await.unwrap(), 1);
    assert_eq!(number(&url, "SELECT count(*) FROM throttle").await, keys + 1, "what counts is left");
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

/// A million decisions on a hundred keys leave a table, with its indexes, below 10 MB; nobody runs VACUUM by hand. The
/// server is this test's own: a transaction that stays open, in whichever database, keeps the old rows of all.
#[tokio::test(flavor = "multi_thread")]
async fn a_million_decisions_do_not_bloat_the_table() {
    let server = Own::start(&[]).await;
    let url = server.url();
    let backend = PostgresBackend::connect(config(&url)).await.unwrap();
    let policy = policy("gcra 1000000000/h");
    let keys: Vec<_> = (0..100).map(|key| format!("client-{key}")).collect();
    let actions: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
    for _ in 0..10_000 {
        for outcome in backend.decide_many(&actions).await {
            assert_eq!(outcome.unwrap().granted(), 1);
        }
    }
    let size = number(&url, "SELECT pg_total_relation_size('throttle')").await;
    assert!(size < 10_000_000, "{size} bytes");
    let index = number(&url, "SELECT pg_relation_size('throttle_pkey')").await;
    assert!(index <= 32_768, "updates touch no index, which has {index} bytes");
}

/// The time of the server cannot be told for a moment: an error, and then the same clock again.
#[tokio::test]
async fn o_49_a_clock_that_fails_is_an_error_and_never_another_clock() {
    let url = database(SERVER, "o49").await.unwrap();
    drop(PostgresBackend::connect(config(&url)).await.unwrap());
    let grants = "REVOKE EXECUTE ON FUNCTION clock_timestamp() FROM PUBLIC; \
        DROP ROLE IF EXISTS test_o49; CREATE ROLE test_o49 LOGIN PASSWORD 'secret'; \
        GRANT EXECUTE ON FUNCTION clock_timestamp() TO test_o49; GRANT SELECT ON throttle_schema TO test_o49; \
        GRANT SELECT, INSERT, UPDATE, DELETE ON throttle TO test_o49";
    ask(&url, grants).await.unwrap();
    let (_, address) = url.rsplit_once('@').unwrap();
    let limited = format!("postgres://test_o49:secret@{address}");
    let backend = PostgresBackend::connect(config(&limited)).await.unwrap();
    let policy = policy("gcra 2/h burst 2");
    let action = Action::consume(&policy, "key");
    let first = backend.decide(&action).await.unwrap();
    ask(&url, "REVOKE EXECUTE ON FUNCTION clock_timestamp() FROM test_o49").await.unwrap();
    let error = backend.decide(&action).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unauthorized, Effect::NotApplied));
    ask(&url, "GRANT EXECUTE ON FUNCTION clock_timestamp() TO test_o49").await.unwrap();
    let second = backend.decide(&action).await.unwrap();
    let third = backend.decide(&action).await.unwrap();
    assert_eq!([&first, &second, &third].map(Outcome::granted), [1, 1, 0]);
    let passed = third.now().as_micros() - first.now().as_micros();
    assert!(passed < 60_000_000, "{passed} µs");
}

#[tokio::test(flavor = "multi_thread")]
async fn o_74_a_hot_key_grants_what_there_is() {
    let url = database(SERVER, "o74").await.unwrap();
    let backend = GroupCommit::new(PostgresBackend::connect(config(&url)).await.unwrap());
    let policy = policy("gcra 1000/h burst 1000");
    let action = Action::consume(&policy, "key");
    let caller = async |_| {
        let mut granted = 0;
        for _ in 0..3 {
            granted += backend.decide(&action).await.unwrap().granted();
        }
        granted
    };
    let granted: u32 = join_all((0..400).map(caller)).await.into_iter().sum();
    assert_eq!(granted, 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_78_a_check_and_its_charge_are_one() {
    let url = database(SERVER, "o78").await.unwrap();
    let connect =
        || async { PostgresBackend::connect(config(&url).max_connections(2).unwrap()).await.unwrap() };
    let processes = join_all((0..8).map(|_| connect())).await;
    let ten = policy("gcra 10/h burst 10");
    let calls = processes.iter().flat_map(|backend| std::iter::repeat_n(backend, 25));
    let calls =
        calls.map(|backend| async { backend.decide(&Action::consume(&ten, "key")).await.unwrap().granted() });
    assert_eq!(join_all(calls).await.into_iter().sum::<u32>(), 10);
    let one = policy("gcra 1/h burst 1");
    for round in 0..200 {
        let key = round.to_string();
        let action = Action::consume(&one, &key);
        let (a, b) = tokio::join!(processes[0].decide(&action), processes[1].decide(&action));
        assert_eq!(a.unwrap().granted() + b.unwrap().granted(), 1, "round {round}");
    }
}

/// Whatever is locked is locked by a transaction: neither a pooler nor a killed client keeps it from others.
#[tokio::test]
async fn o_82_no_lock_outlives_its_statement() {
    let url = database(POOLER, "o82").await.unwrap();
    let backend = PostgresBackend::connect(config(&url).sweep_interval(None).unwrap()).await.unwrap();
    let policy = policy("gcra 10/h");
    ask(&url, "INSERT INTO throttle VALUES ('old', 'k', '{1,1,0,1}', 1)").await.unwrap();
    backend.decide(&Action::consume(&policy, "key")).await.unwrap();
    assert_eq!(backend.sweep().await.unwrap(), 1);
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND \
        database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(number(&url, locks).await, 0, "left to the pooler");

    let mut killed = connect(&url).await.unwrap();
    let hold = "BEGIN; SELECT pg_advisory_xact_lock('throttle'::regclass::oid::integer, 1416130632); \
        SELECT * FROM throttle FOR UPDATE";
    sqlx::raw_sql(hold).execute(&mut killed).await.unwrap();
    ask(&url, "INSERT INTO throttle VALUES ('old', 'l', '{1,1,0,1}', 1)").await.unwrap();
    assert_eq!(backend.sweep().await.unwrap(), 0, "another sweeps");
    drop(killed);
    let since = Instant::now();
    while backend.sweep().await.unwrap() == 0 {
        assert!(since.elapsed() < Duration::from_secs(5), "still locked");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(backend.decide(&Action::consume(&policy, "key")).await.unwrap().granted(), 1);
}
