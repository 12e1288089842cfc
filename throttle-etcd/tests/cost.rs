//! What decisions cost etcd: revisions and leases, counted on the server.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::str::FromStr;
use std::time::{Duration, Instant};

use common::own::Own;
use common::until;
use etcd_client::Client;
use futures_util::future::join_all;
use throttle_core::{Action, Clock, Decision, Policy, Quota, Rule, StoreBackend, SystemClock, storage_key};
use throttle_etcd::{EtcdBackend, expiry_slack};

async fn revision(client: &mut Client) -> i64 {
    client.get("nothing", None).await.unwrap().header().unwrap().revision()
}

async fn leases(client: &mut Client) -> usize {
    client.leases().await.unwrap().leases().len()
}

/// A window of an hour that does not end while the test runs.
fn hour() -> Policy {
    Policy::new("hour", [Rule::fixed_window(Quota::per_hour(1_000_000)).unwrap()]).unwrap()
}

async fn consume(backend: &EtcdBackend, policy: &Policy, key: &str) {
    assert_eq!(backend.decide(&Action::consume(policy, key)).await.unwrap().granted(), 1);
}

/// 1,000 hits in one window: one lease; a revision for each hit that comes alone, one for all that come together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o_86_a_thousand_hits_take_one_lease() {
    let own = Own::start(&[]).await;
    let (backend, mut client, policy) = (own.backend().await, own.client().await, hour());
    let before = revision(&mut client).await;
    for _ in 0..500 {
        consume(&backend, &policy, "key").await;
    }
    let alone = revision(&mut client).await - before;
    join_all((0..500).map(|_| consume(&backend, &policy, "key"))).await;
    let together = revision(&mut client).await - before - alone;
    // At the turn of the hour there is a second window, and a second lease.
    let turns = if micros_to_the_hour() < 10_000_000 { 1 } else { 0 };
    assert_eq!(alone, 500);
    assert!(together <= 2 + turns, "{together} revisions for 500 hits at once");
    assert!(leases(&mut client).await <= 1 + usize::try_from(turns).unwrap());
}

fn micros_to_the_hour() -> u64 {
    let hour = 3_600_000_000;
    let past = SystemClock.now().as_micros() % hour;
    past.min(hour - past)
}

/// How many transactions the server has carried out.
fn transactions(own: &Own) -> u32 {
    let mut server = TcpStream::connect(own.addresses().first().unwrap()).unwrap();
    server.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut metrics = String::new();
    server.read_to_string(&mut metrics).unwrap();
    let handled = metrics.lines().filter(|line| line.starts_with("grpc_server_handled_total"));
    let mut txns = handled.filter(|line| line.contains("grpc_code=\"OK\",grpc_method=\"Txn\""));
    txns.next().and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap()
}

/// Twenty keys go in one transaction. What another process did to one of them costs a second one, for that key: the others
/// are stored by the first. The first surprise alone costs them a transaction in which nothing was stored.
#[tokio::test]
async fn a_conflict_costs_one_transaction_more_for_its_key_alone() {
    let own = Own::start(&[]).await;
    let (backend, other, mut client) = (own.backend().await, own.backend().await, own.client().await);
    let policy = hour();
    let keys: Vec<_> = (0..20).map(|nth| format!("key-{nth}")).collect();
    let all: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
    let mut taken = async || {
        let (txns, before) = (transactions(&own), revision(&mut client).await);
        assert!(
            backend.decide_many(&all).await.iter().all(|outcome| outcome.as_ref().unwrap().granted() == 1)
        );
        (transactions(&own) - txns, revision(&mut client).await - before)
    };
    taken().await;
    assert_eq!(taken().await, (1, 1));
    consume(&other, &policy, "key-7").await;
    assert_eq!(taken().await, (3, 2));
    consume(&other, &policy, "key-8").await;
    assert_eq!(taken().await, (3, 3), "for a while, key-7 goes by itself");
    // Later, all are compared together again. What is surprising then costs the others nothing.
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(taken().await, (1, 1));
    consume(&other, &policy, "key-9").await;
    assert_eq!(taken().await, (2, 2));
}

/// What is denied, peeked at or hopeless costs no revision and no lease.
#[tokio::test]
async fn what_changes_nothing_costs_nothing() {
    let own = Own::start(&[]).await;
    let (backend, mut client) = (own.backend().await, own.client().await);
    let policy = Policy::new("p", [Rule::from_str("fixed_window 1/h").unwrap()]).unwrap();
    consume(&backend, &policy, "key").await;
    let before = revision(&mut client).await;
    for _ in 0..100 {
        // At the turn of the hour one of them is admitted.
        backend.decide(&Action::consume(&policy, "key")).await.unwrap();
        backend.decide(&Action::peek(&policy, "other")).await.unwrap();
    }
    let spent = revision(&mut client).await - before;
    assert!(spent <= i64::from(micros_to_the_hour() < 10_000_000), "{spent} revisions");
    assert!(leases(&mut client).await <= 2);
}

