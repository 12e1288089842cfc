//! The suite on the embedded store, and on what stands in front of remote ones.

use std::process::ExitCode;

use throttle_core::GroupCommit;
use throttle_memory::MemoryBackend;
use throttle_testkit::Conformance;

fn main() -> ExitCode {
    let group = Conformance::of("group-memory", || async { Ok(GroupCommit::new(MemoryBackend::default())) });
    let suite = Conformance::of("memory", || async { Ok(MemoryBackend::default()) })
        .counts(|memory, policy| async move { Ok(memory.keys_of(&policy).try_into()?) })
        .with_locks()
        .and(group.with_locks());
    with_caches(suite).run()
}

#[cfg(feature = "cache")]
fn with_caches(suite: Conformance<MemoryBackend>) -> Conformance<MemoryBackend> {
    use throttle_memory::{DenyCache, Leased};

    let memory = MemoryBackend::default;
    let grouped = move || DenyCache::new(GroupCommit::new(memory()));
    suite
        .and(Conformance::of("deny-memory", move || async move { Ok(DenyCache::new(memory())) }))
        .and(Conformance::of("deny-group-memory", move || async move { Ok(grouped()) }))
        .and(Conformance::of("leased-memory", move || async move { Ok(Leased::new(memory())) }))
        .and(
            Conformance::of("leased-deny-memory", move || async move {
                Ok(Leased::new(DenyCache::new(memory())))
            })
            .with_locks(),
        )
}

#[cfg(not(feature = "cache"))]
fn with_caches(suite: Conformance<MemoryBackend>) -> Conformance<MemoryBackend> {
    suite
}
