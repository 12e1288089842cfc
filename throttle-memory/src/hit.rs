//! The metric of caches.

/// Counts a decision that was made without asking the store, if the feature `metrics` is on.
#[inline]
pub(crate) fn record_hit(backend: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(throttle_core::observe::metrics::CACHE_HITS, "backend" => backend).increment(1);
    #[cfg(not(feature = "metrics"))]
    let _ = backend;
}
