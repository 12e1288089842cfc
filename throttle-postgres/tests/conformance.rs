//! The suite of all backends, on each way to reach a server.

mod common;

use std::process::ExitCode;

use throttle_core::{GroupCommit, LockBackend, StoreBackend};
use throttle_memory::{DenyCache, Leased};
use throttle_postgres::PostgresBackend;
use throttle_testkit::Conformance;

use common::{POOLER, SERVER};

fn main() -> ExitCode {
    suite("postgres", SERVER, |backend| backend)
        .and(suite("postgres-serializable", SERVER, |backend| backend))
        .and(suite("postgres-grouped", SERVER, GroupCommit::new))
        .and(suite("pgbouncer", POOLER, |backend| backend))
        .and(behind("postgres-deny", DenyCache::new))
        .and(behind("postgres-leased", Leased::new))
        .run()
}

/// What stands in front of a server must not be noticed. Fewer cases: each decision is written to a disk.
fn behind<B: StoreBackend>(name: &'static str, front: fn(PostgresBackend) -> B) -> Conformance<B> {
    Conformance::of(name, move || async move { Ok(front(common::suite_backend(SERVER, name).await?)) })
        .requires(SERVER)
        .cases(16)
}

fn suite<B: LockBackend>(
    name: &'static str,
    variable: &'static str,
    wrap: fn(PostgresBackend) -> B,
) -> Conformance<B> {
    Conformance::of(name, move || async move { Ok(wrap(common::suite_backend(variable, name).await?)) })
        .requires(variable)
        .counts(move |_, policy| async move { common::count_keys(variable, name, &policy).await })
        .times_to_live(move |_, policy, key| async move {
            common::time_to_live(variable, name, &policy, &key).await
        })
        .with_locks()
        .across_processes()
}
