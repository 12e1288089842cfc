//! Locks: the obligations of a [`LockBackend`], on any of them.

mod contention;
mod expiry;
mod faults;
mod guards;
mod history;
mod holding;
mod linear;
mod names;
mod subject;
mod waiting;

use std::sync::Arc;

use throttle_core::LockBackend;

use super::group::Case;
use super::variant::Variant;

pub(super) fn cases<B: LockBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    let groups = [
        holding::cases,
        expiry::cases,
        names::cases,
        faults::cases,
        contention::cases,
        guards::cases,
        waiting::cases,
        history::cases,
    ];
    groups.into_iter().flat_map(|group| group(variant)).collect()
}
