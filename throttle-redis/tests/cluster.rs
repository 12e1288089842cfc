//! Keys that move from one node of a cluster to another while they are used.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::own::Own;
use throttle_core::{Action, BaseErrorSet, Policy, Rule, StoreBackend, storage_key};
use throttle_redis::{RedisBackend, RedisConfig};

/// Nodes that have met, with these slots each.
async fn nodes<const N: usize>(slots: [&str; N]) -> [Own; N] {
    let mut nodes = Vec::new();
    for slots in slots {
        let node = Own::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]).await;
        if !slots.is_empty() {
            let _: () = node.ask(&format!("CLUSTER ADDSLOTSRANGE {slots}")).await;
        }
        nodes.push(node);
    }
    for node in &nodes[1..] {
        let _: () = nodes[0].ask(&format!("CLUSTER MEET 127.0.0.1 {}", node.port)).await;
    }
    let complete = ["cluster_state:ok", &format!("cluster_known_nodes:{N}"), "cluster_slots_assigned:16384"];
    for node in &nodes {
        until("a complete cluster", async || {
            let info: String = node.ask("CLUSTER INFO").await;
            complete.iter().all(|line| info.contains(line))
        })
        .await;
    }
    nodes.try_into().ok().unwrap()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < Duration::from_secs(30), "{what} takes too long");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_primary_that_dies_is_replaced() {
    let [mut dies, other, _third, replica] = nodes(["0 5460", "5461 10922", "10923 16383", ""]).await;
    let id: String = dies.ask("CLUSTER MYID").await;
    let _: () = replica.ask(&format!("CLUSTER REPLICATE {id}")).await;
    until("replication", async || {
        replica.ask::<String>("INFO replication").await.contains("master_link_status:up")
    })
    .await;
    let backend = RedisBackend::connect(
        RedisConfig::new(&format!("redis+cluster://127.0.0.1:{}", other.port)).unwrap(),
    )
    .await
    .unwrap();
    let policy = Policy::new("p", [Rule::fixed_window("100000 per 24h").unwrap()]).unwrap();
    let keys: Vec<_> = (0..20).map(|key| key.to_string()).collect();
    let actions: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
    assert!(backend.decide_many(&actions).await.iter().all(Result::is_ok));

    dies.kill();
    let killed = Instant::now();
    until("promotion", async || replica.ask::<String>("INFO replication").await.contains("role:master"))
        .await;
    let promoted = killed.elapsed();
    until("recovery", async || {
        let outcomes = backend.decide_many(&actions).await;
        let errors = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        errors.inspect(|error| assert!(error.kind().is_transient(), "{error:?}")).count() == 0
    })
    .await;
    let back = killed.elapsed();
    assert!(back < promoted + Duration::from_secs(3), "promoted after {promoted:?}, back after {back:?}");
}

#[tokio::test]
async fn keys_are_followed_where_they_move() {
    let [from, to] = nodes(["0 16383", ""]).await;
    let config = RedisConfig::new(&format!("redis+cluster://127.0.0.1:{}", from.port)).unwrap();
    let backend =
        RedisBackend::connect(config.response_deadline(Duration::from_secs(5)).unwrap()).await.unwrap();
    let policy = Policy::new("p", [Rule::fixed_window("10 per 24h").unwrap()]).unwrap();
    let left = async |key: &str| {
        let actions = [Action::peek(&policy, key), Action::consume(&policy, key)];
        for outcome in backend.decide_many(&actions).await {
            assert_eq!(outcome.unwrap().granted(), 1, "{key}");
        }
        let peek = Action::peek(&policy, key);
        throttle_core::Decision::of(&peek, &backend.decide(&peek).await.unwrap(), 0).remaining()
    };
    let [old, new] = ["{x}old", "{x}new"];
    assert_eq!(left(old).await, 9);

    let name = storage_key("throttle", policy.name(), old);
    let slot: u16 = from.ask(&format!("CLUSTER KEYSLOT {name}")).await;
    let [from_id, to_id]: [String; 2] = [from.ask("CLUSTER MYID").await, to.ask("CLUSTER MYID").await];
    let _: () = to.ask(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}")).await;
    let _: () = from.ask(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}")).await;
    assert_eq!((left(old).await, left(new).await), (8, 9), "one is still there, the other is asked for");

    let _: () = from.ask(&format!("MIGRATE 127.0.0.1 {} {name} 0 5000", to.port)).await;
    assert_eq!((left(old).await, left(new).await), (7, 8), "both are asked for");

    for node in [&to, &from] {
        let _: () = node.ask(&format!("CLUSTER SETSLOT {slot} NODE {to_id}")).await;
    }
    assert_eq!((left(old).await, left(new).await), (6, 7), "both have moved");
    assert_eq!(from.ask::<i64>("DBSIZE").await, 0);
    assert_eq!(backend.reset_policy(policy.name()).await.unwrap(), 2);
}
