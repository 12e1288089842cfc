//! A small backend that lets states expire, and can be told to get one thing wrong.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use throttle_core::kernel::{BucketState, PolicyState, StoredState, decide};
use throttle_core::{
    Action, Clock, Operand, Outcome, Policy, PolicyName, Results, StoreBackend, SystemClock, Timestamp,
};
use throttle_testkit::{Conformance, ManualClock};

/// What the backend gets wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Nothing.
    None,
    ChargesOtherRules,
    CountsDenials,
    CutsKeys,
    DropsFractions,
    ExpiresEarly,
    FirstConfigurationWins,
    ForgetsOnStepBack,
    HangsOnceAbandoned,
    IgnoresMaxWait,
    IgnoresTimes,
    JoinsNames,
    KeepsMilliseconds,
    NeverExpires,
    NotAtomic,
    PeekCharges,
    RefundsAboveFull,
    ResetsByPrefix,
    ResetsNothing,
    ReversesBatches,
    StandsStill,
    StoresProbes,
}

#[derive(Debug, Clone)]
pub(crate) struct Backend {
    mistake: Mistake,
    entries: Arc<Mutex<HashMap<(String, String), Entry>>>,
    busy: Arc<AtomicBool>,
    clock: ManualClock,
}

#[derive(Debug, Clone)]
struct Entry {
    state: PolicyState,
    until: Timestamp,
    written: Timestamp,
    policy: Policy,
}

impl Backend {
    pub(crate) fn new(mistake: Mistake) -> Self {
        let clock = ManualClock::new(SystemClock.now());
        Self { mistake, entries: Arc::default(), busy: Arc::default(), clock }
    }

    fn name_of(&self, policy: &PolicyName, key: &str) -> (String, String) {
        match self.mistake {
            Mistake::CutsKeys => (policy.to_string(), key.chars().take(64).collect()),
            Mistake::JoinsNames => (String::new(), format!("{policy}{key}")),
            _ => (policy.to_string(), key.to_owned()),
        }
    }

    fn is_live(&self, entry: &Entry) -> bool {
        entry.until > self.clock.now() || self.is(Mistake::NeverExpires)
    }

    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn state(&self, entry: Option<&Entry>, action: &Action<'_>, now: Timestamp) -> PolicyState {
        match entry {
            Some(entry) if self.is(Mistake::ForgetsOnStepBack) && now < entry.written => {
                PolicyState::fresh(action.policy())
            }
            Some(entry) => entry.state.clone(),
            None => PolicyState::fresh(action.policy()),
        }
    }

    fn decide_in(
        &self,
        entries: &mut HashMap<(String, String), Entry>,
        name: (String, String),
        entry: Option<Entry>,
        action: &Action<'_>,
    ) -> Outcome {
        let now = self.time_of(action);
        let entry = entry.filter(|entry| self.is_live(entry));
        let policy = match &entry {
            Some(entry) if self.is(Mistake::FirstConfigurationWins) => entry.policy.clone(),
            _ => action.policy().clone(),
        };
        let action = self.bend(action, &policy);
        let mut state = self.state(entry.as_ref(), &action, now);
        let outcome = self.decide_on(&action, now, &mut state);
        let writes = outcome.changes_state(&action)
            || matches!(
                self.mistake,
                Mistake::CountsDenials | Mistake::ChargesOtherRules | Mistake::StoresProbes
            );
        if writes {
            let until = self.clock.now().saturating_add(self.stored_for(&state, &action, now));
            entries.insert(name, Entry { state, until, written: now, policy });
        }
        outcome
    }

    fn time_of(&self, action: &Action<'_>) -> Timestamp {
        match action.now() {
            _ if self.is(Mistake::StandsStill) => Timestamp::EPOCH,
            Some(now) if self.is(Mistake::KeepsMilliseconds) => {
                Timestamp::saturating_from_micros(now.as_micros() / 1_000 * 1_000)
            }
            Some(now) => now,
            None => self.clock.now(),
        }
    }

    fn stored_for(&self, state: &PolicyState, action: &Action<'_>, now: Timestamp) -> Duration {
        let span = state.time_to_live(action, now);
        if self.is(Mistake::ExpiresEarly) { span / 2 } else { span }
    }

    fn decide_on(&self, action: &Action<'_>, now: Timestamp, state: &mut PolicyState) -> Outcome {
        let before = state.clone();
        let outcome = decide(action, now, state);
        match self.mistake {
            Mistake::CountsDenials if outcome.granted() == 0 => {
                decide(&Action::consume(action.policy(), "").with_times(1 << 20), now, state);
            }
            Mistake::DropsFractions => *state = without_fractions(state),
            Mistake::ChargesOtherRules if outcome.granted() == 0 && action.operand() == Operand::Consume => {
                *state = charge_alone(action, now, &before);
            }
            Mistake::RefundsAboveFull if action.operand() == Operand::Refund => {
                *state = PolicyState::fresh(action.policy());
            }
            _ => {}
        }
        outcome
    }
}

