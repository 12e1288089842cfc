//! [`MemoryBackend`]: the shards, their locks and the clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use throttle_core::{
    Action, Outcome, PolicyName, StoreBackend, Take, TakeOutcome, Timestamp, is_stored_as_is, stored_key,
};

use crate::MemoryConfig;
use crate::clock::StoreClock;
use crate::error::MemoryError;
use crate::lock::Locks;
use crate::table::{KeyHasher, Population, Table};

/// Shards of a large table: enough that two threads seldom meet.
const MAX_SHARDS: usize = 128;

/// A shard smaller than this is not worth having.
const MIN_SHARD_KEYS: usize = 1_024;

/// The embedded store. Cheap to clone; clones share everything.
///
/// Decides at its own monotonic clock unless an action brings its time; a call never waits, and a future that was never
/// polled did nothing. From the first action on that brings its time, states are dropped by the bound alone, not by expiry:
/// that time is the caller's, and may step back.
#[derive(Clone)]
pub struct MemoryBackend {
    inner: Arc<Inner>,
}

struct Inner {
    shards: Box<[Shard]>,
    hasher: KeyHasher,
    population: Arc<Population>,
    clock: StoreClock,
    locks: Locks,
    /// The shard that the next sweep on the side is of.
    next_swept: AtomicUsize,
}

/// A table on cache lines of its own, so that neighbors do not slow each other down.
#[repr(align(64))]
struct Shard(Mutex<Table>);

const _: () = assert!(size_of::<Shard>() == 64, "two threads that meet in a shard pass on one cache line");

impl MemoryBackend {
    /// An empty store.
    #[must_use]
    pub fn new(config: MemoryConfig) -> Self {
        let hasher = KeyHasher::default();
        let population = Arc::new(Population::at_most(config.max_keys, hasher.clone()));
        let shard = |_| Shard(Mutex::new(Table::new(Arc::clone(&population))));
        let shards = (0..shard_count(config.max_keys)).map(shard).collect();
        let locks = Locks::new(config.clock.as_ref());
        Self {
            inner: Arc::new(Inner {
                shards,
                hasher,
                population,
                clock: StoreClock::new(config.clock),
                locks,
                next_swept: AtomicUsize::new(0),
            }),
        }
    }

    /// How many states are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.population.count()
    }

    /// How many keys of `policy` there are of which anything still counts. Looks at every state.
    #[must_use]
    pub fn keys_of(&self, policy: &PolicyName) -> usize {
        let now = self.inner.clock.now();
        self.inner.shards.iter().map(|shard| shard.0.lock().count_policy(policy, now)).sum()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most states that are kept.
    #[must_use]
    pub fn max_keys(&self) -> usize {
        self.inner.population.max()
    }

    /// Memory that the tables hold, in bytes; logs, policies of several rules and names above 24 bytes come on top.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.inner.shards.iter().map(|shard| shard.0.lock().allocated_bytes()).sum()
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.inner.locks
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new(MemoryConfig::default())
    }
}

impl StoreBackend for MemoryBackend {
    type BaseError = MemoryError;

    fn name(&self) -> &'static str {
        "memory"
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, MemoryError> {
        let key = stored_key(action.key());
        let hash = self.inner.hasher.hash(action.policy().name(), &key);
        let mut table = self.inner.shard(hash).lock();
        let now = self.inner.moment(action);
        let outcome = table.decide(action, &key, hash, now);
        let swept = table.has_swept();
        drop(table);
        if swept {
            self.inner.sweep_another(now);
        }
        Ok(outcome)
    }

    #[inline(always)]
    fn decide_now(&self, take: &Take<'_>) -> Option<TakeOutcome> {
        let (action, key) = (take.action(), take.action().key());
        if !is_stored_as_is(key) {
            return None;
        }
        let hash = self.inner.hasher.hash(action.policy().name(), key);
        let mut table = self.inner.shard(hash).lock();
        let outcome = table.decide_now(take, key, hash, || self.inner.moment(action));
        let swept = table.has_swept();
        drop(table);
        if swept {
            self.inner.sweep_another(self.inner.moment(action));
        }
        outcome
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, MemoryError> {
        let key = stored_key(key);
        let hash = self.inner.hasher.hash(policy, &key);
        Ok(self.inner.shard(hash).lock().remove(policy, &key, hash, self.inner.clock.now()))
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, MemoryError> {
        let now = self.inner.clock.now();
        let removed = self.inner.shards.iter().map(|shard| shard.0.lock().remove_policy(policy, now));
        Ok(removed.map(|count| u64::try_from(count).unwrap_or(u64::MAX)).sum())
    }

    async fn ping(&self) -> Result<(), MemoryError> {
        Ok(())
    }
}

impl Inner {
    /// Chosen by bits of the hash that the table in the shard does not look at first.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "masked by the power-of-two length")]
    fn shard(&self, hash: u64) -> &Mutex<Table> {
        &self.shards[(hash >> 40) as usize & (self.shards.len() - 1)].0
    }

    /// Every table gets its turn, also those that no call comes to; one that is busy sweeps for itself.
    #[cold]
    fn sweep_another(&self, now: Timestamp) {
        let next = self.next_swept.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        if let Some(mut table) = self.shards.get(next).and_then(|shard| shard.0.try_lock()) {
            table.sweep(now);
        }
    }

    /// When `action` is decided. Asked under the lock, so that no decision is older than the one before; and the
    /// processor looks for the key while the counter is read.
    #[inline]
    fn moment(&self, action: &Action<'_>) -> Timestamp {
        match action.now() {
            Some(now) => now,
            None => self.clock.now(),
        }
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("keys", &self.inner.population)
            .field("shards", &self.inner.shards.len())
            .field("clock", &self.inner.clock)
            .finish_non_exhaustive()
    }
}

/// A power of two.
fn shard_count(max_keys: usize) -> usize {
    let worth_having = (max_keys / MIN_SHARD_KEYS).max(1);
    (1 << worth_having.ilog2()).min(MAX_SHARDS)
}
