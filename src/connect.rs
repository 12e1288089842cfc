//! [`connect`]: a store chosen at run time, by its URL.

use throttle_core::{AnyStore, ConnectError, SetupError};

/// Schemes, and the feature that each needs.
const SCHEMES: [(&str, &str); 8] = [
    ("memory", "memory"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("redis+sentinel", "redis"),
    ("redis+cluster", "redis"),
    ("unix", "redis"),
    ("postgres", "postgres"),
    ("etcd", "etcd"),
];

/// Connects to the store that `url` names.
///
/// | URL | store | feature |
/// |---|---|---|
/// | `memory://` | the embedded one; `?max_keys=N` bounds it | `memory` |
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
/// # Errors
///
/// [`ConnectError::Setup`] for a URL that names no store, or a store that this program was built without;
/// [`ConnectError::Unavailable`] if the store cannot be reached.
pub async fn connect(url: &str) -> Result<AnyStore, ConnectError> {
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    match scheme {
        #[cfg(feature = "memory")]
        "memory" => Ok(memory(rest)?),
        _ => Err(unknown(scheme, rest).into()),
    }
}

#[cfg(feature = "memory")]
fn memory(rest: &str) -> Result<AnyStore, SetupError> {
    use throttle_core::Guarded;
    use throttle_memory::{MemoryBackend, MemoryConfig};

    let config = match rest.strip_prefix("?max_keys=") {
        Some(number) => {
            let max_keys = number.parse().map_err(|_| url("max_keys is a whole number"))?;
            MemoryConfig::default().max_keys(max_keys)?
        }
        None if rest.is_empty() => MemoryConfig::default(),
        None => return Err(url("memory:// takes ?max_keys=N and nothing else")),
    };
    Ok(AnyStore::new(Guarded::new(MemoryBackend::new(config))))
}

fn unknown(scheme: &str, _rest: &str) -> SetupError {
    match SCHEMES.into_iter().find(|(known, _)| *known == scheme) {
        Some((scheme, feature)) => SetupError::MissingFeature { scheme, feature },
        None => {
            url(&format!("expected one of {}", SCHEMES.map(|(scheme, _)| format!("{scheme}://")).join(", ")))
        }
    }
}

fn url(reason: &str) -> SetupError {
    SetupError::Url { reason: reason.to_owned() }
}
