//! A backend whose errors say nothing.

use std::fmt;

use throttle_core::{Action, BaseErrorSet, Effect, ErrorKind, Outcome, PolicyName, StoreBackend};
use throttle_testkit::{Conformance, ReferenceBackend};

#[derive(Debug, Clone)]
pub(crate) struct Mute;

impl fmt::Display for Mute {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl std::error::Error for Mute {}

impl BaseErrorSet for Mute {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Connection
    }

    fn effect(&self) -> Effect {
        Effect::NotApplied
    }

    fn samples() -> Vec<Self> {
        vec![Self]
    }
}

#[derive(Debug)]
pub(crate) struct Backend(ReferenceBackend);

impl StoreBackend for Backend {
    type BaseError = Mute;

    fn name(&self) -> &'static str {
        "mute"
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Mute> {
        self.0.decide(action).await.map_err(|_| Mute)
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Mute> {
        self.0.reset(policy, key).await.map_err(|_| Mute)
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Mute> {
        self.0.reset_policy(policy).await.map_err(|_| Mute)
    }

    async fn ping(&self) -> Result<(), Mute> {
        Ok(())
    }
}

pub(crate) fn suite() -> Conformance<Backend> {
    Conformance::of("mute", || async { Ok(Backend(ReferenceBackend::default())) })
}
