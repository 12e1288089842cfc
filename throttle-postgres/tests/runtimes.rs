//! Backends outlive runtimes, and are dropped where there is none.
#![allow(clippy::unwrap_used, reason = "tests, with helpers")]

mod common;

use std::time::{Duration, Instant};

use common::{SERVER, config, database};
use futures_util::future::poll_immediate;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use throttle_core::{Action, Policy, Rule, StoreBackend};
use throttle_postgres::PostgresBackend;
use tokio::runtime::{Builder, Runtime};

fn policy() -> Policy {
    Policy::new("p", [Rule::gcra("1000000/h").unwrap()]).unwrap()
}

fn runtimes() -> [Runtime; 2] {
    [Builder::new_current_thread(), Builder::new_multi_thread()]
        .map(|mut builder| builder.worker_threads(2).enable_all().build().unwrap())
}

/// A pool, which keeps at least `least` connections, and a backend on it that has just been used.
async fn used(database_name: &str, least: u32) -> (PgPool, PostgresBackend) {
    let url = database(SERVER, database_name).await.unwrap();
    let pool = PgPoolOptions::new().min_connections(least).max_connections(3).connect(&url).await.unwrap();
    let backend = PostgresBackend::from_pool(pool.clone(), &config(&url)).await.unwrap();
    consume(&backend).await;
    (pool, backend)
}

async fn consume(backend: &PostgresBackend) {
    assert_eq!(backend.decide(&Action::consume(&policy(), "key")).await.unwrap().granted(), 1);
}

#[test]
fn a_backend_may_be_dropped_after_its_runtime() {
    for least in [0, 1] {
        for runtime in runtimes() {
            let (pool, backend) = runtime.block_on(used("runtime_first", least));
            drop(runtime);
            drop((backend, pool));
        }
    }
}

#[test]
fn a_backend_may_be_dropped_where_no_runtime_is() {
    for least in [0, 1] {
        for runtime in runtimes() {
            let (pool, backend) = runtime.block_on(used("runtime_elsewhere", least));
            drop((backend, pool));
        }
    }
}

#[test]
fn a_call_may_be_dropped_after_its_runtime() {
    for least in [0, 1] {
        for runtime in runtimes() {
            let (_pool, backend) = runtime.block_on(used("runtime_call", least));
            let policy = policy();
            let action = Action::consume(&policy, "key");
            // The server may have answered by the end of the first poll: then another call.
            let mut call = Box::pin(backend.decide(&action));
            while runtime.block_on(poll_immediate(&mut call)).is_some() {
                call = Box::pin(backend.decide(&action));
            }
            drop(runtime);
            drop(call);
        }
    }
}

/// The connection that was used last goes back to the pool, also when the runtime is not the one of the first call.
#[test]
fn a_backend_goes_on_with_another_runtime() {
    for first in runtimes() {
        let (pool, backend) = first.block_on(used("runtime_next", 0));
        drop(first);
        let [second, _] = runtimes();
        second.block_on(async {
            consume(&backend).await;
            let since = Instant::now();
            while pool.size() == 0 || pool.num_idle() < pool.size() as usize {
                assert!(since.elapsed() < Duration::from_secs(5), "a connection is kept for ever");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }
}
