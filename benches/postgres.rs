//! Decisions in PostgreSQL against the plain statements that people write for it, on one server through one pool.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr, reason = "a bench")]
#![allow(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "a bench counts")]

use std::future::Future;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use throttle_bench::race;
use throttle_core::{GroupCommit, Guarded, Policy, RateLimiter, Rule, StoreBackend};
use throttle_postgres::{PostgresBackend, PostgresConfig};
use tokio::runtime::Runtime;

const SERVER: &str = "THROTTLE_TEST_POSTGRES_URL";
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 11;
const CONNECTIONS: u32 = 16;

const UPSERT: &str = "INSERT INTO bench_bare (key, count) VALUES ($1, 1) \
    ON CONFLICT (key) DO UPDATE SET count = bench_bare.count + 1 RETURNING count";

fn main() -> ExitCode {
    let Ok(url) = std::env::var(SERVER) else {
        eprintln!("{SERVER} is not set: cargo xtask services up postgres says where it is");
        return ExitCode::FAILURE;
    };
    let runtime = Runtime::new().unwrap();
    let pool = runtime.block_on(prepare(&url));
    let alone = runtime.block_on(limiter(&url, &pool, |backend| backend));
    let grouped = runtime.block_on(limiter(&url, &pool, GroupCommit::new));
    race(
        "postgres_64_callers_1000_keys_to_upsert",
        ROUNDS,
        || runtime.block_on(rate(64, 1_000, &|key| check(&grouped, key))),
        || runtime.block_on(rate(64, 1_000, &|key| upsert(&pool, key))),
    );
    race(
        "postgres_64_callers_1_key_to_select_for_update",
        ROUNDS,
        || runtime.block_on(rate(64, 1, &|key| check(&grouped, key))),
        || runtime.block_on(rate(64, 1, &|key| select_for_update(&pool, key))),
    );
    race(
        "postgres_1_caller_to_upsert",
        ROUNDS,
        || runtime.block_on(rate(1, 1_000, &|key| check(&grouped, key))),
        || runtime.block_on(rate(1, 1_000, &|key| upsert(&pool, key))),
    );
    race(
        "postgres_1_caller_to_upsert_that_a_pooler_takes",
        ROUNDS,
        || runtime.block_on(rate(1, 1_000, &|key| check(&grouped, key))),
        || runtime.block_on(rate(1, 1_000, &|key| upsert_as_text(&pool, key))),
    );
    race(
        "postgres_64_callers_1000_keys_ungrouped_to_upsert",
        ROUNDS,
        || runtime.block_on(rate(64, 1_000, &|key| check(&alone, key))),
        || runtime.block_on(rate(64, 1_000, &|key| upsert(&pool, key))),
    );
    ExitCode::SUCCESS
}

async fn prepare(url: &str) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false);
    let pool = pool.connect(url).await.unwrap();
    let table = "DROP TABLE IF EXISTS bench_bare; \
        CREATE TABLE bench_bare (key text PRIMARY KEY, count bigint NOT NULL) WITH (fillfactor = 45); \
        DROP SCHEMA IF EXISTS bench CASCADE";
    sqlx::raw_sql(AssertSqlSafe(table)).execute(&pool).await.unwrap();
    for key in 0..1_000 {
        upsert(&pool, key_of(key)).await;
    }
    pool
}

async fn limiter<B: StoreBackend>(
    url: &str,
    pool: &PgPool,
    wrap: fn(PostgresBackend) -> B,
) -> RateLimiter<Guarded<B>> {
    let config = PostgresConfig::new(url).unwrap().schema("bench").unwrap();
    let config = config.response_deadline(Duration::from_secs(10)).unwrap();
    let config = config.acquire_deadline(Duration::from_secs(10)).unwrap();
    let backend = PostgresBackend::from_pool(pool.clone(), &config).await.unwrap();
    RateLimiter::new(
        Policy::new("bench", [Rule::gcra("1000000/s burst 1000000000").unwrap()]).unwrap(),
        wrap(backend),
    )
}

type Call<'c> = std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'c>>;

fn check<B: StoreBackend>(limiter: &RateLimiter<Guarded<B>>, key: String) -> Call<'_> {
    Box::pin(async move { assert!(limiter.check(&key).await.unwrap().is_allowed()) })
}

fn upsert(pool: &PgPool, key: String) -> Call<'_> {
    Box::pin(async move {
        sqlx::query_scalar::<_, i64>(UPSERT).bind(key).fetch_one(pool).await.unwrap();
    })
}

/// Without a prepared statement, in one message: as ours go.
fn upsert_as_text(pool: &PgPool, key: String) -> Call<'_> {
    Box::pin(async move {
        let statement = UPSERT.replace("$1", &format!("'{key}'"));
        sqlx::raw_sql(AssertSqlSafe(statement)).fetch_one(pool).await.unwrap();
    })
}

fn select_for_update(pool: &PgPool, key: String) -> Call<'_> {
    Box::pin(async move {
        let mut transaction = pool.begin().await.unwrap();
        let count: i64 = sqlx::query_scalar("SELECT count FROM bench_bare WHERE key = $1 FOR UPDATE")
            .bind(&key)
            .fetch_one(&mut *transaction)
            .await
            .unwrap();
        let update =
            sqlx::query("UPDATE bench_bare SET count = $2 WHERE key = $1").bind(&key).bind(count + 1);
        update.execute(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
    })
}

/// Calls per second of `callers` at once, for one round, each on keys in an order of its own.
async fn rate<'c>(callers: u64, keys: u64, call: &dyn Fn(String) -> Call<'c>) -> f64 {
    let (done, since) = (AtomicU64::new(0), Instant::now());
    let caller = async |caller: u64| {
        let mut turn = caller * 7_919;
        while since.elapsed() < ROUND {
            call(key_of(turn % keys)).await;
            done.fetch_add(1, Ordering::Relaxed);
            turn += 1;
        }
    };
    join_all((0..callers).map(caller)).await;
    done.load(Ordering::Relaxed) as f64 / since.elapsed().as_secs_f64()
}

fn key_of(key: u64) -> String {
    format!("client-{key:09}")
}
