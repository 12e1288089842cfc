//! [`DenyCache`]: denials that cannot have changed are not asked for again.

mod memory;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::{HashSet, HashSetExt};
use throttle_core::{
    Action, Clock, Operand, Outcome, PolicyName, Results, StoreBackend, SystemClock, Take, TakeOutcome,
    Timestamp, is_stored_as_is, stored_key,
};

use self::memory::{Memory, Version};
use crate::denial::Denial;
use crate::hit::record_hit;
use crate::name::Name;

/// Remembers denials, and answers from them what can have no other answer. In front of a store that is asked over a
/// network; hot keys that are over their limit then cost it next to nothing.
///
/// A denial changes nothing and says when it ends. Until then a question about that key under the same rules is answered
/// here if the kernels say that the state which was seen denies it: the same question, a larger cost, more at once, a
/// peek. A smaller cost that the state would allow is asked. The answer is the store's, bit for bit, at the present time
/// (of a log: as long as no entry has left it): the state is the same, and the store's clock is known from when it was
/// asked and when it had answered. Nothing is denied here any more once the store's clock may have reached the end.
///
/// **Who changes a key.** What passes through here is seen: whatever was or may have been charged, refunded or reset
/// makes its key forgotten, and an older answer that is still under way is not remembered. What other processes charge
/// makes a denial right for longer, so it stays right, with numbers of a little while ago. What others refund or reset is
/// not seen: after [`with_max_stale`](Self::with_max_stale), one second unless set, the store is asked again.
///
/// **Errors and cancellation.** Those of the backend. What is answered here needs no waiting.
///
/// **Bounds.** At most 100,000 denials; above that those that were not used for the longest time go, which costs a
/// question each.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use throttle_core::{Policy, RateLimiter, Rule};
/// use throttle_memory::{DenyCache, MemoryBackend};
///
/// # let remote = MemoryBackend::default();
/// let limiter = RateLimiter::new(Policy::new("api", [Rule::gcra("2/h")?])?, DenyCache::new(remote));
/// assert!(limiter.check_n("alice", 2).await?.is_allowed());
/// let asked = limiter.check("alice").await?;
/// let remembered = limiter.check("alice").await?;
/// assert!(!asked.is_allowed() && !remembered.is_allowed());
/// assert!(remembered.retry_after() <= asked.retry_after(), "time goes on here, too");
/// assert_eq!(limiter.store().get_ref().hits(), 1);
/// # Ok(())
/// # }
/// ```
pub struct DenyCache<B> {
    backend: B,
    memory: Memory,
    clock: Arc<dyn Clock>,
    max_stale: Duration,
    hits: AtomicU64,
}

impl<B: StoreBackend> DenyCache<B> {
    /// How many denials are remembered, unless set.
    pub const DEFAULT_MAX_KEYS: u64 = 100_000;

    /// How long a denial is remembered at most, unless set.
    pub const DEFAULT_MAX_STALE: Duration = Duration::from_secs(1);

    /// In front of `backend`.
    #[must_use]
    pub fn new(backend: B) -> Self {
        Self {
            backend,
            memory: Memory::new(Self::DEFAULT_MAX_KEYS),
            clock: Arc::new(SystemClock),
            max_stale: Self::DEFAULT_MAX_STALE,
            hits: AtomicU64::new(0),
        }
    }

    /// How many denials are remembered; at least 1. One takes about 400 bytes. Forgets those there are.
    #[must_use]
    pub fn with_max_keys(self, keys: u64) -> Self {
        Self { memory: Memory::new(keys.max(1)), ..self }
    }

    /// How long a denial is remembered at most: for so long a refund or a reset that another process made may not be seen
    /// here. Zero remembers nothing.
    #[must_use]
    pub fn with_max_stale(self, max_stale: Duration) -> Self {
        Self { max_stale, ..self }
    }

    /// Counts the time since an answer on `clock`, which should be monotonic: what it steps back is asked again, what it
    /// leaps ahead only forgets sooner. It is never compared with the store's. Forgets what is remembered.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        self.memory.forget_all();
        Self { clock: Arc::new(clock), ..self }
    }

    /// How many questions were answered here.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// The backend itself. What is changed there is not seen here.
    #[must_use]
    pub const fn get_ref(&self) -> &B {
        &self.backend
    }

    /// The answer to `action`, if it is known.
    fn recall(&self, action: &Action<'_>) -> Option<Outcome> {
        if action.operand() == Operand::Refund {
            return None;
        }
        let denial = self.memory.get(Name::new(action.policy().name(), &stored_key(action.key())))?;
        let outcome = denial.answer(action, || self.clock.now())?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        record_hit(self.backend.name());
        Some(outcome)
    }

    /// Notes that `action` is going to be asked.
    fn ask<'c, 'a>(&'c self, action: &Action<'a>) -> Question<'c, 'a, B> {
        let key = stored_key(action.key());
        let name = Name::new(action.policy().name(), &key);
        if action.operand() == Operand::Refund {
            self.memory.forget(name);
        }
        let seen = self.memory.version(name);
        Question { cache: self, action: *action, seen, asked: self.clock.now(), is_open: true }
    }
}

