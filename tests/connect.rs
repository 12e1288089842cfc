//! A store chosen by its URL, and what a wrong URL is told.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use throttle::{ConnectError, SetupError, connect};
#[cfg(feature = "memory")]
use throttle::{Policy, RateLimiter, Rule, Store, lock::Lock};

fn refused(url: &str) -> SetupError {
    match pollster::block_on(connect(url)) {
        Err(ConnectError::Setup(error)) => error,
        other => panic!("{url}: {other:?}"),
    }
}

#[test]
#[cfg(feature = "memory")]
fn memory_needs_nothing() {
    for url in ["memory://", "memory://?max_keys=5"] {
        let store = pollster::block_on(connect(url)).unwrap();
        assert_eq!(store.backend_name(), "memory");
        pollster::block_on(store.ping()).unwrap();
    }
}

#[test]
#[cfg(feature = "memory")]
fn one_store_has_limits_and_locks() {
    pollster::block_on(async {
        let store = throttle::connect_with_locks("memory://").await.unwrap();
        let lock = Lock::on(std::sync::Arc::new(store.clone()), "name");
        let _guard = lock.try_acquire().await.unwrap().unwrap();
        assert!(lock.try_acquire().await.unwrap().is_none());
        let limiter = RateLimiter::on(Policy::new("api", [Rule::gcra("1/h").unwrap()]).unwrap(), store);
        assert!(limiter.check("name").await.unwrap().is_allowed());
    });
}

#[test]
#[cfg(feature = "memory")]
fn what_memory_does_not_take_says_what_it_takes() {
    assert_eq!(refused("memory://?max_keys=0").to_string(), "max_keys: at least one");
    assert_eq!(
        refused("memory://?max_keys=x").to_string(),
        "not the URL of a store: max_keys is a whole number"
    );
    assert!(refused("memory://host").to_string().ends_with("takes ?max_keys=N and nothing else"));
}

#[test]
fn an_unknown_scheme_lists_the_known_ones_and_repeats_no_secret() {
    for url in ["memcached://user:hunter2@host", "hunter2", ""] {
        let message = refused(url).to_string();
        assert!(message.contains("memory://, redis://") && !message.contains("hunter2"), "{message}");
    }
}

#[test]
#[cfg(not(feature = "redis"))]
fn a_store_that_was_not_built_in_names_its_feature() {
    assert_eq!(refused("redis://h"), SetupError::MissingFeature { scheme: "redis", feature: "redis" });
    assert_eq!(refused("redis://h").to_string(), r#"redis:// needs the feature "redis" of throttle"#);
}
