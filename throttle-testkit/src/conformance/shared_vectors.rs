//! The shared vectors, in parts: 400 lives of keys with the answers of an independent oracle.

use std::sync::Arc;

use throttle_core::StoreBackend;

use super::check::{Checked, ensure};
use super::group::{Case, Group};
use super::lab::Lab;
use super::variant::Variant;
use crate::vectors::{SHARED, Vectors};

const PARTS: usize = 8;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    let group = Group::new(variant, "vectors");
    let parts = (0..PARTS).map(|part| (format!("part_{}_of_{PARTS}", part + 1), part));
    parts.fold(group, |group, (name, part)| group.trial(name, move |lab| one_part(lab, part))).into_cases()
}

/// Obligation 2.
async fn one_part<B: StoreBackend>(lab: Lab<B>, part: usize) -> Checked {
    let report = Vectors::parse(SHARED)?.part(part, PARTS).run(&lab.store()).await;
    ensure(report.failed() == 0 && report.passed() > 0, || format!("\n{report}"))
}
