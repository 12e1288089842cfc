//! Lanes: keys that other processes change too do not hold up those that nobody else does.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use throttle_core::{Action, CasBackend, GroupCommit, SetupError, storage_key};
use tokio::time::Instant;

use crate::config::Settings;
use crate::store::EtcdStore;

/// How many lanes there are for keys in conflict.
const CONTENDED: usize = 4;

/// How many keys are known to be in conflict, the last ones. A zero here would not compile.
const KNOWN: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();

/// How long after its last conflict a key is calm again.
const CALM: Duration = Duration::from_secs(10);

/// How long after the last conflict this process takes itself to be the only one on its keys.
const ALONE: Duration = Duration::from_secs(3_600);

/// One batch after the other.
pub(crate) type Lane = GroupCommit<Arc<CasBackend<Arc<EtcdStore>>>>;

/// A batch is answered when the last of its keys has succeeded. So keys that were in conflict of late go apart from the
/// others, in a few lanes of their own.
#[derive(Debug)]
pub(crate) struct Lanes {
    calm: Lane,
    contended: Vec<Lane>,
    hasher: RandomState,
}

impl Lanes {
    pub(crate) fn new(store: &Arc<EtcdStore>, settings: &Settings) -> Result<Self, SetupError> {
        // One for all: a key that changes its lane is still known.
        let backend = CasBackend::new(Arc::clone(store))
            .with_prefix(&settings.prefix)?
            .with_deadline(settings.contention_deadline)
            .remember(settings.remembered_keys);
        let backend = Arc::new(backend);
        let most = settings.max_txn_ops.saturating_sub(1);
        let lane = || GroupCommit::new(Arc::clone(&backend)).with_max_batch(most);
        Ok(Self {
            calm: lane(),
            contended: std::iter::repeat_with(lane).take(CONTENDED).collect(),
            hasher: RandomState::new(),
        })
    }

    pub(crate) const fn calm(&self) -> &Lane {
        &self.calm
    }

    fn store(&self) -> &EtcdStore {
        self.calm.get_ref().store()
    }

    /// The lane of an action.
    pub(crate) fn of(&self, action: &Action<'_>) -> &Lane {
        self.of_each(std::slice::from_ref(action)).first().copied().unwrap_or(&self.calm)
    }

    /// The lanes of several actions, the same for all on one key.
    pub(crate) fn of_each(&self, actions: &[Action<'_>]) -> Vec<&Lane> {
        let contended = self.store().contended();
        if !contended.is_any() {
            return vec![&self.calm; actions.len()];
        }
        let name =
            |action: &Action<'_>| storage_key(self.store().prefix(), action.policy().name(), action.key());
        let names: Vec<_> = actions.iter().map(name).collect();
        let lane = |(name, is_contended): (&String, bool)| {
            if is_contended { self.contended(name) } else { &self.calm }
        };
        names.iter().zip(contended.are(&names)).map(lane).collect()
    }

    fn contended(&self, name: &str) -> &Lane {
        let at = usize::try_from(self.hasher.hash_one(name) % CONTENDED as u64).unwrap_or(0);
        self.contended.get(at).unwrap_or(&self.calm)
    }
}

/// What is to be expected of keys that go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// For long, each was what this process had left there.
    Alone,
    /// None was in conflict of late.
    Calm,
    /// Some were.
    Contended,
}

/// The keys that were in conflict of late.
#[derive(Debug)]
pub(crate) struct Contended {
    is_any: AtomicBool,
    last_conflicts: Mutex<LruCache<String, Instant>>,
    /// When any key was last not what was expected.
    last_surprise: Mutex<Option<Instant>>,
}

impl Contended {
    pub(crate) fn new() -> Self {
        Self {
            is_any: AtomicBool::new(false),
            last_conflicts: Mutex::new(LruCache::new(KNOWN)),
            last_surprise: Mutex::new(None),
        }
    }

    pub(crate) fn outlook(&self) -> Outlook {
        match self.last_surprise.lock().map(|last| last.elapsed()) {
            Some(past) if past < CALM => Outlook::Contended,
            Some(past) if past < ALONE => Outlook::Calm,
            _ => Outlook::Alone,
        }
    }

    /// One of the keys that went together was not what was expected.
    pub(crate) fn note_surprise(&self) {
        *self.last_surprise.lock() = Some(Instant::now());
    }

    /// These keys were in conflict just now.
    pub(crate) fn note<'k>(&self, keys: impl Iterator<Item = &'k str>) {
        let mut keys = keys.peekable();
        if keys.peek().is_none() {
            return;
        }
        let now = Instant::now();
        let mut last_conflicts = self.last_conflicts.lock();
        for key in keys {
            last_conflicts.put(key.to_owned(), now);
        }
        self.is_any.store(true, Ordering::Relaxed);
        drop(last_conflicts);
        self.note_surprise();
    }

    /// Whether there may be any; costs nothing.
    fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Which of the keys are in conflict. Those that are so no longer are forgotten.
    fn are(&self, names: &[String]) -> Vec<bool> {
        let now = Instant::now();
        let mut last_conflicts = self.last_conflicts.lock();
        while last_conflicts.peek_lru().is_some_and(|(_, last)| now.duration_since(*last) >= CALM) {
            last_conflicts.pop_lru();
        }
        if last_conflicts.is_empty() {
            self.is_any.store(false, Ordering::Relaxed);
        }
        names.iter().map(|name| last_conflicts.contains(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are(contended: &Contended, names: [&str; 3]) -> Vec<bool> {
        contended.are(&names.map(str::to_owned))
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_in_conflict_for_a_while() {
        let contended = Contended::new();
        contended.note(std::iter::empty());
        assert!(!contended.is_any());
        contended.note(["a", "b"].into_iter());
        tokio::time::advance(CALM / 2).await;
        contended.note(["a"].into_iter());
        assert!(contended.is_any());
        assert_eq!(are(&contended, ["a", "b", "c"]), [true, true, false]);
        tokio::time::advance(CALM / 2).await;
        assert_eq!(are(&contended, ["a", "b", "c"]), [true, false, false]);
        tokio::time::advance(CALM / 2).await;
        assert_eq!(are(&contended, ["a", "b", "c"]), [false; 3]);
        assert!(!contended.is_any());
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_is_remembered_for_long() {
        let contended = Contended::new();
        assert_eq!(contended.outlook(), Outlook::Alone);
        for note in [|all: &Contended| all.note_surprise(), |all: &Contended| all.note(["a"].into_iter())] {
            note(&contended);
            tokio::time::advance(CALM / 2).await;
            assert_eq!(contended.outlook(), Outlook::Contended);
            tokio::time::advance(CALM / 2).await;
            assert_eq!(contended.outlook(), Outlook::Calm);
            tokio::time::advance(ALONE - CALM).await;
            assert_eq!(contended.outlook(), Outlook::Alone);
        }
    }

    #[tokio::test]
    async fn only_so_many_keys_are_known() {
        let contended = Contended::new();
        let names: Vec<_> = (0..2 * KNOWN.get()).map(|number| number.to_string()).collect();
        contended.note(names.iter().map(String::as_str));
        assert_eq!(contended.are(&names).into_iter().filter(|is| *is).count(), KNOWN.get());
    }
}
