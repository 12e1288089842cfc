//! Backends from compare-and-swap: a store that can replace one value on condition has the whole product.

mod backend;
mod error;
mod job;
mod lock;
mod memory;
mod patience;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub use self::backend::CasBackend;
pub use self::error::CasError;

use crate::{BaseErrorSet, Clock, Results, Timestamp, WallClock};

/// A store of bytes that can replace a value if nobody else has in the meantime. [`CasBackend`] makes a
/// [`StoreBackend`](crate::StoreBackend) of it, with every algorithm.
///
/// Its obligations, by number:
///
/// 1. **One winner.** Of several exchanges that expect the same version of a key, or expect it absent, at most one is
///    stored. A read that follows an exchange sees it.
/// 2. **Versions.** No key ever has the same version twice: not after another value, and not after it was removed or
///    expired either.
/// 3. **Expiry.** A value is gone as soon as its time to live has passed, not before, and soon after; each exchange
///    sets a new one.
/// 4. **Errors.** An exchange that may have been stored fails with [`Effect::Unknown`](crate::Effect::Unknown); it is
///    not sent again, neither here nor by a driver that retries by itself.
/// 5. **Deadlines, cancellation, no blocking**, as for a [`StoreBackend`](crate::StoreBackend).
///
/// ```
/// use std::collections::HashMap;
/// use std::convert::Infallible;
/// use std::sync::Mutex;
///
/// use throttle_core::{
///     CasBackend, CasOutcome, CasStore, Exchange, Policy, RateLimiter, Rule, Versioned,
/// };
///
/// /// Forgets nothing: a real store would honour the time to live.
/// #[derive(Debug, Default)]
/// struct Shelf(Mutex<(u64, HashMap<String, Versioned<u64>>)>);
///
/// impl CasStore for Shelf {
///     type BaseError = Infallible;
///     type Version = u64;
///
///     fn name(&self) -> &'static str {
///         "shelf"
///     }
///
///     async fn get(&self, key: &str) -> Result<Option<Versioned<u64>>, Infallible> {
///         Ok(self.0.lock().unwrap().1.get(key).cloned())
///     }
///
///     async fn compare_exchange(&self, new: &Exchange<'_, u64>) -> Result<CasOutcome<u64>, Infallible> {
///         let (last, values) = &mut *self.0.lock().unwrap();
///         let current = values.get(new.key);
///         if current.map(|value| &value.version) != new.expected {
///             return Ok(CasOutcome::Conflict(current.cloned()));
///         }
///         *last += 1;
///         values.insert(new.key.to_owned(), Versioned { version: *last, value: new.value.to_owned() });
///         Ok(CasOutcome::Stored(*last))
///     }
///
///     async fn remove(&self, key: &str) -> Result<bool, Infallible> {
///         Ok(self.0.lock().unwrap().1.remove(key).is_some())
///     }
///
///     async fn remove_prefix(&self, prefix: &str) -> Result<u64, Infallible> {
///         let values = &mut self.0.lock().unwrap().1;
///         let before = values.len();
///         values.retain(|key, _| !key.starts_with(prefix));
///         Ok((before - values.len()) as u64)
///     }
/// }
///
/// # pollster::block_on(async {
/// let policy = Policy::new("api", [Rule::gcra("2/h")?])?;
/// let limiter = RateLimiter::new(policy, CasBackend::new(Shelf::default()));
/// assert!(limiter.check("alice").await?.is_allowed());
/// assert!(limiter.check("alice").await?.is_allowed());
/// assert!(!limiter.check("alice").await?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait CasStore: Debug + Send + Sync + 'static {
    /// Every way in which this store can fail.
    type BaseError: BaseErrorSet;

    /// What tells one value of a key from every other: a number, a revision, an entity tag.
    type Version: Clone + Debug + Send + Sync + 'static;

    /// The name of this kind of store in errors and metrics, such as `etcd`.
    fn name(&self) -> &'static str;

    /// The time at which actions are decided that bring none: the clock of the store, if it can be read without asking
    /// it, else the client's [`WallClock`].
    fn now(&self) -> Timestamp {
        WallClock.now()
    }

    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// A member of the store's family.
    fn get(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Option<Versioned<Self::Version>>, Self::BaseError>> + Send;

    /// The values of several keys, in order; no key occurs twice. One by one unless the store knows better.
    ///
    /// # Errors
    ///
    /// A member of the store's family.
    fn get_many(
        &self,
        keys: &[&str],
    ) -> impl Future<Output = Results<Option<Versioned<Self::Version>>, Self::BaseError>> + Send {
        async move {
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(self.get(key).await);
            }
            values
        }
    }

    /// Stores a value, if the key still has the version that is expected.
    ///
    /// # Errors
    ///
    /// A member of the store's family.
    fn compare_exchange(
        &self,
        exchange: &Exchange<'_, Self::Version>,
    ) -> impl Future<Output = Result<CasOutcome<Self::Version>, Self::BaseError>> + Send;

    /// Several exchanges, each by itself: one in conflict does not keep the others from being stored. No key occurs
    /// twice. One by one unless the store knows better.
    ///
    /// # Errors
    ///
    /// A member of the store's family.
    fn compare_exchange_many(
        &self,
        exchanges: &[Exchange<'_, Self::Version>],
    ) -> impl Future<Output = Results<CasOutcome<Self::Version>, Self::BaseError>> + Send {
        async move {
            let mut outcomes = Vec::with_capacity(exchanges.len());
            for exchange in exchanges {
                outcomes.push(self.compare_exchange(exchange).await);
            }
            outcomes
        }
    }

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    ///
    /// A member of the store's family.
    fn remove(&self, key: &str) -> impl Future<Output = Result<bool, Self::BaseError>> + Send;

    /// Removes every key that starts with `prefix`, in bounded steps; how many they were.
    ///
    /// # Errors
    ///
    /// A member of the store's family.
    fn remove_prefix(&self, prefix: &str) -> impl Future<Output = Result<u64, Self::BaseError>> + Send;

    /// Whether the store answers: a read of a key that nobody writes, unless the store knows better.
    ///
    /// # Errors
    ///
    /// A member of the store's family.
    fn ping(&self) -> impl Future<Output = Result<(), Self::BaseError>> + Send {
        async move { self.get("throttle:ping").await.map(drop) }
    }
}

