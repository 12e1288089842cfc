//! What a limiter does, for those who watch.

pub mod metrics;
