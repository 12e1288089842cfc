//! Assertions that return what went wrong, so that a trial says it in one place.

use std::fmt::Debug;

use libtest_mimic::Failed;

/// How a trial ends.
pub(super) type Checked = Result<(), Failed>;

/// `got` must be `expected`.
pub(super) fn equal<T: Debug + PartialEq>(what: &str, got: &T, expected: &T) -> Checked {
    ensure(got == expected, || format!("{what}\n  expected {expected:?}\n  got      {got:?}"))
}

/// `condition` must hold.
pub(super) fn ensure(condition: bool, message: impl FnOnce() -> String) -> Checked {
    if condition { Ok(()) } else { Err(message().into()) }
}
