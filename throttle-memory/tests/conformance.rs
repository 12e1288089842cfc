//! The suite on the embedded store.

use std::process::ExitCode;

use throttle_core::GroupCommit;
use throttle_memory::MemoryBackend;
use throttle_testkit::Conformance;

fn main() -> ExitCode {
    Conformance::of("memory", || async { Ok(MemoryBackend::default()) })
        .counts(|memory, policy| async move { Ok(memory.keys_of(&policy).try_into()?) })
        .and(Conformance::of("group-memory", || async { Ok(GroupCommit::new(MemoryBackend::default())) }))
        .run()
}
