//! Public bugs of the field, as cases with the right value: any rate limiter may have them.
//!
//! The numbers are those of the catalogue of cases in the project's references; each name starts with its id.

mod arithmetic;
mod configuration;
mod cost;
mod peers;
mod remaining;
mod windows;

use std::sync::Arc;

use throttle_core::StoreBackend;

use super::group::Case;
use super::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    let subjects = [
        arithmetic::cases,
        configuration::cases,
        cost::cases,
        peers::cases,
        remaining::cases,
        windows::cases,
    ];
    subjects.into_iter().flat_map(|subject| subject(variant)).collect()
}
