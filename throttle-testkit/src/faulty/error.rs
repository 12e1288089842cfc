//! The family of a backend under control: its own errors, and those that are injected.

use throttle_core::{BaseErrorSet, Effect, ErrorKind};

/// A failure of a [`FaultyBackend`](crate::FaultyBackend): an injected one, or one of the backend itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InjectedError<E> {
    /// A fault was injected.
    #[error("a fault was injected, effect: {effect:?}")]
    Injected {
        /// What kind of failure it poses as.
        kind: ErrorKind,
        /// Whether it says that the operation may have taken effect.
        effect: Effect,
    },
    /// The backend failed by itself.
    #[error(transparent)]
    Base(E),
}

impl<E: BaseErrorSet> BaseErrorSet for InjectedError<E> {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Injected { kind, .. } => *kind,
            Self::Base(error) => error.kind(),
        }
    }

    fn effect(&self) -> Effect {
        match self {
            Self::Injected { effect, .. } => *effect,
            Self::Base(error) => error.effect(),
        }
    }

    /// Every [`ErrorKind`] with both effects, and all samples of the backend.
    fn samples() -> Vec<Self> {
        let both = |kind: &ErrorKind| {
            let kind = *kind;
            [Effect::NotApplied, Effect::Unknown].map(|effect| Self::Injected { kind, effect })
        };
        let injected = ErrorKind::ALL.iter().flat_map(both);
        injected.chain(E::samples().into_iter().map(Self::Base)).collect()
    }
}
