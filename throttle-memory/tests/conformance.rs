//! The suite on the embedded store.

use std::process::ExitCode;

use throttle_core::GroupCommit;
use throttle_memory::MemoryBackend;
use throttle_testkit::Conformance;

fn main() -> ExitCode {
    let group = Conformance::of("group-memory", || async { Ok(GroupCommit::new(MemoryBackend::default())) });
    Conformance::of("memory", || async { Ok(MemoryBackend::default()) })
        .counts(|memory, policy| async move { Ok(memory.keys_of(&policy).try_into()?) })
        .with_locks()
        .and(group.with_locks())
        .run()
}
