//! The suite on the reference, bare and under control without faults.

use std::process::ExitCode;

use throttle_testkit::{Conformance, FaultyBackend, ReferenceBackend};

fn main() -> ExitCode {
    let faulty = Conformance::of("faulty", || async { Ok(FaultyBackend::new(ReferenceBackend::default())) });
    Conformance::of("reference", || async { Ok(ReferenceBackend::default()) })
        .with_locks()
        .and(faulty.with_locks())
        .run()
}
