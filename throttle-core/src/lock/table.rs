//! [`LockTable`]: all locks of one process, for backends in memory.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{Acquisition, Fence, LockSlot, LockTtl, Owner};
use crate::{Timestamp, stored_key};

/// A table of fewer names than this is not worth sweeping.
const SWEPT_FROM: usize = 64;

/// Locks by name. All names share one number, which only grows, so that nothing is kept of a lock that is free. Names
/// that were let expire are swept by later acquisitions.
#[derive(Debug, Clone, Default)]
pub struct LockTable {
    slots: HashMap<String, LockSlot, RandomState>,
    last: Option<Fence>,
    /// How many names there are when the next sweep comes: twice as many as the last one left.
    sweep_at: usize,
}

impl LockTable {
    /// As [`LockSlot::acquire`], with the next number.
    pub fn acquire(&mut self, name: &str, owner: Owner, ttl: LockTtl, now: Timestamp) -> Acquisition {
        if self.slots.len() >= self.sweep_at.max(SWEPT_FROM) {
            self.sweep(now);
        }
        let next = Fence::after(self.last, now);
        let slot = self.slots.entry(stored_key(name).into_owned()).or_default();
        let acquisition = slot.acquire(owner, ttl, now, next);
        if acquisition == Acquisition::Held(next) {
            self.last = Some(next);
        }
        acquisition
    }

    /// As [`LockSlot::extend`].
    pub fn extend(&mut self, name: &str, owner: Owner, ttl: LockTtl, now: Timestamp) -> bool {
        self.slots.get_mut(&*stored_key(name)).is_some_and(|slot| slot.extend(owner, ttl, now))
    }

    /// As [`LockSlot::release`].
    pub fn release(&mut self, name: &str, owner: Owner, now: Timestamp) -> bool {
        let name = stored_key(name);
        let is_released = self.slots.get_mut(&*name).is_some_and(|slot| slot.release(owner, now));
        if is_released {
            self.slots.remove(&*name);
        }
        is_released
    }

    /// How many names are in it, those that have expired and were not swept yet included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no name is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn sweep(&mut self, now: Timestamp) {
        self.slots.retain(|_, slot| !slot.is_free(now));
        self.slots.shrink_to(SWEPT_FROM);
        self.sweep_at = 2 * self.slots.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_takes_no_room_and_no_number_comes_twice() {
        let (mut table, ttl) = (LockTable::default(), LockTtl::MIN);
        let mut last = None;
        for name in 0..100_000 {
            let now = Timestamp::saturating_from_micros(name * 100);
            let owner = Owner::from_u128(name.into());
            let fence = table.acquire(&name.to_string(), owner, ttl, now).fence();
            assert!(fence > last, "{name}");
            last = fence;
        }
        assert!(table.len() <= 2 * SWEPT_FROM, "{} names, 10 of them held", table.len());
        let now = Timestamp::saturating_from_micros(99_999 * 100);
        assert!(table.release("99999", Owner::from_u128(99_999), now));
        assert!(table.acquire("99999", Owner::from_u128(1), ttl, Timestamp::EPOCH).fence() > last);
    }
}
