//! The suite of all backends, on each kind of server.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use throttle_core::StoreBackend;
use throttle_memory::{DenyCache, Leased};
use throttle_redis::RedisBackend;
use throttle_testkit::Conformance;

fn main() -> ExitCode {
    suite("redis", "THROTTLE_TEST_REDIS_URL")
        .and(suite("redis-tls", "THROTTLE_TEST_REDIS_TLS_URL"))
        .and(suite("redis-sentinel", "THROTTLE_TEST_REDIS_SENTINEL_URL"))
        .and(suite("redis-cluster", "THROTTLE_TEST_REDIS_CLUSTER_URL"))
        .and(behind("redis-deny", DenyCache::new))
        .and(behind("redis-leased", Leased::new))
        .run()
}

/// What stands in front of a server must not be noticed.
fn behind<B: StoreBackend>(name: &'static str, front: fn(RedisBackend) -> B) -> Conformance<B> {
    let variable = "THROTTLE_TEST_REDIS_URL";
    Conformance::of(name, move || async move {
        Ok(front(RedisBackend::connect(common::config_of(variable, name)?).await?))
    })
    .requires(variable)
}

fn suite(name: &'static str, variable: &'static str) -> Conformance<RedisBackend> {
    Conformance::of(name, move || async move {
        Ok(RedisBackend::connect(common::config_of(variable, name)?).await?)
    })
    .requires(variable)
    .keeps_longer(|_| Duration::from_secs(1))
    .counts(move |_, policy| async move { common::count_keys(variable, name, &policy).await })
    .times_to_live(
        move |_, policy, key| async move { common::time_to_live(variable, name, &policy, &key).await },
    )
    .with_locks()
    .across_processes()
}
