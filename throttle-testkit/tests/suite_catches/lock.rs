//! Small locks that can be told to get one thing wrong.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use throttle_core::lock::{Acquisition, Fence, LockTtl, Owner};
use throttle_core::{Action, Clock, LockBackend, Outcome, PolicyName, StoreBackend, SystemClock, Timestamp};
use throttle_testkit::{Conformance, ManualClock, ReferenceBackend};

/// What the locks get wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Nothing.
    None,
    /// Looks, and sets a moment later.
    LooksThenSets,
    /// Frees the lock whoever holds it.
    FreesAnyones,
    /// Extends what has expired, if nobody else has it.
    ExtendsWhatIsOver,
    /// Extends the lock whoever holds it.
    ExtendsAnyones,
    /// Forgets the number with the holder.
    NumbersFromOne,
    /// Gives out the same number again.
    NumbersStandStill,
    /// Does not know its own holder.
    RefusesItsHolder,
    /// Numbers anew who asks again.
    NumbersRetries,
    /// Leaves to who asks again what was left.
    KeepsTheOldTime,
    ExpiresNever,
    ExpiresEarly,
    CutsNames,
    FoldsCase,
    /// Whoever resets a policy frees a lock of its name.
    FreesOnReset,
}

#[derive(Debug, Clone)]
pub(crate) struct Backend {
    mistake: Mistake,
    decisions: ReferenceBackend,
    locks: Arc<Mutex<Slots>>,
    last: Arc<Mutex<u64>>,
    clock: ManualClock,
}

type Slots = HashMap<String, Slot>;

#[derive(Debug, Clone, Copy)]
struct Slot {
    owner: Owner,
    fence: Fence,
    until: Timestamp,
}

impl Backend {
    fn new(mistake: Mistake) -> Self {
        let clock = ManualClock::new(SystemClock.now());
        let decisions = ReferenceBackend::with_clock(clock.clone());
        Self { mistake, decisions, locks: Arc::default(), last: Arc::default(), clock }
    }

    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn name_of(&self, name: &str) -> String {
        match self.mistake {
            Mistake::CutsNames => name.chars().take(64).collect(),
            Mistake::FoldsCase => name.to_lowercase(),
            _ => name.to_owned(),
        }
    }

    fn held(&self, slots: &Slots, name: &str) -> Option<Slot> {
        let is_live = |slot: &Slot| slot.until > self.clock.now() || self.is(Mistake::ExpiresNever);
        slots.get(name).copied().filter(is_live)
    }

    fn until(&self, ttl: LockTtl) -> Timestamp {
        let span = ttl.as_duration();
        let span = if self.is(Mistake::ExpiresEarly) { span / 2 } else { span };
        self.clock.now().saturating_add(span)
    }

    fn next_fence(&self) -> Fence {
        let mut last = self.last.lock();
        match self.mistake {
            Mistake::NumbersFromOne => Fence::new(1),
            Mistake::NumbersStandStill => Fence::new(u64::MAX >> 1),
            _ => {
                *last += 1;
                Fence::new(*last)
            }
        }
    }

    fn set(
        &self,
        slots: &mut Slots,
        (name, held): (String, Option<Slot>),
        owner: Owner,
        ttl: LockTtl,
    ) -> Acquisition {
        let until = self.until(ttl);
        let slot = match held {
            Some(slot) if slot.owner != owner || self.is(Mistake::RefusesItsHolder) => {
                return Acquisition::Busy { expires_in: Some(slot.until.saturating_since(self.clock.now())) };
            }
            Some(slot) if self.is(Mistake::KeepsTheOldTime) => slot,
            Some(_) if self.is(Mistake::NumbersRetries) => Slot { owner, fence: self.next_fence(), until },
            Some(slot) => Slot { until, ..slot },
            None => Slot { owner, fence: self.next_fence(), until },
        };
        slots.insert(name, slot);
        Acquisition::Held(slot.fence)
    }
}

impl StoreBackend for Backend {
    type BaseError = Infallible;

    fn name(&self) -> &'static str {
        "small"
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Infallible> {
        self.decisions.decide(action).await
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Infallible> {
        self.decisions.reset(policy, key).await
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Infallible> {
        if self.is(Mistake::FreesOnReset) {
            self.locks.lock().retain(|name, _| !name.starts_with(policy.as_str()));
        }
        self.decisions.reset_policy(policy).await
    }

    async fn ping(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl LockBackend for Backend {
    async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition, Infallible> {
        let name = self.name_of(name);
        if self.is(Mistake::LooksThenSets) {
            let held = self.held(&self.locks.lock(), &name);
            // As long as a trip to a store and back.
            tokio::time::sleep(Duration::from_millis(1)).await;
            return Ok(self.set(&mut self.locks.lock(), (name, held), owner, ttl));
        }
        let mut slots = self.locks.lock();
        let held = self.held(&slots, &name);
        Ok(self.set(&mut slots, (name, held), owner, ttl))
    }

    async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool, Infallible> {
        let (name, until) = (self.name_of(name), self.until(ttl));
        let mut slots = self.locks.lock();
        let is_live = self.held(&slots, &name).is_some() || self.is(Mistake::ExtendsWhatIsOver);
        let is_own = |slot: &&mut Slot| slot.owner == owner || self.is(Mistake::ExtendsAnyones);
        let slot = slots.get_mut(&name).filter(|slot| is_live && is_own(slot));
        Ok(slot.map(|slot| slot.until = until).is_some())
    }

    async fn release(&self, name: &str, owner: Owner) -> Result<bool, Infallible> {
        let (name, mut slots) = (self.name_of(name), self.locks.lock());
        let held = self.held(&slots, &name);
        let is_freed = held.is_some_and(|slot| slot.owner == owner || self.is(Mistake::FreesAnyones));
        if is_freed {
            slots.remove(&name);
        }
        Ok(is_freed)
    }
}

/// The whole suite, with everything the backend can show.
pub(crate) fn suite(name: &str, mistake: Mistake) -> Conformance<Backend> {
    Conformance::of(name, move || async move { Ok(Backend::new(mistake)) })
        .with_locks()
        .lets_time_pass(|backend, span| async move { backend.clock.advance(span) })
}
