//! Who took what was asked for: it goes back there, and nowhere else.

/// Who took units: a limiter's store, that of its fallback, that of the fallback's fallback, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taker {
    fallbacks: usize,
}

impl Taker {
    /// The limiter's own store.
    pub(crate) const STORE: Self = Self { fallbacks: 0 };

    /// What a fallback calls so, as the limiter in front of it does.
    pub(crate) const fn behind_fallback(self) -> Self {
        Self { fallbacks: self.fallbacks.saturating_add(1) }
    }

    /// What the fallback calls it; none for the limiter's own store.
    pub(crate) fn seen_by_fallback(self) -> Option<Self> {
        self.fallbacks.checked_sub(1).map(|fallbacks| Self { fallbacks })
    }
}
