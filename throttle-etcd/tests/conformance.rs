//! The suite of all backends, on a cluster of three.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use throttle_core::StoreBackend;
use throttle_etcd::{EtcdBackend, expiry_slack};
use throttle_memory::{DenyCache, Leased};
use throttle_testkit::Conformance;

/// Leases have whole seconds, and 2 s are the fewest.
const LOCK_TTL: Duration = Duration::from_secs(2);
const LOCK_LAG: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    Conformance::of("etcd", || async { Ok(EtcdBackend::connect(common::config("conformance")?).await?) })
        .requires(common::URL)
        .keeps_longer(expiry_slack)
        .counts(|_, policy| async move { common::count_keys("conformance", &policy).await })
        .times_to_live(
            |_, policy, key| async move { common::time_to_live("conformance", &policy, &key).await },
        )
        .with_locks()
        .lock_times(LOCK_TTL, LOCK_LAG)
        .across_processes()
        .and(behind("etcd-deny", DenyCache::new))
        .and(behind("etcd-leased", Leased::new))
        .run()
}

/// What stands in front of a cluster must not be noticed. Fewer cases: each decision is written to three disks.
fn behind<B: StoreBackend>(name: &'static str, front: fn(EtcdBackend) -> B) -> Conformance<B> {
    Conformance::of(
        name,
        move || async move { Ok(front(EtcdBackend::connect(common::config(name)?).await?)) },
    )
    .requires(common::URL)
    .cases(16)
}
