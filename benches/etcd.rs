//! Decisions on etcd, against a plain loop of get and compare-and-swap through the same client.
//!
//! Takes the cluster that `THROTTLE_TEST_ETCD_URL` names: `cargo xtask services up etcd`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::float_arithmetic,
    clippy::cast_precision_loss,
    reason = "a bench"
)]

use std::time::{Duration, Instant};

use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use futures_util::future::join_all;
use throttle_bench::race;
use throttle_core::kernel::{PolicyState, decide};
use throttle_core::{Action, Clock, Policy, Quota, Rule, StoreBackend, SystemClock, storage_key};
use throttle_etcd::{EtcdBackend, EtcdConfig};
use tokio::runtime::Runtime;

const URL: &str = "THROTTLE_TEST_ETCD_URL";
const CALLERS: usize = 64;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1_500);

fn main() {
    let url = std::env::var(URL).unwrap_or_else(|_| panic!("{URL} is not set"));
    let runtime = Runtime::new().unwrap();
    let policy = policy();
    let ours = runtime.block_on(connect(&url));
    let plain = runtime.block_on(Plain::connect(&url));
    for (name, callers, keys) in
        [("etcd_lone", 1, 1), ("etcd_hot_64", CALLERS, 1), ("etcd_1000_keys_64", CALLERS, 1_000)]
    {
        let keys: Vec<String> = (0..keys).map(|key| format!("{name}-{key}")).collect();
        race(
            name,
            ROUNDS,
            || {
                rate(&runtime, callers, async |caller, nth| {
                    let key = pick(&keys, caller, nth);
                    ours.decide(&Action::consume(&policy, key)).await.unwrap();
                })
            },
            || rate(&runtime, callers, async |caller, nth| plain.decide(pick(&keys, caller, nth)).await),
        );
    }
}

fn policy() -> Policy {
    Policy::new("bench", [Rule::fixed_window(Quota::per_day(1_000_000_000)).unwrap()]).unwrap()
}

/// Each caller goes its own way through the keys.
fn pick(keys: &[String], caller: usize, nth: usize) -> &str {
    &keys[(caller * 7_919 + nth * 31) % keys.len()]
}

async fn connect(url: &str) -> EtcdBackend {
    let config = EtcdConfig::new(url).unwrap().prefix("bench-ours").unwrap();
    EtcdBackend::connect(config.response_deadline(Duration::from_secs(5)).unwrap()).await.unwrap()
}

/// Decisions per second of callers that ask over and over for a while.
fn rate(runtime: &Runtime, callers: usize, ask: impl AsyncFn(usize, usize)) -> f64 {
    let start = Instant::now();
    let asked = runtime.block_on(join_all((0..callers).map(async |caller| {
        let mut nth = 0;
        while start.elapsed() < ROUND {
            ask(caller, nth).await;
            nth += 1;
        }
        nth
    })));
    asked.into_iter().sum::<usize>() as f64 / start.elapsed().as_secs_f64()
}

/// What one writes first: get, decide, put if nobody else has, and again if somebody has.
struct Plain {
    client: Client,
    policy: Policy,
}

impl Plain {
    async fn connect(url: &str) -> Self {
        let members: Vec<_> = url.trim_start_matches("etcd://").split(',').take(1).collect();
        Self { client: Client::connect(members, None).await.unwrap(), policy: policy() }
    }

    async fn decide(&self, key: &str) {
        let action = Action::consume(&self.policy, key);
        let name = storage_key("bench-plain", self.policy.name(), key);
        while !self.try_decide(&action, &name).await {}
    }

    async fn try_decide(&self, action: &Action<'_>, name: &str) -> bool {
        let mut kv = self.client.kv_client();
        let read = kv.get(name, None).await.unwrap();
        let (revision, mut state) = match read.kvs() {
            [pair, ..] => (pair.mod_revision(), PolicyState::from_bytes(pair.value()).unwrap()),
            [] => (0, PolicyState::fresh(&self.policy)),
        };
        decide(action, SystemClock.now(), &mut state);
        let txn = Txn::new()
            .when([Compare::mod_revision(name, CompareOp::Equal, revision)])
            .and_then([TxnOp::put(name, state.to_bytes(), None)]);
        kv.txn(txn).await.unwrap().succeeded()
    }
}
