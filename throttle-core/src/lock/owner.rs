//! [`Owner`]: who holds a lock.

use std::fmt;

/// Who holds a lock: a number of 128 bits that nobody else has. Each acquisition has an owner of its own, so what is
/// said late by an earlier one can neither prolong nor free a later one.
///
/// `Debug` does not show it: who knows it can free the lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(u128);

impl Owner {
    /// A new one, from the operating system's randomness.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// The one with this number: for stores, and for tests that repeat.
    #[must_use]
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same_and_none_is_shown() {
        let (a, b) = (Owner::random(), Owner::random());
        assert_ne!(a, b);
        assert_eq!(Owner::from_u128(a.as_u128()), a);
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }
}
