//! Where denials are kept, and how none is kept that something has overtaken.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use moka::Expiry;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;

use crate::denial::Denial;
use crate::name::{Name, OwnedName};

/// Keys that share a version. A key that changes while another's denial is under way costs that denial its place.
const STRIPES: usize = 1_024;

/// Denials by policy and key. Each key has a version, which every change of it raises: only what was asked and answered
/// under one version is remembered.
pub(super) struct Memory {
    denials: Cache<OwnedName, Arc<Kept>, RandomState>,
    hasher: RandomState,
    versions: Box<[Mutex<u64>]>,
    /// Raised when all is forgotten.
    epoch: AtomicU64,
}

/// What a question was asked under.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version {
    key: u64,
    epoch: u64,
}

struct Kept {
    epoch: u64,
    denial: Denial,
}

impl Memory {
    pub(super) fn new(max_keys: u64) -> Self {
        let hasher = RandomState::default();
        let denials = Cache::builder()
            .max_capacity(max_keys)
            .eviction_policy(EvictionPolicy::lru())
            .expire_after(WithItself)
            .build_with_hasher(hasher.clone());
        let versions = (0..STRIPES).map(|_| Mutex::new(0)).collect();
        Self { denials, hasher, versions, epoch: AtomicU64::new(0) }
    }

    pub(super) fn len(&self) -> u64 {
        self.denials.entry_count()
    }

    #[inline]
    pub(super) fn get(&self, name: Name<'_>) -> Option<Remembered> {
        let kept = self.denials.get(&name)?;
        (kept.epoch == self.epoch.load(Ordering::SeqCst)).then_some(Remembered(kept))
    }

    /// The version of what is known of a key, to be named with what comes of a question.
    pub(super) fn version(&self, name: Name<'_>) -> Version {
        let key = *self.stripe(name).lock();
        Version { key, epoch: self.epoch.load(Ordering::SeqCst) }
    }

    /// Remembers a denial, unless the key has changed since its version was `seen`.
    pub(super) fn remember(&self, name: Name<'_>, seen: Version, denial: Denial) {
        let version = self.stripe(name).lock();
        if *version == seen.key {
            self.keep(name, seen.epoch, denial);
        }
    }

    /// The key has changed, and what was denied on top of that is true now, unless it has changed otherwise, too.
    pub(super) fn replace(&self, name: Name<'_>, seen: Version, denial: Option<Denial>) {
        let mut version = self.stripe(name).lock();
        let is_latest = *version == seen.key;
        *version += 1;
        self.denials.invalidate(&name);
        if let Some(denial) = denial.filter(|_| is_latest) {
            self.keep(name, seen.epoch, denial);
        }
    }

    /// Under the epoch in which it was asked for, not the present one: all may be forgotten at any moment, and then it is
    /// never found.
    fn keep(&self, name: Name<'_>, epoch: u64, denial: Denial) {
        if !denial.lives().is_zero() {
            self.denials.insert(name.to_owned(), Arc::new(Kept { epoch, denial }));
        }
    }

    /// The key has changed, or may have.
    pub(super) fn forget(&self, name: Name<'_>) {
        let mut version = self.stripe(name).lock();
        *version += 1;
        self.denials.invalidate(&name);
    }

    /// Any key may have changed.
    pub(super) fn forget_all(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.denials.invalidate_all();
    }

    #[expect(clippy::indexing_slicing, reason = "below the length")]
    fn stripe(&self, name: Name<'_>) -> &Mutex<u64> {
        &self.versions[(self.hasher.hash_one(name) >> 32) as usize % STRIPES]
    }
}

/// A denial that was found.
pub(super) struct Remembered(Arc<Kept>);

impl std::ops::Deref for Remembered {
    type Target = Denial;

    fn deref(&self) -> &Denial {
        &self.0.denial
    }
}

/// A denial is kept for as long as it may answer.
struct WithItself;

impl Expiry<OwnedName, Arc<Kept>> for WithItself {
    fn expire_after_create(&self, _: &OwnedName, kept: &Arc<Kept>, _: Instant) -> Option<Duration> {
        Some(kept.denial.lives())
    }

    fn expire_after_update(
        &self,
        _: &OwnedName,
        kept: &Arc<Kept>,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(kept.denial.lives())
    }
}

#[cfg(test)]
mod tests {
    use throttle_core::kernel::{PolicyState, decide};
    use throttle_core::{Action, Policy, Rule, Timestamp};

    use super::*;

    /// Whatever comes between: a denial of before is not known after.
    #[test]
    fn a_denial_that_was_asked_for_before_all_was_forgotten_is_never_found() {
        let policy = Policy::new("p", [Rule::gcra("1/h").unwrap()]).unwrap();
        let now = Timestamp::from_micros(1_700_000_000_000_000).unwrap();
        let action = Action::consume(&policy, "key");
        let mut state = PolicyState::fresh(&policy);
        decide(&action, now, &mut state);
        let outcome = decide(&action, now, &mut state);
        let denial = || Denial::of(&action, &outcome, (now, now), Duration::from_secs(9)).unwrap();
        let name = Name::new(policy.name(), "key");
        let memory = Memory::new(10);
        memory.remember(name, memory.version(name), denial());
        assert!(memory.get(name).is_some());
        for changes in [false, true] {
            let seen = memory.version(name);
            // As late as it can be: the version was compared, and what is kept is about to be kept.
            memory.forget_all();
            memory.keep(name, seen.epoch, denial());
            assert!(memory.get(name).is_none());
            match changes {
                false => memory.remember(name, seen, denial()),
                true => memory.replace(name, seen, Some(denial())),
            }
            assert!(memory.get(name).is_none(), "{changes}");
        }
    }
}
