//! Panics of code that is not ours: observers, backends, and what they drop.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `work` returns; none if it panics. The panic ends here, also if dropping what was thrown panics again.
pub(crate) fn contain<T>(work: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(value) => Some(value),
        Err(thrown) => {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(thrown))).map_err(std::mem::forget);
            None
        }
    }
}
