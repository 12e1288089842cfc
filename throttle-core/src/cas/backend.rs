//! The loop around a [`CasStore`]: read what is not remembered, decide, exchange, and once more for keys in conflict.

use std::fmt;
use std::time::Duration;

use super::job::{Job, Next};
use super::memory::Memory;
use super::patience::Patience;
use super::{CasError, CasOutcome, CasStore, Exchange};
use crate::{
    Action, BaseErrorSet, Outcome, PolicyName, Results, SetupError, StoreBackend, Take, TakeOutcome,
    storage_key, storage_prefix, validate_prefix,
};

const PREFIX: &str = "throttle";
const DEADLINE: Duration = Duration::from_secs(1);
const REMEMBERED_KEYS: usize = 10_000;

/// A backend that stands on a [`CasStore`]. All deciding is done here, by the [kernels](crate::kernel).
///
/// **Cost.** One round trip for a key whose last state is remembered, two for another, one more for each conflict; in
/// a batch, for the keys in conflict only. Denials, probes and peeks are read, never written, and never answered from
/// memory alone. Several callers on one key of one process are in conflict with each other: put a
/// [`GroupCommit`](crate::GroupCommit) in front.
///
/// **Conflicts.** The first retry comes at once, every other later one after a random wait of up to 16 ms, until a
/// [deadline](Self::with_deadline) has passed: then [`CasError::Contended`], and nothing was charged. An exchange whose
/// reply was lost is never sent again. Waits are on the tokio timer;
/// without a runtime, the caller's executor gets its turn instead.
///
/// **Panics** when it has to wait on a tokio runtime that was built without a timer.
///
/// **Time** is that of [`CasStore::now`]. Locks expire by the store's time to live alone.
///
/// **Cancellation.** A dropped call leaves each of its keys charged or not, and nothing else.
pub struct CasBackend<S: CasStore> {
    pub(super) store: S,
    pub(super) prefix: String,
    memory: Memory<S::Version>,
    pub(super) patience: Patience,
}

type Answers<S> = Vec<Option<Result<Outcome, CasError<<S as CasStore>::BaseError>>>>;

/// A job, the bytes to store for it, and for how long.
type Write<'a, S> = (Job<'a, <S as CasStore>::Version>, Vec<u8>, Duration);

impl<S: CasStore> CasBackend<S> {
    /// On `store`, under names that start with `throttle:`, with a deadline of one second, remembering 10,000 keys.
    #[must_use]
    pub fn new(store: S) -> Self {
        let patience = Patience::new(DEADLINE, rand::random());
        Self { store, prefix: PREFIX.to_owned(), memory: Memory::of(REMEMBERED_KEYS), patience }
    }

    /// What the names of its keys start with. Two backends of one prefix on one store share state.
    ///
    /// # Errors
    ///
    /// Those of [`validate_prefix`].
    pub fn with_prefix(self, prefix: &str) -> Result<Self, SetupError> {
        validate_prefix(prefix)?;
        Ok(Self { prefix: prefix.to_owned(), ..self })
    }

