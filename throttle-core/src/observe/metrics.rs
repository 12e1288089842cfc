//! The names of the metrics, for dashboards and for other crates that record one of them.

#[cfg(feature = "metrics")]
mod observer;

#[cfg(feature = "metrics")]
pub use self::observer::MetricsObserver;

/// Counter: calls of limiters that ended in a decision, or in an error. Labels `policy`, `backend`, `call`, `result`
/// (`allowed`, `denied`, `never`, `would_deny` in shadow mode, `failed`) and `source` (`store`, `fallback`, `policy`,
/// `allow_list`, `block_list`; `none` for an error).
pub const REQUESTS: &str = "throttle_requests_total";

/// Histogram, in seconds: how long one call waited for the store, whether that ended in a decision or in an error. Labels
/// `policy`, `backend`.
pub const STORE_SECONDS: &str = "throttle_store_seconds";

/// Counter: calls in which the store did not answer, those that a breaker kept from it included. Labels `policy`,
/// `backend`, `operation`, `kind`, and `asked`: `no` if the breaker answered.
pub const UNAVAILABLE: &str = "throttle_unavailable_total";

/// Gauge: the state of a breaker: 0 closed, 1 half-open, 2 open. Labels `breaker`, `backend`.
pub const BREAKER_STATE: &str = "throttle_breaker_state";

/// Counter: decisions that a cache in front of a store answered. Label `backend`.
pub const CACHE_HITS: &str = "throttle_cache_hits_total";

/// Histogram: how many callers one batch of [`GroupCommit`](crate::GroupCommit) was for. Label `backend`.
pub const BATCH_CALLERS: &str = "throttle_batch_callers";

/// Histogram: how many actions that batch was, those alike being one. Label `backend`.
pub const BATCH_ACTIONS: &str = "throttle_batch_actions";
