//! One shard: a bounded table of states that sweeps itself.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use compact_str::CompactString;
use hashbrown::HashTable;
use throttle_core::kernel::{PolicyState, decide};
use throttle_core::{Action, Outcome, PolicyName, Take, TakeOutcome, Timestamp};

/// How many calls go by between two sweeps of a shard, and how many places one sweep looks at, in runs that the
/// processor reads ahead. A new key counts as many calls: it looks at four places, so that what has expired goes faster
/// than new keys come.
const SWEEP_EVERY: u32 = 256;
const SWEEP_PLACES: usize = 64;
const CALLS_OF_NEW_KEY: u32 = 16;

/// How many states are compared when one has to go. In a shard of no more than this many, the choice is exact.
const EVICTION_SAMPLE: usize = 16;

/// A table with fewer states than a eighth of its places gives back memory.
const SPARSE: usize = 8;

/// The least number of places: below it there is nothing to give back.
const MIN_PLACES: usize = 64;

/// What is kept of one key under one policy: one cache line, of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    key: CompactString,
    policy: PolicyName,
    state: PolicyState,
}

impl Entry {
    #[inline(always)]
    fn is_of(&self, policy: &PolicyName, key: &str) -> bool {
        same(self.key.as_bytes(), key.as_bytes()) && self.policy == *policy
    }
}

/// Equality of texts; of short ones, in the caller's code: a call costs more than the comparison.
#[inline]
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len()
        && match a.len() {
            8..=16 => same_ends::<8>(a, b),
            17..=32 => same_ends::<16>(a, b),
            _ => a == b,
        }
}

/// Whether the first and the last `N` bytes are equal.
#[inline]
fn same_ends<const N: usize>(a: &[u8], b: &[u8]) -> bool {
    a.first_chunk::<N>() == b.first_chunk::<N>() && a.last_chunk::<N>() == b.last_chunk::<N>()
}

/// Places a state in the table of all of them: the same for all tables of a store.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyHasher(foldhash::fast::RandomState);

impl KeyHasher {
    #[inline]
    pub(crate) fn hash(&self, policy: &PolicyName, key: &str) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key.as_bytes());
        hasher.write_u64(policy.fingerprint());
        hasher.finish()
    }
}

/// What all tables of a store have in common: how many states they have together, and may have, and how to place them.
#[derive(Debug)]
pub(crate) struct Population {
    hasher: KeyHasher,
    count: AtomicUsize,
    max: usize,
    /// Whether states may be of a time that callers brought. They cannot be told from the others, and that time may step
    /// back: from then on nothing expires by the store's own.
    of_foreign_time: AtomicBool,
}

impl Population {
    pub(crate) const fn at_most(max: usize, hasher: KeyHasher) -> Self {
        Self { hasher, count: AtomicUsize::new(0), max, of_foreign_time: AtomicBool::new(false) }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) const fn max(&self) -> usize {
        self.max
    }

    /// Looked at before it is written, so that threads do not take the line from each other.
    #[inline]
    fn note_time_of(&self, action: &Action<'_>) {
        if action.now().is_some() && !self.of_foreign_time.load(Ordering::Relaxed) {
            self.of_foreign_time.store(true, Ordering::Relaxed);
        }
    }

    /// One more; whether there was room for it.
    fn grow(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed) < self.max
    }

    fn shrink(&self, by: usize) {
        self.count.fetch_sub(by, Ordering::Relaxed);
    }
}

/// A part of all states. Whoever has it may change it; the lock around it is the backend's, and together they fit one
/// cache line: two threads that meet pass on no more than that.
#[derive(Debug)]
pub(crate) struct Table {
    entries: HashTable<Entry>,
    population: Arc<Population>,
    /// The place where the next sweep begins.
    cursor: usize,
    calls: u32,
}

impl Table {
    pub(crate) const fn new(population: Arc<Population>) -> Self {
        Self { entries: HashTable::new(), population, cursor: 0, calls: 0 }
    }

    /// Decides `action` at `now` on the state of `key`, the name under which its key is stored and which has `hash`.
    /// It may end the life of other states.
    pub(crate) fn decide(&mut self, action: &Action<'_>, key: &str, hash: u64, now: Timestamp) -> Outcome {
        self.population.note_time_of(action);
        self.count(1, now);
        let policy = action.policy().name();
        if let Some(entry) = self.entries.find_mut(hash, |entry| entry.is_of(policy, key)) {
            return decide(action, now, &mut entry.state);
        }
        self.decide_first(action, key, hash, now)
    }

