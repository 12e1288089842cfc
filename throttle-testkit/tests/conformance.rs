//! The suite on the reference, bare and under control without faults.

use std::process::ExitCode;

use throttle_testkit::{Conformance, FaultyBackend, ReferenceBackend};

fn main() -> ExitCode {
    Conformance::of("reference", || async { Ok(ReferenceBackend::default()) })
        .and(Conformance::of("faulty", || async { Ok(FaultyBackend::new(ReferenceBackend::default())) }))
        .run()
}
