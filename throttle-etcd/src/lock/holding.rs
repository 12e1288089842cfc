//! [`Holding`]: who holds a lock, and how etcd shows it.

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetResponse, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use throttle_core::lock::{Fence, Owner};
use throttle_core::{CasError, DataError};

use super::LockError;
use crate::EtcdError;
use crate::store::Revision;

/// The version of the stored form.
const FORM: u8 = 1;

/// Who holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) owner: Owner,
    /// For how many seconds the lease was asked for.
    pub(super) secs: i64,
    pub(super) fence: Fence,
    pub(super) version: Revision,
}

/// Who holds the lock, as a read of its key shows; none if it is free.
pub(super) fn holding(response: &GetResponse) -> Result<Option<Holding>, LockError> {
    response.kvs().first().map(Holding::of).transpose()
}

/// The same from a transaction that has stored nothing.
pub(super) fn conflicting(response: &TxnResponse) -> Result<Option<Holding>, LockError> {
    match response.op_responses().first() {
        Some(TxnOpResponse::Get(get)) => holding(get),
        _ => Err(CasError::Store(EtcdError::Answer("a conflict does not show the value"))),
    }
}

impl Holding {
    fn of(pair: &KeyValue) -> Result<Self, LockError> {
        let corrupt = CasError::Corrupt(DataError::Corrupt { reason: "the value is no lock" });
        let (owner, secs) = parse(pair.value()).ok_or(corrupt)?;
        let version = Revision { revision: pair.mod_revision(), lease: pair.lease() };
        Ok(Self { owner, secs, fence: fence(pair.create_revision()), version })
    }
}

/// Revisions of the cluster grow, and start at 1.
pub(super) fn fence(revision: i64) -> Fence {
    Fence::new(revision.unsigned_abs())
}

/// The form, 16 bytes of the owner, and 8 of the seconds.
pub(super) fn value(owner: Owner, secs: i64) -> Vec<u8> {
    let mut value = start(owner);
    value.extend(secs.to_be_bytes());
    value
}

/// What values of this owner start with.
fn start(owner: Owner) -> Vec<u8> {
    [&[FORM][..], &owner.as_u128().to_be_bytes()].concat()
}

fn parse(value: &[u8]) -> Option<(Owner, i64)> {
    let (owner, secs) = value.strip_prefix(&[FORM])?.split_first_chunk()?;
    Some((Owner::from_u128(u128::from_be_bytes(*owner)), i64::from_be_bytes(secs.try_into().ok()?)))
}

/// Removes the key if the lock is held by `owner`, for however many seconds: if its value is between the least and the
/// greatest that start with the owner. No number of seconds has 255 in its first byte.
pub(super) fn release(key: &str, owner: Owner) -> Txn {
    let (least, greatest) = (start(owner), [start(owner), vec![u8::MAX]].concat());
    let compares =
        [Compare::value(key, CompareOp::Greater, least), Compare::value(key, CompareOp::Less, greatest)];
    Txn::new().when(compares).and_then([TxnOp::delete(key, Some(DeleteOptions::new().with_prev_key()))])
}

/// The lease of the key that a [`release`] has removed.
pub(super) fn freed_lease(response: &TxnResponse) -> Option<i64> {
    match response.op_responses().first() {
        Some(TxnOpResponse::Delete(removed)) => removed.prev_kvs().first().map(KeyValue::lease),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_is_read_as_it_was_written_and_nothing_else_is() {
        let owner = Owner::from_u128(u128::MAX - 1);
        for secs in [1, 30, 365 * 24 * 3_600] {
            let value = value(owner, secs);
            assert_eq!(parse(&value), Some((owner, secs)));
            for wrong in [&value[1..], &value[..24], &[&value[..], &[0]].concat(), &[2], &[]] {
                assert_eq!(parse(wrong), None);
            }
        }
    }

    #[test]
    fn an_owner_has_its_own_values_between_its_bounds() {
        let owners = [0, 1, 255, 256, u128::MAX - 1, u128::MAX].map(Owner::from_u128);
        for owner in owners {
            let (least, greatest) = (start(owner), [start(owner), vec![u8::MAX]].concat());
            for other in owners {
                for secs in [0, 1, i64::MAX] {
                    let value = value(other, secs);
                    assert_eq!(least < value && value < greatest, owner == other, "{owner:?} {other:?}");
                }
            }
        }
    }
}
