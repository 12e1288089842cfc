//! [`Lab`]: what a trial works with: the backend, and names that nobody else uses.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use throttle_core::{
    Action, AnyStore, Decision, Guarded, Outcome, Policy, Rule, Store, StoreBackend, StoreUnavailableError,
    Timestamp,
};

use super::variant::{Variant, chain};

/// A moment on the boundary of every usual window: midnight UTC, 2023-11-15.
const START: u64 = 1_700_006_400_000_000;

pub(super) const MICRO: u64 = 1;
pub(super) const MILLI: u64 = 1_000;
pub(super) const SECOND: u64 = 1_000_000;

/// The moment `micros` after the start of all scenes.
pub(super) fn at(micros: u64) -> Timestamp {
    Timestamp::saturating_from_micros(START + micros)
}

/// Rules from text, separated by `;`.
pub(super) fn rules(text: &str) -> Result<Vec<Rule>, Failed> {
    let rules = text.split(';').map(str::parse::<Rule>);
    rules.collect::<Result<_, _>>().map_err(|error| format!("{text}: {error}").into())
}

pub(super) struct Lab<B> {
    variant: Arc<Variant<B>>,
    backend: Arc<B>,
    has_time: bool,
}

impl<B> Clone for Lab<B> {
    fn clone(&self) -> Self {
        Self {
            variant: Arc::clone(&self.variant),
            backend: Arc::clone(&self.backend),
            has_time: self.has_time,
        }
    }
}

impl<B: StoreBackend> Lab<B> {
    /// Whoever has the time lets it pass alone.
    pub(super) fn new(variant: Arc<Variant<B>>, backend: Arc<B>, has_time: bool) -> Self {
        Self { variant, backend, has_time }
    }

    /// The backend, as its author wrote it.
    pub(super) fn backend(&self) -> Arc<B> {
        Arc::clone(&self.backend)
    }

    /// The backend, as users call it.
    pub(super) fn store(&self) -> Guarded<Arc<B>> {
        Guarded::new(self.backend())
    }

    /// The backend behind the erased face.
    pub(super) fn any_store(&self) -> AnyStore {
        AnyStore::new(self.store())
    }

    /// A policy of its own with rules from text, separated by `;`.
    pub(super) fn policy(&self, text: &str) -> Result<Policy, Failed> {
        self.policy_of(rules(text)?)
    }

    pub(super) fn policy_of(&self, rules: impl IntoIterator<Item = Rule>) -> Result<Policy, Failed> {
        Ok(Policy::new(&crate::name::fresh(), rules)?)
    }

    pub(super) async fn outcome(&self, action: &Action<'_>) -> Result<Outcome, Failed> {
        self.store().decide(action).await.map_err(|error| told(&error))
    }

    pub(super) async fn decide(&self, action: &Action<'_>) -> Result<Decision, Failed> {
        Ok(Decision::of(action, &self.outcome(action).await?, 0))
    }

    /// Lets time pass on the backend's own clock.
    pub(super) async fn pass(&self, span: Duration) {
        match &self.variant.pass {
            Some(pass) if self.has_time => pass(self.backend(), span).await,
            Some(pass) => {
                let _time = self.variant.time.read().await;
                pass(self.backend(), span).await;
            }
            None => tokio::time::sleep(span).await,
        }
    }

    /// How long a state that is to be stored for `span`, margin included, may be stored.
    pub(super) fn at_most_stored(&self, span: Duration) -> Duration {
        span + (self.variant.slack)(span)
    }

    /// How many keys are stored under `policy`.
    pub(super) async fn count(&self, policy: &Policy) -> Result<u64, Failed> {
        let count = self.variant.count.as_ref().ok_or("the backend does not count")?;
        count(self.backend(), policy.name().clone()).await.map_err(|error| chain(&*error).into())
    }

    /// How long the state of `key` is still stored.
    pub(super) async fn time_to_live(&self, policy: &Policy, key: &str) -> Result<Option<Duration>, Failed> {
        let hook = self.variant.time_to_live.as_ref().ok_or("the backend does not tell times to live")?;
        let left = hook(self.backend(), policy.name().clone(), key.to_owned()).await;
        left.map_err(|error| chain(&*error).into())
    }

    /// Whether time passes only when it is let pass, or then too.
    pub(super) fn passes_time_by_hand(&self) -> bool {
        self.variant.pass.is_some()
    }

    /// What the names of all trials start with.
    pub(super) fn variant_name(&self) -> &str {
        &self.variant.name
    }

    /// The time to live of locks that trials let expire.
    pub(super) fn lock_ttl(&self) -> Duration {
        self.variant.lock_ttl
    }

    /// For how long after its time to live a lock may still be held.
    pub(super) fn lock_lag(&self) -> Duration {
        self.variant.lock_lag
    }

    pub(super) fn deadline(&self) -> Duration {
        self.variant.deadline
    }

    pub(super) fn cases(&self) -> u32 {
        self.variant.cases()
    }

    pub(super) fn explores(&self) -> bool {
        self.variant.explores
    }
}

/// An error with its cause, for the message of a trial.
pub(super) fn told(error: &StoreUnavailableError) -> Failed {
    chain(error).into()
}
