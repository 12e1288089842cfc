//! The last seen version and state of warm keys, so that a key with one writer costs one round trip.

use std::fmt;

use lru::LruCache;
use parking_lot::Mutex;

use crate::kernel::{PolicyState, StoredState};

/// Logs of more entries than this are not remembered: the memory is bounded in keys, and should be in bytes.
const MAX_LOG_ENTRIES: usize = 256;

/// The keys used last, at most so many. Who takes an entry has it alone, so no state is ever copied.
pub(super) struct Memory<V> {
    keys: usize,
    entries: Mutex<LruCache<String, (V, PolicyState)>>,
}

impl<V> Memory<V> {
    pub(super) fn of(keys: usize) -> Self {
        Self { keys, entries: Mutex::new(LruCache::unbounded()) }
    }

    pub(super) fn take(&self, name: &str) -> Option<(V, PolicyState)> {
        if self.keys == 0 {
            return None;
        }
        self.entries.lock().pop(name)
    }

    pub(super) fn put(&self, name: String, version: V, state: PolicyState) {
        if self.keys == 0 || state.states().iter().any(is_long) {
            return;
        }
        let mut entries = self.entries.lock();
        let replaced = entries.put(name, (version, state));
        let evicted = if entries.len() > self.keys { entries.pop_lru() } else { None };
        drop(entries);
        drop((replaced, evicted));
    }

    pub(super) fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

fn is_long(state: &StoredState) -> bool {
    matches!(state, StoredState::SlidingLog(log) if log.entries().len() > MAX_LOG_ENTRIES)
}

/// Without the keys: they may be nobody's business.
impl<V> fmt::Debug for Memory<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} keys", self.len(), self.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{LogEntry, SlidingLogState};

    fn fresh() -> PolicyState {
        PolicyState::new(vec![StoredState::Fresh])
    }

    #[test]
    fn the_keys_used_last_stay() {
        let memory = Memory::of(2);
        for (version, name) in ["a", "b", "a", "c"].into_iter().enumerate() {
            memory.put(name.to_owned(), version, fresh());
        }
        assert_eq!(memory.len(), 2);
        assert_eq!(memory.take("b"), None);
        assert_eq!(memory.take("a"), Some((2, fresh())));
        assert_eq!(memory.take("a"), None, "taken is taken");
        assert_eq!(format!("{memory:?}"), "1 of 2 keys");
    }

    #[test]
    fn none_is_none() {
        let memory = Memory::of(0);
        memory.put("a".to_owned(), 1, fresh());
        assert_eq!((memory.len(), memory.take("a")), (0, None));
    }

    #[test]
    fn long_logs_are_not_remembered() {
        let memory = Memory::of(2);
        let mut log = SlidingLogState::new(1_000_000);
        (0..257).for_each(|time| log.push(LogEntry { time, cost: 1 }));
        memory.put("long".to_owned(), 1, PolicyState::new(vec![StoredState::SlidingLog(Box::new(log))]));
        assert_eq!(memory.len(), 0);
    }
}
