//! Every failure of PostgreSQL, provoked on a server; some on a server of the test's own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests, with helpers")]

mod common;

use std::time::{Duration, Instant};

use common::own::{Own, free_port};
use common::{POOLER, SERVER, ask, config, connect, database};
use futures_util::future::join_all;
use sqlx::Row;
use sqlx::postgres::PgPoolOptions;
use throttle_core::{
    Action, BaseErrorSet, ConnectError, Effect, ErrorKind, Policy, Rule, SetupError, StoreBackend,
};
use throttle_postgres::{PostgresBackend, PostgresConfig, PostgresError};
use throttle_testkit::SlowLine;
use tokio::time::timeout;

fn policy() -> Policy {
    Policy::new("p", [Rule::gcra("1000000/h").unwrap()]).unwrap()
}

async fn consume(backend: &PostgresBackend) -> Result<u32, PostgresError> {
    let policy = policy();
    backend.decide(&Action::consume(&policy, "key")).await.map(|outcome| outcome.granted())
}

/// The kind of a failure that charged nothing.
async fn refusal(backend: &PostgresBackend) -> ErrorKind {
    let error = consume(backend).await.unwrap_err();
    assert_eq!(error.effect(), Effect::NotApplied, "{error:?}");
    error.kind()
}

async fn connect_error(config: PostgresConfig) -> (ErrorKind, Effect) {
    match PostgresBackend::connect(config).await {
        Err(ConnectError::Unavailable(error)) => (error.kind(), error.effect()),
        other => panic!("{other:?}"),
    }
}

fn short(url: &str) -> PostgresConfig {
    config(url)
        .response_deadline(Duration::from_millis(500))
        .and_then(|config| config.acquire_deadline(Duration::from_millis(800)))
        .unwrap()
}

async fn unsupported(config: PostgresConfig) -> String {
    match PostgresBackend::connect(config).await {
        Err(ConnectError::Setup(SetupError::Unsupported { backend: "postgres", reason })) => reason,
        other => panic!("{other:?}"),
    }
}

/// A connection takes several round trips, a decision one: callers who have time for the latter alone are served in the end.
#[tokio::test]
async fn callers_with_less_time_than_it_takes_to_connect_are_served() {
    let url = database(SERVER, "slow_line").await.unwrap();
    let (login, address) = url.rsplit_once('@').unwrap();
    let (server, name) = address.split_once('/').unwrap();
    let line = SlowLine::to(server, Duration::from_millis(50)).await.unwrap();
    let slow = format!("{login}@{}/{name}", line.address());
    let backend = PostgresBackend::connect(config(&slow)).await.unwrap();
    let others = "datname = current_database() AND pid <> pg_backend_pid()";
    ask(&url, &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))
        .await
        .unwrap();
    let since = Instant::now();
    while !matches!(timeout(Duration::from_millis(300), consume(&backend)).await, Ok(Ok(1))) {
        assert!(since.elapsed() < Duration::from_secs(20), "nobody was served");
    }
}

