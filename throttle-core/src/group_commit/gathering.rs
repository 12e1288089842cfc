//! What has come together for one batch, and which of it is whose.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::{Action, MAX_TIMES, Operand, Policy, Timestamp};

/// The requests of one batch that is still open, in order of arrival; those alike are one.
#[derive(Default)]
pub(super) struct Gathering {
    requests: SmallVec<[Request; 1]>,
    /// The hash of each request's policy name and key, apart so that they are searched fast.
    hashes: SmallVec<[u64; 4]>,
}

/// An action that owns what it is about, and the callers it is for.
pub(super) struct Request {
    policy: Policy,
    key: Box<str>,
    cost: u32,
    max_wait: Duration,
    operand: Operand,
    now: Option<Timestamp>,
    /// In order of arrival, so of their tickets.
    members: SmallVec<[Member; 1]>,
}

/// A caller, and how many times it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    ticket: u64,
    times: u32,
}

/// Where a caller's answer is: in the outcome of this request, after so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) ticket: u64,
    pub(super) request: usize,
    pub(super) skip: u32,
}

impl Gathering {
    /// Takes in an action, unless that would make more than `most` requests. `hash` is that of its policy name and key.
    ///
    /// It is merged into the last request on its key if that is the same but for `times`, and so never overtakes
    /// another request on its key.
    pub(super) fn add(&mut self, ticket: u64, action: &Action<'_>, hash: u64, most: usize) -> bool {
        let mut same_hash = self.hashes.iter().zip(&mut self.requests).rev();
        let same_key = same_hash.find(|(seen, request)| **seen == hash && request.is_on_key_of(action));
        if let Some((_, last)) = same_key
            && last.merge(ticket, action)
        {
            return true;
        }
        if self.requests.len() >= most {
            return false;
        }
        self.requests.push(Request::new(ticket, action));
        self.hashes.push(hash);
        true
    }

    /// Takes out the caller with this ticket.
    pub(super) fn remove(&mut self, ticket: u64) {
        let member =
            |request: &Request| request.members.binary_search_by_key(&ticket, |member| member.ticket);
        let found = self.requests.iter().position(|request| member(request).is_ok());
        let Some(at) = found else { return };
        if let Some(request) = self.requests.get_mut(at) {
            request.members.retain(|member| member.ticket != ticket);
            if request.members.is_empty() {
                self.requests.remove(at);
                self.hashes.remove(at);
            }
        }
    }

    pub(super) fn callers(&self) -> usize {
        self.requests.iter().map(|request| request.members.len()).sum()
    }

    /// The requests, and where each caller's answer will be, by ticket.
    pub(super) fn close(self) -> (SmallVec<[Request; 1]>, SmallVec<[Place; 1]>) {
        let mut places = SmallVec::<[Place; 1]>::with_capacity(self.callers());
        for (request, asked) in self.requests.iter().enumerate() {
            let mut skip = 0;
            for member in &asked.members {
                places.push(Place { ticket: member.ticket, request, skip });
                skip += member.times;
            }
        }
        places.sort_unstable_by_key(|place| place.ticket);
        (self.requests, places)
    }
}

impl Request {
    fn new(ticket: u64, action: &Action<'_>) -> Self {
        Self {
            policy: action.policy().clone(),
            key: action.key().into(),
            cost: action.cost(),
            max_wait: Duration::from_micros(action.max_wait_micros()),
            operand: action.operand(),
            now: action.now(),
            members: smallvec![Member { ticket, times: action.times() }],
        }
    }

    pub(super) fn action(&self) -> Action<'_> {
        let about = match self.operand {
            Operand::Consume => Action::consume,
            Operand::Peek => Action::peek,
            Operand::Refund => Action::refund,
        };
        let once = about(&self.policy, &self.key).with_cost(self.cost).with_max_wait(self.max_wait);
        once.at(self.now).with_times(self.times())
    }

    fn times(&self) -> u32 {
        self.members.iter().map(|member| member.times).sum()
    }

    fn is_on_key_of(&self, action: &Action<'_>) -> bool {
        *self.key == *action.key() && self.policy.name() == action.policy().name()
    }

    fn merge(&mut self, ticket: u64, action: &Action<'_>) -> bool {
        let same = self.operand == action.operand()
            && self.operand != Operand::Refund
            && self.cost == action.cost()
            && self.max_wait == Duration::from_micros(action.max_wait_micros())
            && self.now == action.now()
            && self.policy == *action.policy();
        if !same || self.times() > MAX_TIMES - action.times() {
            return false;
        }
        self.members.push(Member { ticket, times: action.times() });
        true
    }
}
