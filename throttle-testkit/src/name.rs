//! Names nobody else uses, so that a suite runs beside other suites and other data.

/// A fresh name for a policy or a key.
pub(crate) fn fresh() -> String {
    format!("testkit-{:016x}", rand::random::<u64>())
}
