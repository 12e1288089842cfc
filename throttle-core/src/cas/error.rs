//! The family of a backend that stands on compare-and-swap: the store's own, and what the loop around it adds.

use crate::{BaseErrorSet, DataError, Effect, ErrorKind};

/// Every way in which a [`CasBackend`](crate::CasBackend) can fail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CasError<E: BaseErrorSet> {
    /// The store failed. An exchange whose reply was lost is not sent again.
    #[error(transparent)]
    Store(E),
    /// What is stored under the key is no state of ours. It is left as it is.
    #[error(transparent)]
    Corrupt(DataError),
    /// Others changed the key each time, until the deadline. Nothing was charged.
    #[error("other writers changed the key each time, until the deadline")]
    Contended,
    /// The store answered fewer keys than it was asked about: a defect in it.
    #[error("the store answered fewer keys than it was asked about")]
    Unanswered,
    /// A lock was taken, and was free again, or somebody else's, before its number was written.
    #[error("the lock was lost while it was being taken")]
    Lost,
    /// A lock was taken, and then something else went wrong: it is held until it is released or expires.
    #[error("a lock was taken, and the rest of it failed")]
    Halfway(#[source] Box<Self>),
}

impl<E: BaseErrorSet> BaseErrorSet for CasError<E> {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Corrupt(_) => ErrorKind::Corrupt,
            Self::Contended => ErrorKind::Overloaded,
            Self::Lost => ErrorKind::Timeout,
            Self::Unanswered => ErrorKind::Bug,
            Self::Halfway(error) => error.kind(),
        }
    }

    fn effect(&self) -> Effect {
        match self {
            Self::Store(error) => error.effect(),
            Self::Corrupt(_) | Self::Contended => Effect::NotApplied,
            Self::Unanswered | Self::Lost | Self::Halfway(_) => Effect::Unknown,
        }
    }

    fn samples() -> Vec<Self> {
        let own = [
            Self::Corrupt(DataError::Corrupt { reason: "the version is not 1" }),
            Self::Contended,
            Self::Unanswered,
            Self::Lost,
            Self::Halfway(Box::new(Self::Contended)),
        ];
        E::samples().into_iter().map(Self::Store).chain(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::error::Error;

    use super::*;

    #[test]
    fn each_member_says_what_it_is() {
        let seen: Vec<_> =
            CasError::<Infallible>::samples().iter().map(|error| (error.kind(), error.effect())).collect();
        let expected = [
            (ErrorKind::Corrupt, Effect::NotApplied),
            (ErrorKind::Overloaded, Effect::NotApplied),
            (ErrorKind::Bug, Effect::Unknown),
            (ErrorKind::Timeout, Effect::Unknown),
            (ErrorKind::Overloaded, Effect::Unknown),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn the_store_speaks_for_itself() {
        let inner = CasError::<Infallible>::Contended;
        let outer = CasError::Store(inner.clone());
        assert_eq!(outer.to_string(), inner.to_string());
        assert_eq!((outer.kind(), outer.effect()), (inner.kind(), inner.effect()));
        assert!(outer.source().is_none(), "the message is not repeated as a cause");
        assert_eq!(CasError::<CasError<Infallible>>::samples().len(), 10);
    }
}
