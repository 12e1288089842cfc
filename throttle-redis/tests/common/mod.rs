//! Where the servers of these tests are.
#![allow(dead_code, reason = "each test file uses its part")]

use throttle_redis::{RedisBackend, RedisConfig};

/// The value of `variable`. Without it a test has nothing to test: it says so and passes, unless
/// `THROTTLE_TEST_REQUIRE` names redis.
pub(crate) fn server(variable: &str) -> Option<String> {
    if let Ok(url) = std::env::var(variable) {
        return Some(url);
    }
    let required = std::env::var("THROTTLE_TEST_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|service| matches!(service.trim(), "redis" | "all"));
    assert!(!required, "{variable} is not set, and THROTTLE_TEST_REQUIRE names redis");
    eprintln!("skipped: {variable} is not set");
    None
}

/// A backend whose keys are those of one test.
pub(crate) async fn backend(url: &str, prefix: &str) -> RedisBackend {
    RedisBackend::connect(config(url, prefix)).await.unwrap()
}

pub(crate) fn config(url: &str, prefix: &str) -> RedisConfig {
    RedisConfig::new(url).unwrap().prefix(&format!("{prefix}-{}", std::process::id())).unwrap()
}

/// A bare connection to look behind the backend.
pub(crate) async fn bare(url: &str) -> redis::aio::MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}
