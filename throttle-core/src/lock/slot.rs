//! [`LockSlot`]: what a lock is, as a pure function of what is stored of it.

use std::time::Duration;

use super::{Fence, LockTtl, Owner};
use crate::Timestamp;

/// The answer to who wants a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the lock may be held by somebody else"]
pub enum Acquisition {
    /// It is the caller's, from the moment of the decision on, for the time to live.
    Held(Fence),
    /// Somebody else has it.
    Busy {
        /// When it will be free at the latest, unless its holder prolongs it; none if the store does not say.
        expires_in: Option<Duration>,
    },
}

impl Acquisition {
    /// The number of the acquisition, if it is one.
    #[must_use]
    pub const fn fence(self) -> Option<Fence> {
        match self {
            Self::Held(fence) => Some(fence),
            Self::Busy { .. } => None,
        }
    }
}

/// What is stored of one lock, and what each operation makes of it: the definition that every store is held to.
///
/// ```
/// use std::time::Duration;
/// use throttle_core::Timestamp;
/// use throttle_core::lock::{Acquisition, Fence, LockSlot, LockTtl, Owner};
///
/// let (ann, bob) = (Owner::from_u128(1), Owner::from_u128(2));
/// let (ttl, start) = (LockTtl::new(Duration::from_secs(10))?, Timestamp::EPOCH);
/// let mut slot = LockSlot::default();
///
/// assert_eq!(slot.acquire(ann, ttl, start, Fence::new(7)), Acquisition::Held(Fence::new(7)));
/// assert_eq!(slot.acquire(ann, ttl, start, Fence::new(8)), Acquisition::Held(Fence::new(7)));
/// assert_eq!(slot.acquire(bob, ttl, start, Fence::new(8)).fence(), None);
///
/// let later = start.saturating_add(Duration::from_secs(10));
/// assert!(!slot.extend(ann, ttl, later), "too late");
/// assert_eq!(slot.acquire(bob, ttl, later, Fence::new(8)), Acquisition::Held(Fence::new(8)));
/// assert!(!slot.release(ann, later) && slot.release(bob, later));
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockSlot {
    held: Option<Held>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    owner: Owner,
    fence: Fence,
    until: Timestamp,
}

impl LockSlot {
    /// Takes the lock at `now` if it is free, with `fence` as its number; or lets its owner have it anew, with the
    /// number it had.
    pub fn acquire(&mut self, owner: Owner, ttl: LockTtl, now: Timestamp, fence: Fence) -> Acquisition {
        let fence = match self.holder(now) {
            Some(held) if held.owner != owner => {
                return Acquisition::Busy { expires_in: Some(held.until.saturating_since(now)) };
            }
            Some(held) => held.fence,
            None => fence,
        };
        self.held = Some(Held { owner, fence, until: now.saturating_add(ttl.as_duration()) });
        Acquisition::Held(fence)
    }

    /// Lets `owner` have it for `ttl` from `now`; false if it is not the holder.
    pub fn extend(&mut self, owner: Owner, ttl: LockTtl, now: Timestamp) -> bool {
        let until = now.saturating_add(ttl.as_duration());
        match &mut self.held {
            Some(held) if held.owner == owner && held.until > now => {
                held.until = until;
                true
            }
            _ => false,
        }
    }

    /// Frees it; false if `owner` is not the holder.
    pub fn release(&mut self, owner: Owner, now: Timestamp) -> bool {
        let is_holder = self.holder(now).is_some_and(|held| held.owner == owner);
        if is_holder {
            self.held = None;
        }
        is_holder
    }

    /// Whether nobody holds it at `now`: then nothing needs to be stored of it but the last fence.
    #[must_use]
    pub fn is_free(&self, now: Timestamp) -> bool {
        self.holder(now).is_none()
    }

    fn holder(&self, now: Timestamp) -> Option<Held> {
        self.held.filter(|held| held.until > now)
    }
}
