//! The suite on the embedded store, and on what stands in front of remote ones.

use std::process::ExitCode;

use throttle_core::GroupCommit;
use throttle_memory::MemoryBackend;
use throttle_testkit::Conformance;

fn main() -> ExitCode {
    let group = Conformance::of("group-memory", || async { Ok(GroupCommit::new(MemoryBackend::default())) })
        .counts(|group, policy| async move { Ok(group.get_ref().keys_of(&policy).try_into()?) });
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
    let deny = Conformance::of("deny-memory", move || async move { Ok(DenyCache::new(memory())) })
        .counts(|deny, policy| async move { Ok(deny.get_ref().keys_of(&policy).try_into()?) });
    let deny_group = Conformance::of("deny-group-memory", move || async move { Ok(grouped()) })
        .counts(|deny, policy| async move { Ok(deny.get_ref().get_ref().keys_of(&policy).try_into()?) });
    let leased = Conformance::of("leased-memory", move || async move { Ok(Leased::new(memory())) });
    let both = move || async move { Ok(Leased::new(DenyCache::new(memory()))) };
    suite
        .and(deny.with_locks())
        .and(deny_group)
        .and(leased.with_locks())
        .and(Conformance::of("leased-deny-memory", both).with_locks())
}

#[cfg(not(feature = "cache"))]
fn with_caches(suite: Conformance<MemoryBackend>) -> Conformance<MemoryBackend> {
    suite
}