    /// The same, on a state that is stored already and is of a bucket. `None` says that nothing happened.
    #[inline(always)]
    pub(crate) fn decide_now(
        &mut self,
        take: &Take<'_>,
        key: &str,
        hash: u64,
        moment: impl FnOnce() -> Timestamp,
    ) -> Option<TakeOutcome> {
        let policy = take.action().policy().name();
        let entry = self.entries.find_mut(hash, |entry| entry.is_of(policy, key))?;
        let now = moment();
        let outcome = take.decide(now, &mut entry.state)?;
        self.population.note_time_of(take.action());
        self.count(1, now);
        Some(outcome)
    }

    /// Counts the calls between two sweeps.
    #[inline(always)]
    fn count(&mut self, calls: u32, now: Timestamp) {
        self.calls += calls;
        if self.calls >= SWEEP_EVERY {
            self.calls = 0;
            self.sweep(now);
        }
    }

    /// Whether the last call swept. It is to sweep another table as well then: some are called seldom.
    #[inline(always)]
    pub(crate) const fn has_swept(&self) -> bool {
        self.calls == 0
    }

    /// Forgets one key; whether anything of it still counted.
    pub(crate) fn remove(&mut self, policy: &PolicyName, key: &str, hash: u64, now: Timestamp) -> bool {
        let Ok(entry) = self.entries.find_entry(hash, |entry| entry.is_of(policy, key)) else { return false };
        let (entry, _) = entry.remove();
        self.population.shrink(1);
        self.is_live(&entry, now)
    }

    /// Forgets every key of one policy; of how many anything still counted.
    pub(crate) fn remove_policy(&mut self, policy: &PolicyName, now: Timestamp) -> usize {
        let (before, live) = (self.entries.len(), self.count_policy(policy, now));
        self.entries.retain(|entry| entry.policy != *policy);
        self.population.shrink(before - self.entries.len());
        live
    }

    /// How many keys of one policy there are of which anything still counts.
    pub(crate) fn count_policy(&self, policy: &PolicyName, now: Timestamp) -> usize {
        self.entries.iter().filter(|entry| entry.policy == *policy && self.is_live(entry, now)).count()
    }

    fn is_live(&self, entry: &Entry, now: Timestamp) -> bool {
        entry.state.expires_at() > now || self.population.of_foreign_time.load(Ordering::Relaxed)
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.entries.allocation_size()
    }

    /// Decides on a key of which nothing is stored.
    #[cold]
    fn decide_first(&mut self, action: &Action<'_>, key: &str, hash: u64, now: Timestamp) -> Outcome {
        let mut state = PolicyState::fresh(action.policy());
        let outcome = decide(action, now, &mut state);
        if outcome.changes_state(action) && !state.is_fresh() {
            self.count(CALLS_OF_NEW_KEY, now);
            self.insert(Entry { key: key.into(), policy: action.policy().name().clone(), state }, hash);
        }
        outcome
    }

    /// Adds a state. If all tables together are full, one of this table's goes first; a table that has none to give, of
    /// a store with thousands, would be a wonder, and lets the store have one too many.
    fn insert(&mut self, entry: Entry, hash: u64) {
        if !self.population.grow() {
            self.evict(hash);
        }
        self.entries
            .insert_unique(hash, entry, |entry| self.population.hasher.hash(&entry.policy, &entry.key));
    }

    /// Removes the state nearest to full: its loss admits least. Of a large table it is the nearest of a sample, taken
    /// from where `seed` says.
    fn evict(&mut self, seed: u64) {
        let places = self.entries.num_buckets();
        let start = usize::try_from(seed >> 8).unwrap_or(0) % places.max(1);
        let nearest = (0..places)
            .map(|step| (start + step) % places)
            .filter_map(|place| Some((self.entries.get_bucket(place)?.state.expires_at(), place)))
            .take(EVICTION_SAMPLE)
            .min();
        if let Some((_, place)) = nearest {
            self.remove_at(place);
        }
    }

    /// Removes expired states from the next few places, and gives back memory if few are left.
    #[cold]
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        if self.population.of_foreign_time.load(Ordering::Relaxed) {
            return;
        }
        let places = self.entries.num_buckets();
        let end = (self.cursor + SWEEP_PLACES).min(places);
        for place in self.cursor..end {
            if self.entries.get_bucket(place).is_some_and(|entry| entry.state.expires_at() <= now) {
                self.remove_at(place);
            }
        }
        self.cursor = if end < places { end } else { 0 };
        if places > MIN_PLACES && self.entries.len() < places / SPARSE {
            let room = 2 * self.entries.len();
            self.entries.shrink_to(room, |entry| self.population.hasher.hash(&entry.policy, &entry.key));
            self.cursor = 0;
        }
    }

    fn remove_at(&mut self, place: usize) {
        if let Ok(entry) = self.entries.get_bucket_entry(place) {
            entry.remove();
            self.population.shrink(1);
        }
    }
}