    /// For how long a call goes on after conflicts. The last try may begin just before it has passed, and takes as long
    /// as the store does.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.patience.deadline = deadline;
        self
    }

    /// Of how many keys the last state is remembered, those used last; 0 for none. Each takes a few hundred bytes, and
    /// up to 4 KiB for a sliding window log.
    #[must_use]
    pub fn remember(self, keys: usize) -> Self {
        Self { memory: Memory::of(keys), ..self }
    }

    /// Makes the random waits repeatable.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { patience: Patience::new(self.patience.deadline, seed), ..self }
    }

    /// The store itself.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Decides all actions; an answer for each.
    async fn settle(&self, actions: &[Action<'_>]) -> Answers<S> {
        let mut answers: Answers<S> = actions.iter().map(|_| None).collect();
        let mut jobs = Job::of_each_key(actions, &self.prefix);
        for job in &mut jobs {
            if let Some((version, state)) = self.memory.take(&job.name) {
                job.remember(version, state);
            }
        }
        let mut tries = self.patience.start();
        loop {
            let (mut writes, unread) = self.decide_all(jobs, &mut answers);
            let read = self.read(unread, &mut answers).await;
            let (more, unread) = self.decide_all(read, &mut answers);
            writes.extend(more);
            jobs = self.write(writes, &mut answers).await;
            jobs.extend(unread);
            if jobs.is_empty() {
                return answers;
            }
            if !tries.again().await {
                jobs.iter().for_each(|job| fail(job, &CasError::Contended, &mut answers));
                return answers;
            }
        }
    }

    /// Answers the jobs that need no more than that; those to write and those to read are left.
    fn decide_all<'a>(
        &self,
        jobs: Vec<Job<'a, S::Version>>,
        answers: &mut Answers<S>,
    ) -> (Vec<Write<'a, S>>, Vec<Job<'a, S::Version>>) {
        let (mut writes, mut unread) = (Vec::with_capacity(jobs.len()), Vec::new());
        let now = self.store.now();
        for mut job in jobs {
            match job.decide(now) {
                Next::Read => unread.push(job),
                Next::Write(bytes, ttl) => writes.push((job, bytes, ttl)),
                Next::Answer => self.finish(job, None, answers),
            }
        }
        (writes, unread)
    }

    /// Reads; the jobs that got an answer are left.
    async fn read<'a>(
        &self,
        jobs: Vec<Job<'a, S::Version>>,
        answers: &mut Answers<S>,
    ) -> Vec<Job<'a, S::Version>> {
        let values = match jobs.as_slice() {
            [] => return jobs,
            [job] => vec![self.store.get(&job.name).await],
            jobs => {
                let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
                self.store.get_many(&names).await
            }
        };
        let (mut values, mut left) = (values.into_iter(), Vec::with_capacity(jobs.len()));
        for mut job in jobs {
            let read = match values.next() {
                Some(Ok(current)) => job.read(current).map_err(CasError::Corrupt),
                Some(Err(error)) => Err(CasError::Store(error)),
                None => Err(CasError::Unanswered),
            };
            match read {
                Ok(()) => left.push(job),
                Err(error) => fail(&job, &error, answers),
            }
        }
        left
    }

    /// Exchanges; the jobs in conflict are left.
    async fn write<'a>(
        &self,
        writes: Vec<Write<'a, S>>,
        answers: &mut Answers<S>,
    ) -> Vec<Job<'a, S::Version>> {
        let exchanges: Vec<_> = writes.iter().map(exchange::<S>).collect();
        let outcomes = match exchanges.as_slice() {
            [] => return Vec::new(),
            [exchange] => vec![self.store.compare_exchange(exchange).await],
            exchanges => self.store.compare_exchange_many(exchanges).await,
        };
        drop(exchanges);
        let (mut outcomes, mut left) = (outcomes.into_iter(), Vec::new());
        for (mut job, ..) in writes {
            let seen = match outcomes.next() {
                Some(Ok(CasOutcome::Stored(version))) => {
                    self.finish(job, Some(version), answers);
                    continue;
                }
                Some(Ok(CasOutcome::Conflict(current))) => job.read(current).map_err(CasError::Corrupt),
                Some(Ok(CasOutcome::UnseenConflict)) => {
                    job.forget();
                    Ok(())
                }
                Some(Err(error)) => Err(CasError::Store(error)),
                None => Err(CasError::Unanswered),
            };
            match seen {
                Ok(()) => left.push(job),
                Err(error) => fail(&job, &error, answers),
            }
        }
        left
    }

    fn finish(&self, job: Job<'_, S::Version>, stored: Option<S::Version>, answers: &mut Answers<S>) {
        let done = job.finish(stored);
        if let Some((version, state)) = done.memory {
            self.memory.put(done.name, version, state);
        }
        for (place, outcome) in done.outcomes {
            if let Some(answer) = answers.get_mut(place) {
                *answer = Some(Ok(outcome));
            }
        }
    }
}

fn exchange<'w, S: CasStore>((job, value, ttl): &'w Write<'_, S>) -> Exchange<'w, S::Version> {
    Exchange { key: &job.name, expected: job.expected(), value, ttl: *ttl }
}

fn fail<V, E: BaseErrorSet>(
    job: &Job<'_, V>,
    error: &CasError<E>,
    answers: &mut [Option<Result<Outcome, CasError<E>>>],
) {
    for place in job.places() {
        if let Some(answer) = answers.get_mut(place) {
            *answer = Some(Err(error.clone()));
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CasStore> StoreBackend for CasBackend<S> {
    type BaseError = CasError<S::BaseError>;

    fn name(&self) -> &'static str {
        self.store.name()
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Self::BaseError> {
        let answer = self.settle(std::slice::from_ref(action)).await.pop().flatten();
        answer.unwrap_or(Err(CasError::Unanswered))
    }

    async fn decide_many(&self, actions: &[Action<'_>]) -> Results<Outcome, Self::BaseError> {
        let answers = self.settle(actions).await;
        answers.into_iter().map(|answer| answer.unwrap_or(Err(CasError::Unanswered))).collect()
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Self::BaseError> {
        let name = storage_key(&self.prefix, policy, key);
        drop(self.memory.take(&name));
        self.store.remove(&name).await.map_err(CasError::Store)
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Self::BaseError> {
        self.store.remove_prefix(&storage_prefix(&self.prefix, policy)).await.map_err(CasError::Store)
    }

    async fn ping(&self) -> Result<(), Self::BaseError> {
        self.store.ping().await.map_err(CasError::Store)
    }

    /// Never: what is asked here goes through the store.
    fn decide_now(&self, _take: &Take<'_>) -> Option<TakeOutcome> {
        None
    }
}

/// Without the keys and states that are remembered.
impl<S: CasStore> fmt::Debug for CasBackend<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CasBackend")
            .field("store", &self.store)
            .field("prefix", &self.prefix)
            .field("memory", &self.memory)
            .field("deadline", &self.patience.deadline)
            .finish()
    }
}
