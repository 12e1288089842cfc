//! All actions of one call on one key: decided together on one state, and stored with one exchange.

use std::collections::HashMap;
use std::time::Duration;

use super::Versioned;
use crate::kernel::{PolicyState, decide};
use crate::{Action, DataError, Outcome, Policy, Timestamp, storage_key};

/// The actions of one call on one key.
pub(super) struct Job<'a, V> {
    /// Under what name the key is stored.
    pub(super) name: String,
    policy: &'a Policy,
    /// With their places in the call.
    actions: Vec<(usize, Action<'a>)>,
    known: Option<Known<V>>,
    outcomes: Vec<Outcome>,
}

/// What is known of a key: its version, none if it is absent, and the state that goes with it.
struct Known<V> {
    version: Option<V>,
    state: PolicyState,
    /// Whether it was read by this call. What is remembered from earlier ones may be out of date; only an exchange
    /// that succeeds shows that it was not.
    is_read: bool,
}

/// What has to happen next with a job.
pub(super) enum Next {
    /// The value has to be read.
    Read,
    /// These bytes have to be stored, for this long.
    Write(Vec<u8>, Duration),
    /// Nothing: the state is the same as before.
    Answer,
}

impl<'a, V> Job<'a, V> {
    /// One job per key, in the order in which the keys come up.
    pub(super) fn of_each_key(actions: &[Action<'a>], prefix: &str) -> Vec<Self> {
        let mut jobs: Vec<Self> = Vec::with_capacity(actions.len());
        let mut places = HashMap::new();
        for (place, action) in actions.iter().enumerate() {
            let key = (action.policy().name().as_str(), action.key());
            let job = *places.entry(key).or_insert(jobs.len());
            match jobs.get_mut(job) {
                Some(job) => job.actions.push((place, *action)),
                None => jobs.push(Self::new(place, *action, prefix)),
            }
        }
        jobs
    }

    fn new(place: usize, action: Action<'a>, prefix: &str) -> Self {
        Self {
            name: storage_key(prefix, action.policy().name(), action.key()),
            policy: action.policy(),
            actions: vec![(place, action)],
            known: None,
            outcomes: Vec::new(),
        }
    }

    /// What an earlier call left of the key.
    pub(super) fn remember(&mut self, version: V, state: PolicyState) {
        self.known = Some(Known { version: Some(version), state, is_read: false });
    }

    /// What the store says the key is.
    pub(super) fn read(&mut self, current: Option<Versioned<V>>) -> Result<(), DataError> {
        let (version, state) = match current {
            Some(Versioned { version, value }) => (Some(version), PolicyState::from_bytes(&value)?),
            None => (None, PolicyState::fresh(self.policy)),
        };
        self.known = Some(Known { version, state, is_read: true });
        Ok(())
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// The version that the key is expected to have.
    pub(super) fn expected(&self) -> Option<&V> {
        self.known.as_ref().and_then(|known| known.version.as_ref())
    }

    /// Decides all actions, at `now` unless they bring their time.
    pub(super) fn decide(&mut self, now: Timestamp) -> Next {
        let Some(known) = &mut self.known else { return Next::Read };
        self.outcomes.clear();
        let mut ttl = None;
        for (_, action) in &self.actions {
            let now = action.now().unwrap_or(now);
            let outcome = decide(action, now, &mut known.state);
            if outcome.changes_state(action) {
                ttl = Some(known.state.time_to_live(action, now));
            }
            self.outcomes.push(outcome);
        }
        match ttl {
            Some(ttl) => Next::Write(known.state.to_bytes(), ttl),
            None if known.is_read => Next::Answer,
            None => Next::Read,
        }
    }

    /// The outcome of each action by its place, and what to remember: a version that was `stored`, or the one that was
    /// read.
    pub(super) fn finish(self, stored: Option<V>) -> Finished<V> {
        let places = self.actions.into_iter().map(|(place, _)| place);
        let memory = self.known.and_then(|known| Some((stored.or(known.version)?, known.state)));
        Finished { outcomes: places.zip(self.outcomes).collect(), name: self.name, memory }
    }

    /// The places of its actions.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.actions.iter().map(|(place, _)| *place)
    }
}

/// What a job that is done leaves.
pub(super) struct Finished<V> {
    pub(super) outcomes: Vec<(usize, Outcome)>,
    pub(super) name: String,
    pub(super) memory: Option<(V, PolicyState)>,
}
