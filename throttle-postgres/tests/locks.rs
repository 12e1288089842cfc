//! Locks on real servers: what the suite of all backends does not reach.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests, with helpers")]

mod common;

use std::time::{Duration, Instant};

use common::own::Own;
use common::{SERVER, ask, config, connect, database};
use sqlx::{AssertSqlSafe, PgConnection, Row};
use throttle_core::lock::{Acquisition, Lock, LockTerms, LockTtl, Owner, Released};
use throttle_core::{BaseErrorSet, Effect, ErrorKind, LockBackend};
use throttle_postgres::{PostgresBackend, PostgresConfig};

const MINUTE: Duration = Duration::from_secs(60);

fn ttl(span: Duration) -> LockTtl {
    LockTtl::new(span).unwrap()
}

fn terms(span: Duration) -> LockTerms {
    LockTerms::default().ttl(span).unwrap()
}

fn short(url: &str) -> PostgresConfig {
    config(url).response_deadline(Duration::from_millis(500)).unwrap()
}

async fn texts(connection: &mut PgConnection, statements: &str) -> Vec<String> {
    let rows = sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| row.try_get_unchecked::<String, _>(0).unwrap()).collect()
}

/// Whether somebody else has it; asked until the server answers.
async fn is_busy(backend: &PostgresBackend, name: &str) -> bool {
    let since = Instant::now();
    loop {
        match backend.acquire(name, Owner::random(), ttl(MINUTE)).await {
            Ok(acquisition) => return acquisition.fence().is_none(),
            Err(error) => assert!(since.elapsed() < Duration::from_secs(5), "{error:?}"),
        }
    }
}

