//! Who is woken when there is something to do: everybody who waits.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;

/// The waker of every batch. Waking just the one caller that polled last would not do: it may be alive and yet never be
/// polled again, as a future is that lost a `select!` and is kept.
pub(super) struct Bell {
    /// Whether somebody should look at the running batch, or start the next one.
    rung: AtomicBool,
    /// By ticket, so that who came first is woken first.
    sleepers: Mutex<BTreeMap<u64, Waker>>,
}

impl Bell {
    /// Rung: there is no batch yet, so the first caller has to start one.
    pub(super) fn new() -> Self {
        Self { rung: AtomicBool::new(true), sleepers: Mutex::new(BTreeMap::new()) }
    }

    pub(super) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    pub(super) fn silence(&self) {
        self.rung.store(false, Ordering::SeqCst);
    }

    /// Wakes everybody, each once until it sleeps again.
    pub(super) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        let woken = std::mem::take(&mut *self.sleepers.lock());
        woken.into_values().for_each(Waker::wake);
    }

    /// Has `waker` woken at the next ring. A caller that sleeps and then finds the bell silent misses nothing.
    pub(super) fn sleep(&self, ticket: u64, waker: &Waker) {
        let replaced = self.sleepers.lock().insert(ticket, waker.clone());
        // Outside the lock: this may drop a task, with callers in it.
        drop(replaced);
    }

    pub(super) fn forget(&self, ticket: u64) {
        let forgotten = self.sleepers.lock().remove(&ticket);
        drop(forgotten);
    }

    pub(super) fn sleepers(&self) -> usize {
        self.sleepers.lock().len()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").field("rung", &self.is_rung()).field("sleepers", &self.sleepers()).finish()
    }
}
