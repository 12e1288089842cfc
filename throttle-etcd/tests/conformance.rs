//! The suite of all backends, on a cluster of three.

mod common;

use std::process::ExitCode;

use throttle_etcd::{EtcdBackend, expiry_slack};
use throttle_testkit::Conformance;

fn main() -> ExitCode {
    Conformance::of("etcd", || async { Ok(EtcdBackend::connect(common::config("conformance")?).await?) })
        .requires(common::URL)
        .keeps_longer(expiry_slack)
        .counts(|_, policy| async move { common::count_keys("conformance", &policy).await })
        .times_to_live(
            |_, policy, key| async move { common::time_to_live("conformance", &policy, &key).await },
        )
        .run()
}
