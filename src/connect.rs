//! [`connect`]: a store chosen at run time, by its URL.

use throttle_core::{AnyLockStore, AnyStore, ConnectError, SetupError};

/// Schemes, and the feature that each needs.
const SCHEMES: [(&str, &str); 12] = [
    ("memory", "memory"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("unix", "redis"),
    ("redis+sentinel", "redis"),
    ("rediss+sentinel", "redis"),
    ("redis+cluster", "redis"),
    ("rediss+cluster", "redis"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("etcd", "etcd"),
    ("etcds", "etcd"),
];

/// Connects to the store that `url` names.
///
/// | URL | store | feature |
/// |---|---|---|
/// | `memory://` | the embedded one; `?max_keys=N` bounds it | `memory` |
/// | `redis://`, `unix://`, `redis+sentinel://`, `redis+cluster://` | Redis, behind a [`GroupCommit`](crate::GroupCommit) | `redis` |
/// | `rediss://`, `rediss+sentinel://`, `rediss+cluster://` | the same, through TLS | `redis` |
/// | `etcd://[user:password@]host[:2379][,host…]` | an etcd cluster | `etcd` |
/// | `etcds://…` | the same, through TLS | `etcd` |
/// | `postgres://`, `postgresql://` | PostgreSQL, behind a [`GroupCommit`](crate::GroupCommit) | `postgres` |
///
/// ```
/// # pollster::block_on(async {
/// use throttle::{Policy, RateLimiter, Rule};
///
/// let store = throttle::connect("memory://?max_keys=100000").await?;
/// let limiter = RateLimiter::on(Policy::new("api", [Rule::gcra("10/s")?])?, store);
/// assert!(limiter.check("alice").await?.is_allowed());
/// assert!(throttle::connect("memcached://localhost").await.is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// All that the URL does not say is as it is by default, the prefix of all keys (`throttle`), deadlines and trusted
/// certificates too. Who needs it otherwise connects with the configuration of the backend, and forgets which one it is:
/// `AnyStore::from(GroupCommit::new(RedisBackend::connect(config).await?))`.
///
/// A store has to be there at first: a [failure policy](crate::FailurePolicy) speaks only after that.
///
/// # Errors
///
/// [`ConnectError::Setup`] for a URL that names no store, or a store that this program was built without;
/// [`ConnectError::Unavailable`] if the store cannot be reached.
pub async fn connect(url: &str) -> Result<AnyStore, ConnectError> {
    connect_with_locks(url).await.map(AnyStore::from)
}

/// The same store with its locks: for a [`Lock`](crate::lock::Lock), and for a [`RateLimiter`](crate::RateLimiter) too.
/// Every store that [`connect`] knows has them.
///
/// # Errors
///
/// Those of [`connect`].
pub async fn connect_with_locks(url: &str) -> Result<AnyLockStore, ConnectError> {
    let (scheme, _) = url.split_once("://").unwrap_or((url, ""));
    match scheme {
        #[cfg(feature = "memory")]
        "memory" => Ok(memory(url)?),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "unix" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
        | "rediss+cluster" => redis(url).await,
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => etcd(url).await,
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => postgres(url).await,
        _ => Err(unknown(scheme).into()),
    }
}

#[cfg(feature = "etcd")]
async fn etcd(url: &str) -> Result<AnyLockStore, ConnectError> {
    use throttle_etcd::{EtcdBackend, EtcdConfig};

    Ok(AnyLockStore::from(EtcdBackend::connect(EtcdConfig::new(url)?).await?))
}

#[cfg(feature = "memory")]
fn memory(url: &str) -> Result<AnyLockStore, SetupError> {
    use throttle_memory::{MemoryBackend, MemoryConfig};

    let settings = url.strip_prefix("memory://").unwrap_or_default();
    let config = match settings.strip_prefix("?max_keys=") {
        Some(number) => {
            let max_keys = number.parse().map_err(|_| invalid("max_keys is a whole number"))?;
            MemoryConfig::default().max_keys(max_keys)?
        }
        None if settings.is_empty() => MemoryConfig::default(),
        None => return Err(invalid("memory:// takes ?max_keys=N and nothing else")),
    };
    Ok(AnyLockStore::from(MemoryBackend::new(config)))
}

#[cfg(feature = "redis")]
async fn redis(url: &str) -> Result<AnyLockStore, ConnectError> {
    use throttle_core::GroupCommit;
    use throttle_redis::{RedisBackend, RedisConfig};

    let backend = RedisBackend::connect(RedisConfig::new(url)?).await?;
    Ok(AnyLockStore::from(GroupCommit::new(backend)))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<AnyLockStore, ConnectError> {
    use throttle_core::GroupCommit;
    use throttle_postgres::{PostgresBackend, PostgresConfig};

    let backend = PostgresBackend::connect(PostgresConfig::new(url)?).await?;
    Ok(AnyLockStore::from(GroupCommit::new(backend)))
}

fn unknown(scheme: &str) -> SetupError {
    match SCHEMES.into_iter().find(|(known, _)| *known == scheme) {
        Some((scheme, feature)) => SetupError::MissingFeature { scheme, feature },
        None => invalid(&format!(
            "expected one of {}",
            SCHEMES.map(|(scheme, _)| format!("{scheme}://")).join(", ")
        )),
    }
}

fn invalid(reason: &str) -> SetupError {
    SetupError::Url { reason: reason.to_owned() }
}
