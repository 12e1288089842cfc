//! Keys that move from one node of a cluster to another while they are used.

mod common;

use std::time::{Duration, Instant};

use common::own::Own;
use throttle_core::{Action, Policy, Rule, StoreBackend, storage_key};
use throttle_redis::{RedisBackend, RedisConfig};

/// Two nodes, the first of which has all slots.
async fn two_nodes() -> Option<[Own; 2]> {
    let first = Own::start(&["--cluster-enabled", "yes"]).await?;
    let second = Own::start(&["--cluster-enabled", "yes"]).await?;
    let _: () = first.ask("CLUSTER ADDSLOTSRANGE 0 16383").await;
    let _: () = first.ask(&format!("CLUSTER MEET 127.0.0.1 {}", second.port)).await;
    let since = Instant::now();
    for node in [&first, &second] {
        while !ready(node.ask("CLUSTER INFO").await) {
            assert!(since.elapsed() < Duration::from_secs(20), "the nodes do not meet");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Some([first, second])
}

fn ready(info: String) -> bool {
    ["cluster_state:ok", "cluster_known_nodes:2", "cluster_slots_assigned:16384"]
        .iter()
        .all(|line| info.contains(line))
}

#[tokio::test]
async fn keys_are_followed_where_they_move() {
    let Some([from, to]) = two_nodes().await else { return };
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
