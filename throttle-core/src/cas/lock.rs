//! Locks by compare-and-swap.
//!
//! A lock is two keys. The value of one says who holds it; it expires with the lock, so that the store alone says when
//! it is free. The other has the last number, and outlives the lock. An acquisition takes the first key, then the next
//! number, and then writes the number into the first key: who has lost the lock meanwhile finds it changed. So numbers
//! are taken by present holders, one after the other. Who asks again for a lock that it is taking already goes on from
//! there; a mark that each taking has of its own tells it from an earlier and a later one.

use std::time::Duration;

use super::patience::Tries;
use super::{CasBackend, CasError, CasOutcome, CasStore, Exchange, Versioned};
use crate::lock::{Acquisition, Fence, LockTtl, Owner};
use crate::{Clock, DataError, LockBackend, WallClock, lock_key};

/// The version of the stored form.
const FORM: u8 = 1;

/// For how long the last number is kept after the last acquisition. From then on time alone makes numbers grow, so it is
/// longer than clocks are apart.
const NUMBER_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// For how long a lock that was released is stored as free: a store can exchange on condition, not remove.
const FREE_KEPT: Duration = Duration::from_secs(1);

/// Who holds a lock, as its key says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Nobody,
    Owner(Holding),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holding {
    owner: Owner,
    /// Which taking of the lock it is.
    mark: u64,
    /// None while it is being taken.
    fence: Option<Fence>,
}

/// A key, and what this call knows of it.
struct Slot<V> {
    key: String,
    version: Option<V>,
    holder: Holder,
}

/// What came of one exchange.
enum Swap {
    Done,
    /// The key had changed; what it is now is known.
    Lost,
}

impl<V> Slot<V> {
    /// As long as nobody has looked, a lock is taken to be free.
    fn unseen(key: String) -> Self {
        Self { key, version: None, holder: Holder::Nobody }
    }

    fn see<E: crate::BaseErrorSet>(&mut self, current: Option<Versioned<V>>) -> Result<(), CasError<E>> {
        (self.version, self.holder) = match current {
            Some(Versioned { version, value }) => {
                (Some(version), Holder::from_bytes(&value).map_err(CasError::Corrupt)?)
            }
            None => (None, Holder::Nobody),
        };
        Ok(())
    }

    fn holding_of(&self, owner: Owner) -> Option<Holding> {
        match self.holder {
            Holder::Owner(holding) if holding.owner == owner => Some(holding),
            _ => None,
        }
    }
}

impl<S: CasStore> CasBackend<S> {
    async fn look(&self, slot: &mut Slot<S::Version>) -> Result<(), CasError<S::BaseError>> {
        slot.see(self.store.get(&slot.key).await.map_err(CasError::Store)?)
    }

    /// Stores that `holder` has it, unless the key has changed since it was seen.
    async fn swap(
        &self,
        slot: &mut Slot<S::Version>,
        holder: Holder,
        ttl: Duration,
    ) -> Result<Swap, CasError<S::BaseError>> {
        let (value, expected) = (holder.to_bytes(), slot.version.as_ref());
        let exchange = Exchange { key: &slot.key, expected, value: &value, ttl };
        match self.store.compare_exchange(&exchange).await.map_err(CasError::Store)? {
            CasOutcome::Stored(version) => {
                (slot.version, slot.holder) = (Some(version), holder);
                return Ok(Swap::Done);
            }
            CasOutcome::Conflict(current) => slot.see(current)?,
            CasOutcome::UnseenConflict => self.look(slot).await?,
        }
        Ok(Swap::Lost)
    }

    /// Makes `owner` the holder, with or without a number; none if another one is.
    async fn claim(
        &self,
        slot: &mut Slot<S::Version>,
        owner: Owner,
        ttl: LockTtl,
        tries: &mut Tries<'_>,
    ) -> Result<Option<Holding>, CasError<S::BaseError>> {
        loop {
            let claimed = match slot.holder {
                Holder::Nobody => Holding { owner, mark: rand::random(), fence: None },
                Holder::Owner(own) if own.owner == owner && own.fence.is_none() => return Ok(Some(own)),
                Holder::Owner(own) if own.owner == owner => own,
                Holder::Owner(_) => return Ok(None),
            };
            if let Swap::Done = self.swap(slot, Holder::Owner(claimed), ttl.as_duration()).await? {
                return Ok(Some(claimed));
            }
            if !tries.again().await {
                return Err(CasError::Contended);
            }
        }
    }

    /// A number above all that were given out for `name`.
    async fn next_fence(&self, name: &str, tries: &mut Tries<'_>) -> Result<Fence, CasError<S::BaseError>> {
        let key = lock_key(&self.prefix, "fence", name);
        let mut current = self.store.get(&key).await.map_err(CasError::Store)?;
        loop {
            let last =
                current.as_ref().map(|last| number(&last.value)).transpose().map_err(CasError::Corrupt)?;
            let next = Fence::after(last, WallClock.now());
            let (value, expected) = (number_bytes(next), current.as_ref().map(|last| &last.version));
            let exchange = Exchange { key: &key, expected, value: &value, ttl: NUMBER_KEPT };
            current = match self.store.compare_exchange(&exchange).await.map_err(CasError::Store)? {
                CasOutcome::Stored(_) => return Ok(next),
                CasOutcome::Conflict(current) => current,
                CasOutcome::UnseenConflict => self.store.get(&key).await.map_err(CasError::Store)?,
            };
            if !tries.again().await {
                return Err(CasError::Contended);
            }
        }
    }

