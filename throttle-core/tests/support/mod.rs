//! An in-memory [`CasStore`] with faults on demand.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use throttle_core::kernel::{PolicyState, StoredState};
use throttle_core::{
    BaseErrorSet, CasOutcome, CasStore, Clock, Effect, ErrorKind, Exchange, Results, SystemClock, Timestamp,
    Versioned,
};

/// Clones share everything, as processes share a server.
#[derive(Debug, Clone, Default)]
pub struct StubStore(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    entries: Mutex<Entries>,
    versions: AtomicU64,
    faults: Mutex<VecDeque<Option<StubFault>>>,
    /// How often each operation lets others run before it takes effect.
    yields: AtomicU32,
    /// Microseconds that the clock is ahead.
    ahead: AtomicU64,
    reads: AtomicU64,
    exchanges: AtomicU64,
    trips: AtomicU64,
}

type Entries = BTreeMap<String, Entry>;

#[derive(Debug, Clone)]
struct Entry {
    current: Versioned<u64>,
    expires_at: Timestamp,
}

/// What happens to the next exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StubFault {
    /// Another writer stores the same state just before.
    Overtaken,
    /// So it does, and the answer does not say what it stored.
    OvertakenUnseen,
    /// It is stored, and the reply is lost.
    ReplyLost,
    /// It is refused.
    Refused,
}

/// The family of the stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StubError {
    #[error("the reply was lost")]
    ReplyLost,
    #[error("the stub refused")]
    Refused,
}

impl BaseErrorSet for StubError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::ReplyLost => ErrorKind::Connection,
            Self::Refused => ErrorKind::Overloaded,
        }
    }

    fn effect(&self) -> Effect {
        match self {
            Self::ReplyLost => Effect::Unknown,
            Self::Refused => Effect::NotApplied,
        }
    }

    fn samples() -> Vec<Self> {
        vec![Self::ReplyLost, Self::Refused]
    }
}

impl StubStore {
    pub fn fail_next(&self, faults: impl IntoIterator<Item = StubFault>) {
        self.0.faults.lock().extend(faults.into_iter().map(Some));
    }

    /// So many exchanges before those that fail next have no fault.
    pub fn pass_exchanges(&self, count: usize) {
        self.0.faults.lock().extend(std::iter::repeat_n(None, count));
    }

    pub fn yield_times(&self, times: u32) {
        self.0.yields.store(times, Ordering::Relaxed);
    }

    pub fn pass(&self, span: Duration) {
        self.0.ahead.fetch_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Round trips, batches counted once.
    pub fn trips(&self) -> u64 {
        self.0.trips.load(Ordering::Relaxed)
    }

    pub fn reads(&self) -> u64 {
        self.0.reads.load(Ordering::Relaxed)
    }

    pub fn exchanges(&self) -> u64 {
        self.0.exchanges.load(Ordering::Relaxed)
    }

    pub fn put(&self, key: &str, value: &[u8]) {
        self.store(&mut self.0.entries.lock(), key, value, Duration::from_secs(3_600));
    }

    pub fn value(&self, key: &str) -> Option<Vec<u8>> {
        self.live(key).map(|entry| entry.current.value)
    }

    pub fn keys(&self) -> Vec<String> {
        let keys: Vec<String> = self.0.entries.lock().keys().cloned().collect();
        keys.into_iter().filter(|key| self.live(key).is_some()).collect()
    }

    pub fn time_to_live(&self, key: &str) -> Option<Duration> {
        self.live(key).map(|entry| entry.expires_at.saturating_since(self.now()))
    }

    fn live(&self, key: &str) -> Option<Entry> {
        live(&self.0.entries.lock(), key, self.now())
    }

    fn store(&self, entries: &mut Entries, key: &str, value: &[u8], ttl: Duration) -> u64 {
        let version = self.0.versions.fetch_add(1, Ordering::Relaxed) + 1;
        let current = Versioned { version, value: value.to_owned() };
        let expires_at = self.now().saturating_add(ttl);
        entries.insert(key.to_owned(), Entry { current, expires_at });
        version
    }

    async fn trip(&self) {
        self.0.trips.fetch_add(1, Ordering::Relaxed);
        for _ in 0..self.0.yields.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    }

    fn read(&self, key: &str) -> Option<Versioned<u64>> {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        self.live(key).map(|entry| entry.current)
    }

    fn exchange(&self, new: &Exchange<'_, u64>) -> Result<CasOutcome<u64>, StubError> {
        assert!(!new.ttl.is_zero(), "a time to live of zero");
        self.0.exchanges.fetch_add(1, Ordering::Relaxed);
        let fault = self.0.faults.lock().pop_front().flatten();
        let (mut entries, now) = (self.0.entries.lock(), self.now());
        if fault == Some(StubFault::Refused) {
            return Err(StubError::Refused);
        }
        if matches!(fault, Some(StubFault::Overtaken | StubFault::OvertakenUnseen)) {
            let found = live(&entries, new.key, now);
            let nothing = || PolicyState::new(vec![StoredState::Fresh]).to_bytes();
            let value = found.map_or_else(nothing, |entry| entry.current.value);
            self.store(&mut entries, new.key, &value, new.ttl);
        }
        let current = live(&entries, new.key, now).map(|entry| entry.current);
        if current.as_ref().map(|current| &current.version) != new.expected {
            return Ok(match fault {
                Some(StubFault::OvertakenUnseen) => CasOutcome::UnseenConflict,
                _ => CasOutcome::Conflict(current),
            });
        }
        let version = self.store(&mut entries, new.key, new.value, new.ttl);
        match fault {
            Some(StubFault::ReplyLost) => Err(StubError::ReplyLost),
            _ => Ok(CasOutcome::Stored(version)),
        }
    }
}

impl CasStore for StubStore {
    type BaseError = StubError;
    type Version = u64;

    fn name(&self) -> &'static str {
        "stub"
    }

    fn now(&self) -> Timestamp {
        SystemClock.now().saturating_add(Duration::from_micros(self.0.ahead.load(Ordering::Relaxed)))
    }

    async fn get(&self, key: &str) -> Result<Option<Versioned<u64>>, StubError> {
        self.trip().await;
        Ok(self.read(key))
    }

    async fn get_many(&self, keys: &[&str]) -> Results<Option<Versioned<u64>>, StubError> {
        self.trip().await;
        keys.iter().map(|key| Ok(self.read(key))).collect()
    }

    async fn compare_exchange(&self, exchange: &Exchange<'_, u64>) -> Result<CasOutcome<u64>, StubError> {
        self.trip().await;
        self.exchange(exchange)
    }

    async fn compare_exchange_many(
        &self,
        exchanges: &[Exchange<'_, u64>],
    ) -> Results<CasOutcome<u64>, StubError> {
        self.trip().await;
        exchanges.iter().map(|exchange| self.exchange(exchange)).collect()
    }

    async fn remove(&self, key: &str) -> Result<bool, StubError> {
        self.trip().await;
        let was_there = self.live(key).is_some();
        self.0.entries.lock().remove(key);
        Ok(was_there)
    }

    async fn remove_prefix(&self, prefix: &str) -> Result<u64, StubError> {
        self.trip().await;
        let keys: Vec<_> = self.keys().into_iter().filter(|key| key.starts_with(prefix)).collect();
        keys.iter().for_each(|key| drop(self.0.entries.lock().remove(key)));
        Ok(u64::try_from(keys.len()).unwrap_or(u64::MAX))
    }
}

fn live(entries: &Entries, key: &str, now: Timestamp) -> Option<Entry> {
    entries.get(key).filter(|entry| entry.expires_at > now).cloned()
}
