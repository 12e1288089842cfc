//! [`ReferenceBackend`]: the definition of a store, as a program.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use parking_lot::Mutex;
use throttle_core::kernel::{PolicyState, decide};
use throttle_core::lock::{Acquisition, LockTable, LockTtl, Owner};
use throttle_core::{Action, Clock, LockBackend, Outcome, PolicyName, StoreBackend, SystemClock};

/// What every store is held to: a map of states under one lock, decided by
/// [`kernel::decide`](throttle_core::kernel::decide), and a [`LockTable`]. Clones share both.
///
/// It lets no state expire and is bounded by nothing, so it is for tests only; `throttle-memory` is the embedded store.
///
/// ```
/// use throttle_core::{Policy, RateLimiter, Rule};
/// use throttle_testkit::ReferenceBackend;
///
/// let policy = Policy::new("api", [Rule::gcra("1/h")?])?;
/// let limiter = RateLimiter::new(policy, ReferenceBackend::default());
/// assert!(limiter.blocking().check("alice")?.is_allowed());
/// assert!(!limiter.blocking().check("alice")?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ReferenceBackend {
    states: Arc<Mutex<HashMap<(String, String), PolicyState>>>,
    locks: Arc<Mutex<LockTable>>,
    clock: Arc<dyn Clock>,
}

impl ReferenceBackend {
    /// A store that decides at the time of `clock` when an action brings none.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        Self { states: Arc::default(), locks: Arc::default(), clock: Arc::new(clock) }
    }

    /// What is stored for `key` under `policy`.
    #[must_use]
    pub fn state(&self, policy: &PolicyName, key: &str) -> Option<PolicyState> {
        self.states.lock().get(&pair(policy, key)).cloned()
    }
}

impl Default for ReferenceBackend {
    fn default() -> Self {
        Self::with_clock(SystemClock)
    }
}

impl StoreBackend for ReferenceBackend {
    type BaseError = Infallible;

    fn name(&self) -> &'static str {
        "reference"
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Infallible> {
        let now = action.now().unwrap_or_else(|| self.clock.now());
        let name = pair(action.policy().name(), action.key());
        let mut states = self.states.lock();
        let mut state = states.get(&name).cloned().unwrap_or_else(|| PolicyState::fresh(action.policy()));
        let outcome = decide(action, now, &mut state);
        if outcome.changes_state(action) {
            states.insert(name, state);
        }
        Ok(outcome)
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Infallible> {
        Ok(self.states.lock().remove(&pair(policy, key)).is_some())
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Infallible> {
        let mut states = self.states.lock();
        let before = states.len();
        states.retain(|(name, _), _| name != policy.as_str());
        Ok(u64::try_from(before - states.len()).unwrap_or(u64::MAX))
    }

    async fn ping(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl LockBackend for ReferenceBackend {
    async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition, Infallible> {
        let mut locks = self.locks.lock();
        Ok(locks.acquire(name, owner, ttl, self.clock.now()))
    }

    async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool, Infallible> {
        let mut locks = self.locks.lock();
        Ok(locks.extend(name, owner, ttl, self.clock.now()))
    }

    async fn release(&self, name: &str, owner: Owner) -> Result<bool, Infallible> {
        let mut locks = self.locks.lock();
        Ok(locks.release(name, owner, self.clock.now()))
    }
}

fn pair(policy: &PolicyName, key: &str) -> (String, String) {
    (policy.as_str().to_owned(), key.to_owned())
}