/// A value, and the version that it is of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<V> {
    /// What tells it from every other value of the key.
    pub version: V,
    /// The value.
    pub value: Vec<u8>,
}

/// A value to be stored on condition.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a, V> {
    /// Where.
    pub key: &'a str,
    /// Only if the key has this version; none: only if the key is absent.
    pub expected: Option<&'a V>,
    /// The value.
    pub value: &'a [u8],
    /// For how long from now; never zero.
    pub ttl: Duration,
}

/// The answer to an [`Exchange`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CasOutcome<V> {
    /// The value is stored, and has this version.
    Stored(V),
    /// The key has another version than expected: this value, or none. Nothing was stored.
    Conflict(Option<Versioned<V>>),
    /// The key has another version than expected, and the store does not tell what. Nothing was stored; the value is
    /// read next, which costs a round trip.
    UnseenConflict,
}

#[deny(clippy::missing_trait_methods)]
impl<S: CasStore> CasStore for Arc<S> {
    type BaseError = S::BaseError;
    type Version = S::Version;

    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn now(&self) -> Timestamp {
        (**self).now()
    }

    async fn get(&self, key: &str) -> Result<Option<Versioned<S::Version>>, S::BaseError> {
        (**self).get(key).await
    }

    async fn get_many(&self, keys: &[&str]) -> Results<Option<Versioned<S::Version>>, S::BaseError> {
        (**self).get_many(keys).await
    }

    async fn compare_exchange(
        &self,
        exchange: &Exchange<'_, S::Version>,
    ) -> Result<CasOutcome<S::Version>, S::BaseError> {
        (**self).compare_exchange(exchange).await
    }

    async fn compare_exchange_many(
        &self,
        exchanges: &[Exchange<'_, S::Version>],
    ) -> Results<CasOutcome<S::Version>, S::BaseError> {
        (**self).compare_exchange_many(exchanges).await
    }

    async fn remove(&self, key: &str) -> Result<bool, S::BaseError> {
        (**self).remove(key).await
    }

    async fn remove_prefix(&self, prefix: &str) -> Result<u64, S::BaseError> {
        (**self).remove_prefix(prefix).await
    }

    async fn ping(&self) -> Result<(), S::BaseError> {
        (**self).ping().await
    }
}