#[tokio::test]
async fn nobody_listens() {
    let url = format!("postgres://u:secret@127.0.0.1:{}/d", free_port());
    let since = Instant::now();
    let patient = config(&url).acquire_deadline(Duration::from_secs(10)).unwrap();
    assert_eq!(connect_error(patient).await, (ErrorKind::Connection, Effect::NotApplied));
    assert!(since.elapsed() < Duration::from_secs(6), "a refusal is not waited out");
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://u@127.0.0.1:{}/d", silent.local_addr().unwrap().port());
    let since = Instant::now();
    assert_eq!(connect_error(short(&url)).await, (ErrorKind::Connection, Effect::NotApplied));
    assert!(since.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn users_and_databases() {
    let url = database(SERVER, "users").await.unwrap();
    let (_, address) = url.rsplit_once('@').unwrap();
    let at = |login: &str| format!("postgres://{login}@{address}");
    let unauthorized = (ErrorKind::Unauthorized, Effect::NotApplied);
    assert_eq!(connect_error(config(&at("throttle:wrong"))).await, unauthorized, "28P01");
    let missing = format!("{url}_missing");
    assert_eq!(connect_error(config(&missing)).await.0, ErrorKind::Misconfigured, "3D000");
    ask(&url, "DROP ROLE IF EXISTS test_reader; CREATE ROLE test_reader LOGIN PASSWORD 'secret'")
        .await
        .unwrap();
    assert_eq!(connect_error(config(&at("test_reader:secret"))).await, unauthorized, "42501 when migrating");
    PostgresBackend::connect(config(&url)).await.unwrap();
    ask(&url, "GRANT SELECT ON throttle_schema TO test_reader").await.unwrap();
    let reader = PostgresBackend::connect(config(&at("test_reader:secret"))).await.unwrap();
    assert_eq!(refusal(&reader).await, ErrorKind::Unauthorized, "42501");
}

#[tokio::test]
async fn the_schema_is_missing_gone_or_too_new() {
    let url = database(SERVER, "drift").await.unwrap();
    assert!(unsupported(config(&url).migrate(false)).await.contains("schema_sql"));
    ask(&url, &PostgresBackend::schema_sql(&config(&url))).await.unwrap();
    let backend = PostgresBackend::connect(config(&url).migrate(false)).await.unwrap();
    consume(&backend).await.unwrap();

    ask(&url, "INSERT INTO throttle_schema VALUES (2, 1)").await.unwrap();
    PostgresBackend::connect(config(&url)).await.unwrap();
    ask(&url, "INSERT INTO throttle_schema VALUES (3, 3)").await.unwrap();
    assert!(unsupported(config(&url)).await.contains("too new"));

    ask(&url, "DROP FUNCTION throttle_decide_1").await.unwrap();
    assert_eq!(refusal(&backend).await, ErrorKind::Misconfigured, "42883");
    ask(&url, "DROP TABLE throttle").await.unwrap();
    let error = backend.reset(policy().name(), "key").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "42P01");
}

#[tokio::test]
async fn a_row_that_somebody_holds_is_waited_for_until_the_deadline() {
    let url = database(SERVER, "held").await.unwrap();
    let config = config(&url).response_deadline(Duration::from_millis(500)).unwrap();
    let backend = PostgresBackend::connect(config).await.unwrap();
    consume(&backend).await.unwrap();
    let mut holder = connect(&url).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT * FROM throttle FOR UPDATE").execute(&mut holder).await.unwrap();
    let since = Instant::now();
    let error = consume(&backend).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    assert!(since.elapsed() < Duration::from_secs(3));
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    consume(&backend).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    assert_eq!(ask(&url, waiting).await.unwrap()[0].try_get::<i64, _>(0).unwrap(), 0);
}

#[tokio::test]
async fn o_79_a_pool_in_use_is_a_pool_that_timed_out() {
    let url = database(SERVER, "pool").await.unwrap();
    let pool = PgPoolOptions::new().max_connections(2).connect(&url).await.unwrap();
    let backend = PostgresBackend::from_pool(pool.clone(), &short(&url)).await.unwrap();
    let held = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    let since = Instant::now();
    let policy = policy();
    let action = Action::consume(&policy, "key");
    let errors = join_all((0..20).map(|_| backend.decide(&action))).await;
    for error in errors {
        let error = error.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::PoolExhausted, Effect::NotApplied));
    }
    assert!(since.elapsed() < Duration::from_secs(5));
    assert_eq!(pool.size(), 2, "nobody opens more");
    drop(held);
    let waiting = join_all((0..20).map(|_| backend.decide(&action))).await;
    let granted: u32 = waiting.into_iter().map(|outcome| outcome.unwrap().granted()).sum();
    assert_eq!(granted, 20);
}

#[tokio::test]
async fn a_database_that_only_reads() {
    let url = database(SERVER, "read_only").await.unwrap();
    drop(PostgresBackend::connect(config(&url)).await.unwrap());
    ask(&url, "ALTER DATABASE test_read_only SET default_transaction_read_only = on").await.unwrap();
    let backend = PostgresBackend::connect(config(&url)).await.unwrap();
    assert_eq!(refusal(&backend).await, ErrorKind::ReadOnly, "25006");
    let policy = policy();
    backend.decide(&Action::peek(&policy, "key")).await.unwrap();
}

#[tokio::test]
async fn foreign_rows_are_corrupt_and_left_alone() {
    let url = database(SERVER, "corrupt").await.unwrap();
    let backend = PostgresBackend::connect(config(&url)).await.unwrap();
    let policy = policy();
    let bad =
        ["{7}", "{1,2}", "{1,1,5,5}", "{1,-1,0,1}", "{2,0,1,1}", "{4,1,1}", "{NULL,1,0,1}", "{{1,1},{0,1}}"];
    for (n, state) in bad.iter().enumerate() {
        let insert = format!("INSERT INTO throttle VALUES ('p', 'bad{n}', '{state}', 9000000000000000)");
        ask(&url, &insert).await.unwrap();
    }
    let keys: Vec<_> = (0..bad.len()).map(|n| format!("bad{n}")).collect();
    let mut actions: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
    actions.push(Action::consume(&policy, "good"));
    let outcomes = backend.decide_many(&actions).await;
    for (outcome, state) in outcomes.iter().zip(&bad) {
        let error = outcome.as_ref().unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::NotApplied), "{state}");
    }
    assert_eq!(outcomes.last().unwrap().as_ref().unwrap().granted(), 1, "the others of a batch are decided");
    let left = "SELECT count(*) FROM throttle WHERE state IN ('{7}', '{1,1,5,5}', '{2,0,1,1}')";
    assert_eq!(ask(&url, left).await.unwrap()[0].try_get::<i64, _>(0).unwrap(), 3);
}

