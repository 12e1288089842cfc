//! What a backend under control was asked.

use throttle_core::{Action, Operation, PolicyName};

use super::Faults;

/// One call that reached a [`FaultyBackend`](crate::FaultyBackend).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What was asked.
    pub operation: Operation,
    /// The policies and keys that were named, in order; [`Operation::ResetPolicy`] names no key.
    pub subjects: Vec<Subject>,
    /// The lock that was named.
    pub lock: Option<String>,
    /// Whether the backend was asked.
    pub forwarded: bool,
    /// What was answered.
    pub answer: Answer,
}

/// What one action, or one reset, was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Name of the policy.
    pub policy: String,
    /// The key, if one was named.
    pub key: Option<String>,
    /// How many identical requests at once; 1 for all but consuming.
    pub times: u32,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Not yet.
    Pending,
    /// With what was asked for.
    Ok,
    /// With an error, of one action at least.
    Failed,
    /// The caller went away.
    Dropped,
}

/// A call as it arrives.
pub(super) struct Call<'a> {
    pub(super) operation: Operation,
    pub(super) actions: usize,
    asked: Asked<'a>,
}

enum Asked<'a> {
    Nothing,
    Actions(&'a [Action<'a>]),
    Reset(&'a PolicyName, Option<&'a str>),
    Lock(&'a str),
}

impl<'a> Call<'a> {
    pub(super) fn of(operation: Operation) -> Self {
        Self { operation, actions: 1, asked: Asked::Nothing }
    }

    pub(super) fn of_actions(operation: Operation, actions: &'a [Action<'_>]) -> Self {
        Self { operation, actions: actions.len(), asked: Asked::Actions(actions) }
    }

    pub(super) fn of_key(operation: Operation, policy: &'a PolicyName, key: &'a str) -> Self {
        Self { operation, actions: 1, asked: Asked::Reset(policy, Some(key)) }
    }

    pub(super) fn of_policy(operation: Operation, policy: &'a PolicyName) -> Self {
        Self { operation, actions: 1, asked: Asked::Reset(policy, None) }
    }

    pub(super) fn of_lock(operation: Operation, name: &'a str) -> Self {
        Self { operation, actions: 1, asked: Asked::Lock(name) }
    }

    fn lock(&self) -> Option<String> {
        match self.asked {
            Asked::Lock(name) => Some(name.to_owned()),
            _ => None,
        }
    }

    fn subjects(&self) -> Vec<Subject> {
        match &self.asked {
            Asked::Nothing | Asked::Lock(_) => Vec::new(),
            Asked::Actions(actions) => actions.iter().map(Subject::of_action).collect(),
            Asked::Reset(policy, key) => {
                let (policy, key) = (policy.to_string(), key.map(str::to_owned));
                vec![Subject { policy, key, times: 1 }]
            }
        }
    }
}

impl Subject {
    fn of_action(action: &Action<'_>) -> Self {
        let policy = action.policy().name().to_string();
        Self { policy, key: Some(action.key().to_owned()), times: action.times() }
    }
}

/// The entry of a call that is under way. Dropped open, it says that the caller went away.
pub(super) struct Record<E> {
    faults: Faults<E>,
    position: usize,
    answer: Answer,
}

impl<E> Record<E> {
    pub(super) fn open(faults: &Faults<E>, call: &Call<'_>) -> Self {
        let position = faults.add(Seen {
            operation: call.operation,
            subjects: call.subjects(),
            lock: call.lock(),
            forwarded: false,
            answer: Answer::Pending,
        });
        Self { faults: faults.clone(), position, answer: Answer::Dropped }
    }

    pub(super) fn forward(&self) {
        self.faults.update(self.position, |seen| seen.forwarded = true);
    }

    pub(super) fn close(&mut self, answer: Answer) {
        self.answer = answer;
    }
}

impl<E> Drop for Record<E> {
    fn drop(&mut self) {
        self.faults.update(self.position, |seen| seen.answer = self.answer);
    }
}
