//! [`Slots`]: the slots of all keys, bounded.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use throttle_core::{Policy, Timestamp};

use super::portion::Portion;
use super::slot::Slot;
use crate::name::{Name, OwnedName};

const SHARDS: usize = 64;

/// The slots, in shards.
pub(super) struct Slots<E> {
    shards: Box<[Mutex<Shard<E>>]>,
    hasher: RandomState,
    next_id: AtomicU64,
    /// The shard that is swept next.
    next_swept: AtomicUsize,
    max_per_shard: usize,
}

/// Some of the slots.
pub(super) struct Shard<E> {
    slots: HashMap<OwnedName, Slot<E>, RandomState>,
    swept: Timestamp,
}

/// What a key held that nobody asks for any more.
pub(super) struct Leftover {
    pub(super) policy: Policy,
    pub(super) portion: Portion,
    pub(super) key: Box<str>,
}

impl<E: Clone> Slots<E> {
    pub(super) fn at_most(max_keys: usize) -> Self {
        let hasher = RandomState::default();
        let shard = |_| {
            let slots = HashMap::with_hasher(hasher.clone());
            Mutex::new(Shard { slots, swept: Timestamp::EPOCH })
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            hasher: hasher.clone(),
            next_id: AtomicU64::new(0),
            next_swept: AtomicUsize::new(0),
            max_per_shard: max_keys.div_ceil(SHARDS),
        }
    }

    #[expect(clippy::indexing_slicing, reason = "below the length")]
    pub(super) fn shard(&self, name: Name<'_>) -> MutexGuard<'_, Shard<E>> {
        self.shards[(self.hasher.hash_one(name) >> 32) as usize % SHARDS].lock()
    }

    /// The slot of a key under these rules; none if there is no room for another.
    pub(super) fn open<'s>(
        &self,
        shard: &'s mut Shard<E>,
        name: Name<'_>,
        policy: &Policy,
        now: Timestamp,
    ) -> Option<&'s mut Slot<E>> {
        let is_there = shard.slots.get(&name).is_some_and(|slot| slot.policy() == policy);
        if !is_there {
            // Of other rules, if there is one at all: what it holds was taken under those.
            shard.slots.remove(&name);
            if shard.slots.len() >= self.max_per_shard {
                return None;
            }
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            shard.slots.insert(name.to_owned(), Slot::new(id, policy, now));
        }
        shard.slots.get_mut(&name)
    }

    /// Looks at one shard, each in turn, for keys that nobody has asked for in `span`; what they held. One that is in use
    /// is left for the next time.
    pub(super) fn sweep(&self, now: Timestamp, span: Duration) -> Vec<Leftover> {
        let next = self.next_swept.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let shard = self.shards.get(next).and_then(Mutex::try_lock);
        shard.map(|mut shard| shard.sweep(now, span)).unwrap_or_default()
    }

    /// The same for all shards that are not in use.
    pub(super) fn sweep_all(&self, now: Timestamp, span: Duration) -> Vec<Leftover> {
        let shards = self.shards.iter().filter_map(Mutex::try_lock);
        shards.flat_map(|mut shard| shard.sweep(now, span)).collect()
    }

    /// Lets go of a key.
    pub(super) fn forget(&self, name: Name<'_>) {
        let slot = self.shard(name).slots.remove(&name);
        drop(slot);
    }

    /// Lets go of all keys; what they held.
    pub(super) fn take_all(&self) -> Vec<Leftover> {
        self.shards.iter().flat_map(|shard| shard.lock().take(|_| true)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().slots.len()).sum()
    }
}

impl<E: Clone> Shard<E> {
    pub(super) fn get(&mut self, name: Name<'_>) -> Option<&mut Slot<E>> {
        self.slots.get_mut(&name)
    }

    /// Looks once in as long as `span`.
    fn sweep(&mut self, now: Timestamp, span: Duration) -> Vec<Leftover> {
        if now.saturating_since(self.swept) < span {
            return Vec::new();
        }
        self.swept = now;
        self.take(|slot| now.saturating_since(slot.used()) >= span && !slot.is_busy())
    }

    fn take(&mut self, which: impl Fn(&Slot<E>) -> bool) -> Vec<Leftover> {
        let taken = self.slots.extract_if(|_, slot| which(slot));
        let left = taken.filter_map(|(name, slot)| {
            let policy = slot.policy().clone();
            Some(Leftover { policy, portion: slot.into_portion()?, key: name.into_key() })
        });
        left.collect()
    }
}