/// Whether somebody waits for a row, at the server.
async fn until_somebody_waits(url: &str, expected: bool) {
    let waiters =
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let since = Instant::now();
    while ask(url, waiters).await.unwrap().is_empty() == expected {
        assert!(since.elapsed() < Duration::from_secs(10), "somebody waits: {}", !expected);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_lock_outlives_a_restart_and_a_crash() {
    let mut server = Own::start(&[]).await;
    let backend = PostgresBackend::connect(short(&server.url()).unlogged(true)).await.unwrap();
    let lock = Lock::new(backend.clone(), "job").with_terms(terms(MINUTE));
    let mut last = None;
    for signal in ["INT", "QUIT"] {
        let guard = lock.try_acquire().await.unwrap().unwrap();
        assert!(last < Some(guard.fence()), "{signal}");
        last = Some(guard.fence());
        server.stop(signal);
        server.start_again().await;
        assert!(is_busy(&backend, "job").await, "{signal}");
        assert!(guard.is_valid());
        assert_eq!(guard.release().await.unwrap(), Released::Freed, "{signal}");
    }
    let guard = lock.try_acquire().await.unwrap().unwrap();
    assert!(last < Some(guard.fence()), "after a crash");
}

#[tokio::test]
async fn a_holder_is_told_that_the_server_was_away_for_too_long() {
    let mut server = Own::start(&[]).await;
    let backend = PostgresBackend::connect(short(&server.url())).await.unwrap();
    let lock = Lock::new(backend, "job").with_terms(terms(Duration::from_secs(2)));
    let guard = lock.try_acquire().await.unwrap().unwrap();
    server.stop("INT");
    let since = Instant::now();
    guard.lost().await;
    assert!(since.elapsed() < Duration::from_millis(2_500), "{:?}", since.elapsed());
    server.start_again().await;
    let next = lock.acquire_within(Duration::from_secs(10)).await.unwrap().unwrap();
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    assert!(next.is_valid());
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

/// Whoever waits to enter may not have its number yet: others enter and leave meanwhile.
#[tokio::test]
async fn a_number_is_taken_when_the_lock_is_entered() {
    let url = database(SERVER, "lock_order").await.unwrap();
    let backend = PostgresBackend::connect(config(&url)).await.unwrap();
    let mut other = connect(&url).await.unwrap();
    let enter = |owner: u8| {
        format!("SELECT number::text FROM throttle_acquire_1('job', '{owner:032x}', 60000000, '10000');")
    };
    let leave = |owner: u8| format!("SELECT throttle_release_1('job', '{owner:032x}', '10000')::text;");
    texts(&mut other, &format!("BEGIN; {}", enter(1))).await;
    let waiting = backend.acquire("job", Owner::random(), ttl(MINUTE));
    let meanwhile = async {
        until_somebody_waits(&url, true).await;
        let seen = texts(&mut other, &format!("{}{}{}COMMIT", leave(1), enter(2), leave(2))).await;
        seen[1].parse::<u64>().unwrap()
    };
    let (entered, before) = tokio::join!(waiting, meanwhile);
    let fence = entered.unwrap().fence().unwrap().get();
    assert!(fence > before, "{fence} after {before}");
}

#[tokio::test]
async fn those_who_find_it_busy_write_nothing() {
    let url = database(SERVER, "lock_busy").await.unwrap();
    let backend = PostgresBackend::connect(config(&url)).await.unwrap();
    assert!(backend.acquire("job", Owner::random(), ttl(MINUTE)).await.unwrap().fence().is_some());
    let mut other = connect(&url).await.unwrap();
    let row = "SELECT concat(ctid, xmin, ' ', xmax) FROM throttle_locks";
    let before = texts(&mut other, row).await;
    for _ in 0..10 {
        let Acquisition::Busy { expires_in: Some(left) } =
            backend.acquire("job", Owner::random(), ttl(MINUTE)).await.unwrap()
        else {
            panic!("it is held")
        };
        assert!(left <= MINUTE && left > MINUTE / 2, "{left:?}");
    }
    assert_eq!(texts(&mut other, row).await, before);
}

#[tokio::test]
async fn a_row_that_somebody_holds_is_waited_for_until_the_deadline() {
    let url = database(SERVER, "lock_held").await.unwrap();
    let backend = PostgresBackend::connect(short(&url)).await.unwrap();
    let owner = Owner::random();
    let fence = backend.acquire("job", owner, ttl(MINUTE)).await.unwrap();
    let mut holder = connect(&url).await.unwrap();
    texts(&mut holder, "BEGIN; SELECT 'x'::text FROM throttle_locks FOR UPDATE").await;
    let errors = [
        backend.acquire("job", owner, ttl(MINUTE)).await.unwrap_err(),
        backend.extend("job", owner, ttl(MINUTE)).await.unwrap_err(),
        backend.release("job", owner).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    }
    until_somebody_waits(&url, false).await;
    texts(&mut holder, "ROLLBACK").await;
    assert_eq!(backend.acquire("job", owner, ttl(MINUTE)).await.unwrap(), fence);
}

#[tokio::test]
async fn what_is_said_of_a_lock_is_on_disk() {
    let url = database(SERVER, "lock_commit").await.unwrap();
    drop(PostgresBackend::connect(config(&url)).await.unwrap());
    let mut other = connect(&url).await.unwrap();
    let owner = "00000000000000000000000000000001";
    for (level, promised) in [("off", "on"), ("local", "local"), ("on", "on")] {
        for call in [
            format!("acquire_1('job', '{owner}', 60000000, '500')"),
            format!("extend_1('job', '{owner}', 60000000, '500')"),
            format!("release_1('job', '{owner}', '500')"),
        ] {
            let statements = format!(
                "BEGIN; SET LOCAL synchronous_commit = {level}; SELECT throttle_{call}::text; \
                 SELECT current_setting('synchronous_commit'); COMMIT"
            );
            assert_eq!(texts(&mut other, &statements).await.pop().unwrap(), promised, "{call}");
        }
    }
}

#[tokio::test]
async fn abandoned_locks_are_swept_and_held_ones_are_not() {
    let url = database(SERVER, "lock_sweep").await.unwrap();
    let backend = PostgresBackend::connect(config(&url).sweep_interval(None).unwrap()).await.unwrap();
    let insert = "INSERT INTO throttle_locks SELECT convert_to(n::text, 'UTF8'), \
        '00000000000000000000000000000001', n, 1 FROM generate_series(1, 50000) n";
    ask(&url, insert).await.unwrap();
    let owner = Owner::random();
    let taken = backend.acquire("7", owner, ttl(MINUTE)).await.unwrap();
    assert!(taken.fence().unwrap().get() > 50_000, "a number of its own");
    assert_eq!(backend.sweep().await.unwrap(), 49_999);
    assert_eq!(backend.acquire("7", owner, ttl(MINUTE)).await.unwrap(), taken);
    assert!(backend.release("7", owner).await.unwrap());
    let left = ask(&url, "SELECT 1 FROM throttle_locks").await.unwrap();
    assert!(left.is_empty(), "nothing is kept of a lock that is free");
}

/// The numbers go on above those of a sequence that was dropped and made again.
#[tokio::test]
async fn a_schema_that_was_made_again_goes_on_above_its_old_numbers() {
    let url = database(SERVER, "lock_again").await.unwrap();
    let mut last = None;
    for _ in 0..3 {
        let backend = PostgresBackend::connect(config(&url)).await.unwrap();
        let fence = backend.acquire("job", Owner::random(), ttl(MINUTE)).await.unwrap().fence();
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
        ask(&url, "DROP TABLE throttle, throttle_locks, throttle_schema; DROP SEQUENCE throttle_fences")
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_user_needs_what_the_readme_says() {
    let url = database(SERVER, "lock_grants").await.unwrap();
    drop(PostgresBackend::connect(config(&url)).await.unwrap());
    let role = "DROP ROLE IF EXISTS test_locker; CREATE ROLE test_locker LOGIN PASSWORD 'secret'; \
        GRANT SELECT ON throttle_schema TO test_locker";
    ask(&url, role).await.unwrap();
    let (_, address) = url.rsplit_once('@').unwrap();
    let limited = PostgresBackend::connect(config(&format!("postgres://test_locker:secret@{address}"))).await;
    let (limited, owner) = (limited.unwrap(), Owner::random());
    let error = limited.acquire("job", owner, ttl(MINUTE)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unauthorized, Effect::NotApplied));
    let grants = "GRANT SELECT, INSERT, UPDATE, DELETE ON throttle, throttle_locks TO test_locker; \
        GRANT USAGE ON throttle_fences TO test_locker";
    ask(&url, grants).await.unwrap();
    assert!(limited.acquire("job", owner, ttl(MINUTE)).await.unwrap().fence().is_some());
    assert!(limited.extend("job", owner, ttl(MINUTE)).await.unwrap());
    assert!(limited.release("job", owner).await.unwrap());
    limited.sweep().await.unwrap();
}