fn without_fractions(state: &PolicyState) -> PolicyState {
    let drop = |state: &StoredState| match state {
        StoredState::Bucket(bucket) => StoredState::Bucket(BucketState { fraction: 0, ..*bucket }),
        other => other.clone(),
    };
    PolicyState::new(state.states().iter().map(drop).collect())
}

/// Each rule by itself, whatever the others say.
fn charge_alone(action: &Action<'_>, now: Timestamp, before: &PolicyState) -> PolicyState {
    let charged = action.policy().rules().iter().zip(before.states()).map(|(rule, state)| {
        let policy = Policy::new("alone", [*rule]).expect("a name and a rule");
        let mut state = PolicyState::new(vec![state.clone()]);
        decide(&Action::consume(&policy, "").with_cost(action.cost()), now, &mut state);
        state.states().first().cloned().unwrap_or_default()
    });
    PolicyState::new(charged.collect())
}

impl StoreBackend for Backend {
    type BaseError = Infallible;

    fn name(&self) -> &'static str {
        "small"
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Infallible> {
        if self.is(Mistake::HangsOnceAbandoned) {
            while self.busy.swap(true, Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            tokio::task::yield_now().await;
        }
        let name = self.name_of(action.policy().name(), action.key());
        let outcome = if self.is(Mistake::NotAtomic) {
            let entry = self.entries.lock().get(&name).cloned();
            // As long as a trip to a store and back.
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.decide_in(&mut self.entries.lock(), name, entry, action)
        } else {
            let mut entries = self.entries.lock();
            let entry = entries.get(&name).cloned();
            self.decide_in(&mut entries, name, entry, action)
        };
        self.busy.store(false, Ordering::SeqCst);
        Ok(outcome)
    }

    async fn decide_many(&self, actions: &[Action<'_>]) -> Results<Outcome, Infallible> {
        let mut outcomes = Vec::with_capacity(actions.len());
        if self.is(Mistake::ReversesBatches) {
            for action in actions.iter().rev() {
                outcomes.insert(0, self.decide(action).await);
            }
            return outcomes;
        }
        for action in actions {
            outcomes.push(self.decide(action).await);
        }
        outcomes
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Infallible> {
        if self.is(Mistake::ResetsNothing) {
            return Ok(true);
        }
        Ok(self.entries.lock().remove(&self.name_of(policy, key)).is_some())
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Infallible> {
        let mut entries = self.entries.lock();
        let before = entries.len();
        entries.retain(|(name, _), _| match self.mistake {
            Mistake::ResetsByPrefix => !name.starts_with(policy.as_str()),
            _ => name != policy.as_str(),
        });
        Ok((before - entries.len()) as u64)
    }

    async fn ping(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl Backend {
    /// The action as a wrong backend understands it.
    fn bend<'a>(&self, action: &Action<'_>, policy: &'a Policy) -> Action<'a> {
        let bent = match action.operand() {
            Operand::Peek if !self.is(Mistake::PeekCharges) => Action::peek(policy, ""),
            Operand::Refund => Action::refund(policy, ""),
            Operand::Consume | Operand::Peek => Action::consume(policy, ""),
        };
        let wait = if self.is(Mistake::IgnoresMaxWait) { 0 } else { action.max_wait_micros() };
        let times = if self.is(Mistake::IgnoresTimes) { 1 } else { action.times() };
        bent.with_cost(action.cost())
            .with_times(times)
            .with_max_wait(Duration::from_micros(wait))
            .at(action.now())
    }

    fn count(&self, policy: &PolicyName) -> u64 {
        let entries = self.entries.lock();
        let counts = |name: &str, entry: &Entry| name == policy.as_str() && self.is_live(entry);
        entries.iter().filter(|((name, _), entry)| counts(name, entry)).count() as u64
    }

    fn time_to_live(&self, policy: &PolicyName, key: &str) -> Option<Duration> {
        let entries = self.entries.lock();
        let entry = entries.get(&self.name_of(policy, key)).filter(|entry| self.is_live(entry))?;
        (!self.is(Mistake::NeverExpires)).then(|| entry.until.saturating_since(self.clock.now()))
    }
}

/// The whole suite, with everything the backend can show.
pub(crate) fn suite(name: &str, mistake: Mistake) -> Conformance<Backend> {
    Conformance::of(name, move || async move { Ok(Backend::new(mistake)) })
        .counts(|backend, policy| async move { Ok(backend.count(&policy)) })
        .times_to_live(|backend, policy, key| async move { Ok(backend.time_to_live(&policy, &key)) })
        .lets_time_pass(|backend, span| async move { backend.clock.advance(span) })
}
