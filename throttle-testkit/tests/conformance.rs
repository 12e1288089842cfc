//! The suite on the reference, bare and under control without faults, and on a backend whose states expire.

use std::process::ExitCode;

use throttle_testkit::{Conformance, FaultyBackend, ReferenceBackend};

mod common;

fn main() -> ExitCode {
    Conformance::of("reference", || async { Ok(ReferenceBackend::default()) })
        .and(Conformance::of("faulty", || async { Ok(FaultyBackend::new(ReferenceBackend::default())) }))
        .and(common::suite("expiring", common::Mistake::None))
        .run()
}
