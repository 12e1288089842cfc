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
    pub(super) fn version(&self, name: Name<'_>) -> u64 {
        self.joint_version(*self.stripe(name).lock())
    }

    /// Remembers a denial, unless the key has changed since its version was `seen`.
    pub(super) fn remember(&self, name: Name<'_>, seen: u64, denial: Denial) {
        let version = self.stripe(name).lock();
        if self.joint_version(*version) == seen && !denial.lives().is_zero() {
            let epoch = self.epoch.load(Ordering::SeqCst);
            self.denials.insert(name.to_owned(), Arc::new(Kept { epoch, denial }));
        }
    }

    /// The key has changed, and what was denied on top of that is true now, unless it has changed otherwise, too.
    pub(super) fn replace(&self, name: Name<'_>, seen: u64, denial: Option<Denial>) {
        let mut version = self.stripe(name).lock();
        let is_latest = self.joint_version(*version) == seen;
        *version += 1;
        match denial.filter(|denial| is_latest && !denial.lives().is_zero()) {
            Some(denial) => {
                let epoch = self.epoch.load(Ordering::SeqCst);
                self.denials.insert(name.to_owned(), Arc::new(Kept { epoch, denial }));
            }
            None => self.denials.invalidate(&name),
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

    /// Both parts only rise, so their sum is the same only if both are.
    fn joint_version(&self, version: u64) -> u64 {
        version + self.epoch.load(Ordering::SeqCst)
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