#[tokio::test]
async fn too_many_connections() {
    let server = Own::start(&["max_connections=8", "superuser_reserved_connections=3"]).await;
    let backend = PostgresBackend::connect(short(&server.url()).max_connections(8).unwrap()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    ask(&server.url(), "CREATE ROLE ordinary LOGIN; GRANT ALL ON SCHEMA public TO ordinary").await.unwrap();
    let mut held = Vec::new();
    let ordinary = server.url().replace("throttle@", "ordinary@");
    while let Ok(connection) = connect(&ordinary).await {
        held.push(connection);
    }
    assert_eq!(connect_error(short(&ordinary)).await, (ErrorKind::Overloaded, Effect::NotApplied), "53300");
    held.clear();
    tokio::time::sleep(Duration::from_millis(200)).await;
    consume(&backend).await.unwrap();
}

#[tokio::test]
async fn a_stalled_server_costs_the_deadline_and_no_more() {
    let server = Own::start(&[]).await;
    let backend = PostgresBackend::connect(short(&server.url())).await.unwrap();
    consume(&backend).await.unwrap();
    server.signal_all("STOP");
    let since = Instant::now();
    let error = consume(&backend).await.unwrap_err();
    let took = since.elapsed();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown), "{error:?}");
    assert!((Duration::from_millis(500)..Duration::from_millis(1_500)).contains(&took), "{took:?}");
    let since = Instant::now();
    let errors = join_all((0..50).map(|_| consume(&backend))).await;
    assert!(errors.into_iter().all(|answer| answer.is_err()));
    assert!(since.elapsed() < Duration::from_secs(3), "callers do not wait one after the other");
    server.signal_all("CONT");
    let since = Instant::now();
    while consume(&backend).await.is_err() {
        assert!(since.elapsed() < Duration::from_secs(5), "does not recover");
    }
}

/// Must show: typed errors, recovery within a second of the server being up, counts within the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_under_load() {
    let mut server = Own::start(&[]).await;
    let backend = PostgresBackend::connect(short(&server.url())).await.unwrap();
    let policy = Policy::new("p", [Rule::gcra("300/h").unwrap()]).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let caller = async || {
        let (mut granted, mut failed, mut last) = (0, 0, Instant::now());
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            match backend.decide(&Action::consume(&policy, "key")).await {
                Ok(outcome) => granted += outcome.granted(),
                Err(error) => {
                    assert!(error.kind().is_transient(), "{error:?}");
                    (failed, last) = (failed + 1, Instant::now());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        (granted, failed, last)
    };
    let restart = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.restart().await;
        let up = Instant::now();
        tokio::time::sleep(Duration::from_secs(3)).await;
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        up
    };
    let (up, seen) = tokio::join!(restart, join_all((0..16).map(|_| caller())));
    let granted: u32 = seen.iter().map(|(granted, ..)| granted).sum();
    assert!(granted <= 301, "{granted} granted");
    assert!(seen.iter().any(|(_, failed, _)| *failed > 0), "the restart was noticed");
    for (.., last) in &seen {
        let late = last.saturating_duration_since(up);
        assert!(late < Duration::from_secs(1), "still failing {late:?} after the server is up");
    }
    backend.decide(&Action::peek(&policy, "key")).await.unwrap();
}

#[tokio::test]
async fn o_77_a_pooler_gives_each_statement_to_another_server() {
    let backend = common::backend(POOLER, "o77").await.unwrap();
    let policy = policy();
    let caller = async |caller: usize| {
        for call in 0..50 {
            let key = format!("{}", (caller + call) % 7);
            let outcome = backend.decide(&Action::consume(&policy, &key)).await;
            assert_eq!(outcome.unwrap().granted(), 1, "no 42P05, no 26000");
        }
    };
    join_all((0..20).map(caller)).await;
}