    /// Writes a number into a lock that was taken. Others who ask for the same owner may do so too: the first one does.
    async fn number(
        &self,
        slot: &mut Slot<S::Version>,
        name: &str,
        (claimed, ttl): (Holding, LockTtl),
        tries: &mut Tries<'_>,
    ) -> Result<Fence, CasError<S::BaseError>> {
        loop {
            let fence = self.next_fence(name, tries).await?;
            let numbered = Holder::Owner(Holding { fence: Some(fence), ..claimed });
            if let Swap::Done = self.swap(slot, numbered, ttl.as_duration()).await? {
                return Ok(fence);
            }
            match slot.holding_of(claimed.owner).filter(|holding| holding.mark == claimed.mark) {
                Some(Holding { fence: Some(fence), .. }) => return Ok(fence),
                Some(_) if tries.again().await => {}
                Some(_) => return Err(CasError::Contended),
                None => return Err(CasError::Lost),
            }
        }
    }

    /// Stores `holder` for `ttl` if `owner` holds the lock; whether it did.
    async fn replace(
        &self,
        name: &str,
        owner: Owner,
        holder: impl Fn(Holder) -> Holder,
        ttl: Duration,
    ) -> Result<bool, CasError<S::BaseError>> {
        let mut slot = Slot::unseen(lock_key(&self.prefix, "lock", name));
        let mut tries = self.patience.start();
        self.look(&mut slot).await?;
        while slot.holding_of(owner).is_some() {
            let next = holder(slot.holder);
            if let Swap::Done = self.swap(&mut slot, next, ttl).await? {
                return Ok(true);
            }
            if slot.holding_of(owner).is_some() && !tries.again().await {
                return Err(CasError::Contended);
            }
        }
        Ok(false)
    }
}

/// Four round trips for a lock that is free, one for one that is held; two to extend and to release.
impl<S: CasStore> LockBackend for CasBackend<S> {
    async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition, Self::BaseError> {
        let mut slot = Slot::unseen(lock_key(&self.prefix, "lock", name));
        let mut tries = self.patience.start();
        let Some(claimed) = self.claim(&mut slot, owner, ttl, &mut tries).await? else {
            return Ok(Acquisition::Busy { expires_in: None });
        };
        if let Some(fence) = claimed.fence {
            return Ok(Acquisition::Held(fence));
        }
        let numbered = self.number(&mut slot, name, (claimed, ttl), &mut tries).await;
        numbered.map(Acquisition::Held).map_err(|error| CasError::Halfway(Box::new(error)))
    }

    async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool, Self::BaseError> {
        self.replace(name, owner, |held| held, ttl.as_duration()).await
    }

    async fn release(&self, name: &str, owner: Owner) -> Result<bool, Self::BaseError> {
        self.replace(name, owner, |_| Holder::Nobody, FREE_KEPT).await
    }
}

impl Holder {
    /// The form, then for a holder 16 bytes of it, 8 of the mark, and 8 of the number if it has one.
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![FORM];
        if let Self::Owner(Holding { owner, mark, fence }) = self {
            bytes.extend(owner.as_u128().to_be_bytes());
            bytes.extend(mark.to_be_bytes());
            bytes.extend(fence.iter().flat_map(|fence| fence.get().to_be_bytes()));
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, DataError> {
        let read = match bytes.split_first() {
            Some((&FORM, [])) => Some(Self::Nobody),
            Some((&FORM, rest)) => Holding::from_bytes(rest).map(Self::Owner),
            _ => None,
        };
        read.ok_or(DataError::Corrupt { reason: "the value is no lock" })
    }
}

impl Holding {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (owner, rest) = bytes.split_first_chunk()?;
        let (mark, rest) = rest.split_first_chunk()?;
        let fence = match rest {
            [] => None,
            rest => Some(Fence::new(u64::from_be_bytes(rest.try_into().ok()?))),
        };
        let owner = Owner::from_u128(u128::from_be_bytes(*owner));
        Some(Self { owner, mark: u64::from_be_bytes(*mark), fence })
    }
}

fn number_bytes(fence: Fence) -> Vec<u8> {
    [&[FORM][..], &fence.get().to_be_bytes()].concat()
}

fn number(bytes: &[u8]) -> Result<Fence, DataError> {
    match bytes.split_first() {
        Some((&FORM, rest)) => {
            <[u8; 8]>::try_from(rest).ok().map(|rest| Fence::new(u64::from_be_bytes(rest)))
        }
        _ => None,
    }
    .ok_or(DataError::Corrupt { reason: "the value is no number of a lock" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_is_read_as_it_was_written_and_nothing_else_is() {
        let owner = Owner::from_u128(u128::MAX - 1);
        let taking = Holding { owner, mark: 7, fence: None };
        let taken = Holding { fence: Some(Fence::new(1 << 40)), ..taking };
        for holder in [Holder::Nobody, Holder::Owner(taking), Holder::Owner(taken)] {
            let bytes = holder.to_bytes();
            assert_eq!(Holder::from_bytes(&bytes), Ok(holder));
            for wrong in [&[2][..], &[], &[&bytes[..], &[0]].concat()] {
                Holder::from_bytes(wrong).unwrap_err();
            }
        }
        assert_eq!(number(&number_bytes(Fence::new(7))), Ok(Fence::new(7)));
        for wrong in [&[][..], &[1], &[2, 0, 0, 0, 0, 0, 0, 0, 7], &[1, 0, 0, 0, 0, 0, 0, 0, 7, 0]] {
            number(wrong).unwrap_err();
        }
    }
}
