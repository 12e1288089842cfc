//! The suite on the decorators of this crate: each alone, and one on the other.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use throttle_core::{CasBackend, GroupCommit, LockBackend, PolicyName, storage_key, storage_prefix};
use throttle_testkit::{Conformance, ReferenceBackend};

use self::support::StubStore;

fn main() -> ExitCode {
    let (cas, both) = (StubStore::default(), StubStore::default());
    cas.yield_times(1);
    both.yield_times(1);
    let reference = Conformance::of("group-reference", || async {
        Ok(GroupCommit::new(ReferenceBackend::default()).with_max_batch(8))
    })
    .with_locks();
    // 400 callers on one key meet all the time: on a busy machine, the usual second may not be enough for them.
    let patient = |store| CasBackend::new(store).with_deadline(Duration::from_secs(30));
    on_stub("cas-stub", cas, patient)
        .and(on_stub("group-cas-stub", both, |store| GroupCommit::new(CasBackend::new(store))))
        .and(reference)
        .run()
}

fn on_stub<B: LockBackend>(
    name: &str,
    store: StubStore,
    wrap: impl Fn(StubStore) -> B + Send + Sync + 'static,
) -> Conformance<B> {
    let (connected, counted, timed, passed) = (store.clone(), store.clone(), store.clone(), store);
    Conformance::of(name, move || {
        let backend = wrap(connected.clone());
        async { Ok(backend) }
    })
    .counts(move |_: Arc<B>, policy: PolicyName| {
        let keys = counted.keys();
        async move {
            let prefix = storage_prefix("throttle", &policy);
            Ok(keys.iter().filter(|key| key.starts_with(&prefix)).count().try_into()?)
        }
    })
    .times_to_live(move |_: Arc<B>, policy: PolicyName, key: String| {
        let left = timed.time_to_live(&storage_key("throttle", &policy, &key));
        async move { Ok(left) }
    })
    .lets_time_pass(move |_: Arc<B>, span: Duration| {
        passed.pass(span);
        async {}
    })
    .with_locks()
}