/// One question under way. Dropped without an answer, it may have changed its key all the same.
struct Question<'c, 'a, B: StoreBackend> {
    cache: &'c DenyCache<B>,
    action: Action<'a>,
    /// The version of what was known when it was asked.
    seen: Version,
    asked: Timestamp,
    is_open: bool,
}

impl<B: StoreBackend> Question<'_, '_, B> {
    fn settle(mut self, answer: &Result<Outcome, B::BaseError>) {
        // Otherwise, what may have happened is left to `drop`.
        let Ok(outcome) = answer else { return };
        self.is_open = false;
        let key = stored_key(self.action.key());
        let name = Name::new(self.action.policy().name(), &key);
        let denial =
            Denial::of(&self.action, outcome, (self.asked, self.cache.clock.now()), self.cache.max_stale);
        let memory = &self.cache.memory;
        match (outcome.changes_state(&self.action), denial) {
            (true, denial) => memory.replace(name, self.seen, denial),
            (false, Some(denial)) => memory.remember(name, self.seen, denial),
            (false, None) => {}
        }
    }
}

impl<B: StoreBackend> Drop for Question<'_, '_, B> {
    fn drop(&mut self) {
        if self.is_open && self.action.operand() != Operand::Peek {
            let key = stored_key(self.action.key());
            self.cache.memory.forget(Name::new(self.action.policy().name(), &key));
        }
    }
}

/// A reset under way: what is known is forgotten before it, and after it, whether it was seen to end or not.
struct Reset<'c, 'n> {
    memory: &'c Memory,
    of: Option<Name<'n>>,
}

impl<'c, 'n> Reset<'c, 'n> {
    fn begin(memory: &'c Memory, of: Option<Name<'n>>) -> Self {
        let reset = Self { memory, of };
        reset.forget();
        reset
    }

    fn forget(&self) {
        match self.of {
            Some(name) => self.memory.forget(name),
            None => self.memory.forget_all(),
        }
    }
}

impl Drop for Reset<'_, '_> {
    fn drop(&mut self) {
        self.forget();
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: StoreBackend> StoreBackend for DenyCache<B> {
    type BaseError = B::BaseError;

    fn name(&self) -> &'static str {
        self.backend.name()
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Self::BaseError> {
        if let Some(outcome) = self.recall(action) {
            return Ok(outcome);
        }
        let question = self.ask(action);
        let answer = self.backend.decide(action).await;
        question.settle(&answer);
        answer
    }

    async fn decide_many(&self, actions: &[Action<'_>]) -> Results<Outcome, Self::BaseError> {
        let mut known = Vec::with_capacity(actions.len());
        let (mut asked, mut questions) = (Vec::new(), Vec::new());
        // What is asked may change its key, so what comes after it on that key is asked, too.
        let mut keys_asked = HashSet::new();
        for action in actions {
            let name = (action.policy().name(), action.key());
            let answer = if keys_asked.contains(&name) { None } else { self.recall(action) };
            if answer.is_none() {
                keys_asked.insert(name);
                questions.push(self.ask(action));
                asked.push(*action);
            }
            known.push(answer);
        }
        if asked.is_empty() {
            return known.into_iter().flatten().map(Ok).collect();
        }
        let answers = self.backend.decide_many(&asked).await;
        questions.into_iter().zip(&answers).for_each(|(question, answer)| question.settle(answer));
        let mut answers = answers.into_iter();
        // A backend that gives too few answers is not made to look as if it had not.
        known.into_iter().map_while(|known| known.map(Ok).or_else(|| answers.next())).collect()
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Self::BaseError> {
        let stored = stored_key(key);
        let _reset = Reset::begin(&self.memory, Some(Name::new(policy, &stored)));
        self.backend.reset(policy, key).await
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Self::BaseError> {
        let _reset = Reset::begin(&self.memory, None);
        self.backend.reset_policy(policy).await
    }

    async fn ping(&self) -> Result<(), Self::BaseError> {
        self.backend.ping().await
    }

    /// A denial that is remembered. The backend is not asked: what it would change has to be seen.
    #[inline]
    fn decide_now(&self, take: &Take<'_>) -> Option<TakeOutcome> {
        let (policy, key) = (take.action().policy().name(), take.action().key());
        if !is_stored_as_is(key) {
            return None;
        }
        let denial = self.memory.get(Name::new(policy, key))?;
        let outcome = denial.answer_take(take, || self.clock.now())?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        record_hit(self.backend.name());
        Some(outcome)
    }
}

impl<B: fmt::Debug> fmt::Debug for DenyCache<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCache")
            .field("backend", &self.backend)
            .field("denials", &self.memory.len())
            .field("max_stale", &self.max_stale)
            .field("hits", &self.hits)
            .finish_non_exhaustive()
    }
}
