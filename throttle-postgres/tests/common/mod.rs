//! Where the servers of these tests are, and a way to look at them past the backend.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test helpers fail by panicking"
)]

pub(crate) mod own;

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, PgPool, Row};
use throttle_core::{PolicyName, stored_key};
use throttle_postgres::{PostgresBackend, PostgresConfig};
use throttle_testkit::conformance::AnyError;

pub(crate) const SERVER: &str = "THROTTLE_TEST_POSTGRES_URL";
pub(crate) const POOLER: &str = "THROTTLE_TEST_PGBOUNCER_URL";

/// The value of `variable`. Without it there is nothing to test, and the test fails: none passes because nothing ran.
pub(crate) fn server(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: cargo xtask test starts PostgreSQL"))
}

/// A database of its own for one test, empty; on the server that `variable` names.
pub(crate) async fn database(variable: &str, test: &str) -> Result<String, AnyError> {
    let (url, name) = (server(variable), name(test));
    ask(&url, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
    ask(&url, &format!("CREATE DATABASE {name}")).await?;
    url_of(variable, test)
}

fn name(test: &str) -> String {
    format!("test_{}", test.replace('-', "_"))
}

fn url_of(variable: &str, test: &str) -> Result<String, AnyError> {
    let url = server(variable);
    let (server, _) = url.rsplit_once('/').ok_or("no database in the URL")?;
    Ok(format!("{server}/{}", name(test)))
}

/// Two cores, shared by many servers and tests: what is not about deadlines waits longer.
pub(crate) fn config(url: &str) -> PostgresConfig {
    PostgresConfig::new(url)
        .and_then(|config| config.response_deadline(Duration::from_secs(10)))
        .and_then(|config| config.acquire_deadline(Duration::from_secs(30)))
        .unwrap()
}

/// A backend whose rows are those of one test.
pub(crate) async fn backend(variable: &str, test: &str) -> Result<PostgresBackend, AnyError> {
    Ok(PostgresBackend::connect(config(&database(variable, test).await?)).await?)
}

/// A backend of a suite, whose trials run in processes of their own and share a database: their policies have names of
/// their own.
pub(crate) async fn suite_backend(variable: &str, suite: &str) -> Result<PostgresBackend, AnyError> {
    let mut url = url_of(variable, suite)?;
    if connect(&url).await.is_err() {
        // Another trial may be making it just now.
        let _ = ask(&server(variable), &format!("CREATE DATABASE {}", name(suite))).await;
    }
    if suite.contains("serializable") {
        url += "?options[default_transaction_isolation]=serializable";
    }
    Ok(PostgresBackend::connect(config(&url)).await?)
}

/// Asks the server itself.
pub(crate) async fn ask(url: &str, statement: &str) -> Result<Vec<PgRow>, AnyError> {
    Ok(sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_all(&mut connect(url).await?).await?)
}

pub(crate) async fn connect(url: &str) -> Result<PgConnection, AnyError> {
    Ok(PgConnectOptions::from_str(url)?.extra_float_digits(None::<i8>).connect().await?)
}

/// The same on a connection that is there already: what is looked at may not last long.
async fn ask_at_once(url: &str, statement: &str) -> Result<Vec<PgRow>, AnyError> {
    static POOLS: LazyLock<Mutex<HashMap<String, PgPool>>> = LazyLock::new(Mutex::default);
    let options = PgConnectOptions::from_str(url)?.extra_float_digits(None::<i8>);
    let pool = || PgPoolOptions::new().max_connections(2).connect_lazy_with(options);
    let pool = POOLS.lock().unwrap().entry(url.to_owned()).or_insert_with(pool).clone();
    Ok(sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_all(&pool).await?)
}

/// How many keys of `policy` there are that a sweep would leave.
pub(crate) async fn count_keys(variable: &str, test: &str, policy: &PolicyName) -> Result<u64, AnyError> {
    let rows = ask_at_once(
        &url_of(variable, test)?,
        &format!(
            "SELECT count(*) FROM throttle WHERE policy = '{policy}' \
             AND expires_at > extract(epoch FROM clock_timestamp()) * 1000000"
        ),
    )
    .await?;
    Ok(u64::try_from(rows[0].try_get::<i64, _>(0)?)?)
}

/// How long the state of a key will still be stored.
pub(crate) async fn time_to_live(
    variable: &str,
    test: &str,
    policy: &PolicyName,
    key: &str,
) -> Result<Option<Duration>, AnyError> {
    let key: String = stored_key(key).bytes().map(|byte| format!("{byte:02x}")).collect();
    let rows = ask_at_once(
        &url_of(variable, test)?,
        &format!(
            "SELECT expires_at - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM throttle \
             WHERE policy = '{policy}' AND key = decode('{key}', 'hex')"
        ),
    )
    .await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(u64::try_from(row.try_get::<i64, _>(0)?).ok().map(Duration::from_micros))
}
