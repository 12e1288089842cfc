//! Where the servers of these tests are, and a way to look at them past the backend.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers fail by panicking")]

pub(crate) mod own;

use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{Cmd, IntoConnectionInfo, TlsCertificates, Value};
use throttle_core::{PolicyName, storage_key, storage_prefix};
use throttle_redis::{RedisBackend, RedisConfig};
use throttle_testkit::conformance::AnyError;

/// The value of `variable`. Without it there is nothing to test, and the test fails: none passes because nothing ran.
pub(crate) fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: cargo xtask test starts Redis"))
}

/// The server that `variable` names, with a prefix of this run of `test`.
pub(crate) fn config_of(variable: &str, test: &str) -> Result<RedisConfig, AnyError> {
    let config = RedisConfig::new(&std::env::var(variable)?)?.prefix(&prefix(test))?;
    // Two cores, shared by many servers and tests: what is not about deadlines waits longer.
    let config =
        config.response_deadline(Duration::from_secs(10))?.connect_deadline(Duration::from_secs(10))?;
    Ok(match std::env::var("THROTTLE_TEST_REDIS_CA") {
        Ok(ca) if variable.contains("TLS") => config.root_certificates(&std::fs::read(ca)?)?,
        _ => config,
    })
}

pub(crate) fn prefix(test: &str) -> String {
    // A child of a test works on the keys of its parent.
    let run = std::env::var("THROTTLE_TESTKIT_PARENT").unwrap_or_else(|_| std::process::id().to_string());
    format!("{test}-{run}")
}

/// A backend whose keys are those of one test.
pub(crate) async fn backend(variable: &str, test: &str) -> RedisBackend {
    RedisBackend::connect(config_of(variable, test).unwrap()).await.unwrap()
}

/// Asks the server itself, whatever it is; all primaries of a cluster for what concerns all keys.
pub(crate) async fn ask(variable: &str, command: &Cmd) -> Result<Value, AnyError> {
    let url = std::env::var(variable)?;
    let mut value = if let Some(nodes) = url.strip_prefix("redis+cluster://") {
        let nodes: Vec<_> = nodes.split(',').map(|node| format!("redis://{node}")).collect();
        ClusterClient::new(nodes)?.get_async_connection().await?.req_packed_command(command).await?
    } else {
        let mut connection = client(&url).await?.get_multiplexed_async_connection().await?;
        connection.req_packed_command(command).await?
    };
    if let Value::ServerError(error) = value {
        return Err(redis::RedisError::from(error).into());
    }
    if let Value::SimpleString(text) = value {
        value = Value::BulkString(text.into_bytes());
    }
    Ok(value)
}

/// A client of the one server, or of the present primary.
pub(crate) async fn client(url: &str) -> Result<redis::Client, AnyError> {
    if let Some(rest) = url.strip_prefix("redis+sentinel://") {
        let (sentinels, service) = rest.split_once('/').ok_or("no service")?;
        let addresses =
            sentinels.split(',').map(|sentinel| format!("redis://{sentinel}").into_connection_info());
        let addresses = addresses.map(|info| info.map(|info| info.addr().clone()));
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let sentinel = SentinelClientBuilder::new(addresses, service, SentinelServerType::Master)?;
        return Ok(sentinel.build()?.async_get_client().await?);
    }
    Ok(match std::env::var("THROTTLE_TEST_REDIS_CA") {
        Ok(ca) if url.starts_with("rediss") => {
            let certificates = TlsCertificates { client_tls: None, root_cert: Some(std::fs::read(ca)?) };
            redis::Client::build_with_tls(url, certificates)?
        }
        _ => redis::Client::open(url)?,
    })
}

/// How many keys of `policy` there are.
pub(crate) async fn count_keys(variable: &str, test: &str, policy: &PolicyName) -> Result<u64, AnyError> {
    let pattern = format!("{}*", storage_prefix(&prefix(test), policy));
    let keys: Vec<Vec<u8>> = redis::from_redis_value(ask(variable, redis::cmd("KEYS").arg(pattern)).await?)?;
    Ok(keys.len() as u64)
}

/// How long the state of a key will still be stored.
pub(crate) async fn time_to_live(
    variable: &str,
    test: &str,
    policy: &PolicyName,
    key: &str,
) -> Result<Option<Duration>, AnyError> {
    let name = storage_key(&prefix(test), policy, key);
    match redis::from_redis_value::<i64>(ask(variable, redis::cmd("PTTL").arg(name)).await?)? {
        -2 => Ok(None),
        -1 => Err("a key without a time to live".into()),
        millis => Ok(Some(Duration::from_millis(u64::try_from(millis)?))),
    }
}