/// Many keys share leases: as many as there are slots in a time to live, however many keys there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_shared_by_slot_and_keys_by_transaction() {
    let own = Own::start(&[]).await;
    let (backend, mut client) = (own.backend().await, own.client().await);
    let policy = Policy::new("p", [Rule::from_str("sliding_window_log 1000/m").unwrap()]).unwrap();
    let keys: Vec<_> = (0..1_000).map(|key| key.to_string()).collect();
    let before = revision(&mut client).await;
    let since = Instant::now();
    let mut rounds = 0;
    while since.elapsed() < Duration::from_secs(6) {
        let batch: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
        assert!(backend.decide_many(&batch).await.into_iter().all(|outcome| outcome.unwrap().granted() == 1));
        rounds += 1;
    }
    let transactions = revision(&mut client).await - before;
    assert!(transactions <= rounds * 8, "{transactions} for {rounds} times 1,000 keys, 127 in each");
    // Slots of 4 s, of which six seconds and what is granted ahead meet four at most.
    let leases = leases(&mut client).await;
    assert!(leases <= 4, "{leases} leases");
}

/// Keys that go together take one revision, and one that another process has changed of late a revision of its own. All
/// are decided every time.
#[tokio::test]
async fn a_key_in_conflict_fails_nobody_that_goes_with_it() {
    let own = Own::start(&[]).await;
    let (one, other, mut client) = (own.backend().await, own.backend().await, own.client().await);
    let policy = hour();
    let batch = ["a", "b", "c"].map(|key| Action::consume(&policy, key));
    for (round, revisions) in [(0, 1), (1, 2), (2, 2), (3, 2)] {
        let (before, is_disturbed) = (revision(&mut client).await, round == 1 || round == 2);
        if is_disturbed {
            consume(&other, &policy, "b").await;
        }
        for outcome in one.decide_many(&batch).await {
            assert_eq!(outcome.unwrap().granted(), 1, "round {round}");
        }
        let spent = revision(&mut client).await - before - i64::from(is_disturbed);
        assert!(spent <= revisions, "{spent} revisions in round {round}");
    }
    let look = Action::peek(&policy, "b").with_cost(0);
    let left = Decision::of(&look, &one.decide(&look).await.unwrap(), 0).remaining();
    assert!(left == 1_000_000 - 6 || micros_to_the_hour() < 10_000_000, "{left} left");
}

/// What a process leaves when it dies goes by itself, leases and all.
#[tokio::test]
async fn nothing_is_left_of_a_process_that_died() {
    let own = Own::start(&[]).await;
    let (backend, mut client) = (own.backend().await, own.client().await);
    let policy = Policy::new("p", [Rule::from_str("gcra 10/s burst 10").unwrap()]).unwrap();
    for _ in 0..30 {
        let _ = backend.decide(&Action::consume(&policy, "key")).await.unwrap();
    }
    drop(backend);
    assert!(leases(&mut client).await > 0);
    let ttl = Duration::from_secs(2);
    until("expiry", ttl + expiry_slack(ttl) + Duration::from_secs(2), async || {
        leases(&mut client).await == 0
            && client.get(storage_key("throttle", policy.name(), "key"), None).await.unwrap().kvs().is_empty()
    })
    .await;
}

/// The leases of one process for one slot: one, though many ask for it at once and give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_leave_no_lease_behind() {
    let own = Own::start(&[]).await;
    let (backend, mut client, policy) = (own.backend().await, own.client().await, hour());
    for nth in 0..50_u64 {
        let key = nth.to_string();
        let call = async { backend.decide(&Action::consume(&policy, &key)).await };
        let _ = tokio::time::timeout(Duration::from_micros(nth * 40), call).await;
    }
    consume(&backend, &policy, "key").await;
    let status = client.leases().await.unwrap();
    let ids: HashSet<_> = status.leases().iter().map(etcd_client::LeaseStatus::id).collect();
    assert!(ids.len() <= 1 + usize::from(micros_to_the_hour() < 10_000_000), "{ids:?}");
    let key = client.get(storage_key("throttle", policy.name(), "key"), None).await.unwrap();
    assert!(ids.contains(&key.kvs()[0].lease()));
}
