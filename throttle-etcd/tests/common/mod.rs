//! Where the cluster of these tests is, and a way to look at it past the backend.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers fail by panicking")]

pub(crate) mod own;

use std::time::{Duration, Instant};

use etcd_client::{Client, GetOptions};
use throttle_core::{PolicyName, storage_key, storage_prefix};
use throttle_etcd::EtcdConfig;
use throttle_testkit::conformance::AnyError;

/// Names the environment variable that says where the cluster is.
pub(crate) const URL: &str = "THROTTLE_TEST_ETCD_URL";

/// The value of [`URL`]. Without it there is nothing to test, and the test fails: none passes because nothing ran.
pub(crate) fn url() -> String {
    std::env::var(URL).unwrap_or_else(|_| panic!("{URL} is not set: cargo xtask test starts etcd"))
}

pub(crate) fn prefix(test: &str) -> String {
    // A child of a test works on the keys of its parent.
    let run = std::env::var("THROTTLE_TESTKIT_PARENT").unwrap_or_else(|_| std::process::id().to_string());
    format!("{test}-{run}")
}

/// The cluster, with a prefix of this run of `test`. Two cores, shared by many servers and tests: what is not about
/// deadlines waits longer.
pub(crate) fn config(test: &str) -> Result<EtcdConfig, AnyError> {
    let config = EtcdConfig::new(&std::env::var(URL)?)?.prefix(&prefix(test))?;
    let long = Duration::from_secs(10);
    Ok(config.response_deadline(long)?.connect_deadline(long)?.contention_deadline(long)?)
}

/// A plain client of the cluster.
pub(crate) async fn client() -> Result<Client, AnyError> {
    let url = std::env::var(URL)?;
    let members = url.strip_prefix("etcd://").ok_or("not etcd://")?;
    Ok(Client::connect(members.split(',').collect::<Vec<_>>(), None).await?)
}

/// How many keys of `policy` there are.
pub(crate) async fn count_keys(test: &str, policy: &PolicyName) -> Result<u64, AnyError> {
    let prefix = storage_prefix(&prefix(test), policy);
    let options = GetOptions::new().with_prefix().with_count_only();
    Ok(client().await?.get(prefix, Some(options)).await?.count().try_into()?)
}

/// How long the state of a key will still be stored, at most: the server tells whole seconds, rounded down.
pub(crate) async fn time_to_live(
    test: &str,
    policy: &PolicyName,
    key: &str,
) -> Result<Option<Duration>, AnyError> {
    let mut client = client().await?;
    let value = client.get(storage_key(&prefix(test), policy, key), None).await?;
    let Some(lease) = value.kvs().first().map(etcd_client::KeyValue::lease) else { return Ok(None) };
    if lease == 0 {
        return Err("a key without a lease".into());
    }
    let left = client.lease_time_to_live(lease, None).await?.ttl();
    Ok(Some(Duration::from_secs(u64::try_from(left)? + 1)))
}

/// Waits until something holds, and fails if that takes too long.
pub(crate) async fn until(what: &str, patience: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < patience, "{what} takes longer than {patience:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
