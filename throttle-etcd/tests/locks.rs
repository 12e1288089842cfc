//! What locks cost etcd, what they leave behind, and what disturbs them.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::own::Own;
use common::until;
use etcd_client::{Client, CompactionOptions};
use futures_util::future::join_all;
use throttle_core::lock::{Acquisition, Fence, Lock, LockTerms, LockTtl, Owner};
use throttle_core::{BaseErrorSet, Effect, ErrorKind, Guarded, LockBackend, LockStore, lock_key};
use throttle_etcd::EtcdBackend;

/// How late etcd may notice that a lease has ended.
const LAG: Duration = Duration::from_secs(1);

fn secs(secs: u64) -> LockTtl {
    LockTtl::new(Duration::from_secs(secs)).unwrap()
}

async fn take(backend: &EtcdBackend, name: &str, owner: Owner, ttl: u64) -> Option<Fence> {
    backend.acquire(name, owner, secs(ttl)).await.unwrap().fence()
}

async fn leases(client: &mut Client) -> usize {
    client.leases().await.unwrap().leases().len()
}

async fn revision(client: &mut Client) -> i64 {
    client.get("nothing", None).await.unwrap().header().unwrap().revision()
}

/// The lease that a lock is held with.
async fn lease_of(client: &mut Client, name: &str) -> i64 {
    client.get(lock_key("throttle", "lock", name), None).await.unwrap().kvs().first().unwrap().lease()
}

/// 1,000 attempts on a lock that is held: not one lease, and not one revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_attempts_in_vain_cost_no_lease_and_no_revision() {
    let own = Own::start(&[]).await;
    let (backend, mut client, owner) = (own.backend().await, own.client().await, Owner::random());
    take(&backend, "lock", owner, 600).await.unwrap();
    let before = revision(&mut client).await;
    for _ in 0..20 {
        let attempts = (0..50).map(|_| take(&backend, "lock", Owner::random(), 600));
        assert!(join_all(attempts).await.iter().all(Option::is_none));
    }
    assert_eq!((leases(&mut client).await, revision(&mut client).await - before), (1, 0));
    assert!(backend.release("lock", owner).await.unwrap());
    assert_eq!(leases(&mut client).await, 0);
}

/// 1,000 attempts on locks that are free, 25 at once on each: some grant a lease and then lose. None is left of those.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_loses_a_race_leaves_no_lease() {
    let own = Own::start(&[]).await;
    let (backend, mut client) = (own.backend().await, own.client().await);
    for round in 1..=40 {
        let name = format!("lock-{round}");
        let attempts = (0..25).map(|_| take(&backend, &name, Owner::random(), 600));
        assert_eq!(join_all(attempts).await.iter().flatten().count(), 1);
        assert_eq!(leases(&mut client).await, round, "one for each lock that is held");
    }
}

/// The table in the README.
#[tokio::test]
async fn a_lock_costs_one_revision_to_take_and_one_to_free() {
    let own = Own::start(&[]).await;
    let (backend, mut client, owner) = (own.backend().await, own.client().await, Owner::random());
    let mut last = revision(&mut client).await;
    let mut spent = async || {
        let now = revision(&mut client).await;
        now - std::mem::replace(&mut last, now)
    };
    take(&backend, "lock", owner, 30).await.unwrap();
    assert_eq!(spent().await, 1, "to take it");
    assert!(backend.extend("lock", owner, secs(30)).await.unwrap());
    take(&backend, "lock", owner, 30).await.unwrap();
    assert!(!backend.extend("lock", Owner::random(), secs(30)).await.unwrap());
    assert!(!backend.release("lock", Owner::random()).await.unwrap());
    assert_eq!(spent().await, 0, "to prolong it");
    assert!(backend.extend("lock", owner, secs(31)).await.unwrap());
    assert_eq!(spent().await, 1, "to prolong it by another time");
    assert!(backend.release("lock", owner).await.unwrap());
    assert_eq!(spent().await, 1, "to free it");
}

/// A holder has one lease, whatever it does, and keeps its fence.
#[tokio::test]
async fn another_time_to_live_takes_the_place_of_the_lease() {
    let own = Own::start(&[]).await;
    let (backend, mut client, owner) = (own.backend().await, own.client().await, Owner::random());
    let fence = take(&backend, "lock", owner, 600).await;
    let first = lease_of(&mut client, "lock").await;
    assert!(backend.extend("lock", owner, secs(600)).await.unwrap());
    assert_eq!(lease_of(&mut client, "lock").await, first);
    for ttl in [10, 900] {
        assert!(backend.extend("lock", owner, secs(ttl)).await.unwrap());
        let lease = lease_of(&mut client, "lock").await;
        let granted = client.lease_time_to_live(lease, None).await.unwrap().granted_ttl();
        assert_eq!((u64::try_from(granted).unwrap(), leases(&mut client).await), (ttl, 1));
    }
    assert_eq!(take(&backend, "lock", owner, 900).await, fence);
    assert_eq!(leases(&mut client).await, 1);
}

/// Calls that are dropped anywhere leave leases that end with their time, and no lock that their owner cannot free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_leave_nothing_for_longer_than_the_time_to_live() {
    let own = Own::start(&[]).await;
    let (backend, mut client) = (own.backend().await, own.client().await);
    for nth in 0..50 {
        let (name, patience) = (nth.to_string(), Duration::from_micros(nth * 200));
        let _ = tokio::time::timeout(patience, take(&backend, &name, Owner::random(), 2)).await;
    }
    until("the end of all leases", Duration::from_secs(2) + 4 * LAG, async || leases(&mut client).await == 0)
        .await;
    for nth in 0..50 {
        assert!(take(&backend, &nth.to_string(), Owner::random(), 2).await.is_some(), "{nth}");
    }
}

/// O-87: nothing is compacted that a waiter needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o_87_compaction_disturbs_no_waiter() {
    let own = Own::start(&[]).await;
    let (backend, mut client) = (own.backend().await, own.client().await);
    let lock = Lock::new(backend.clone(), "lock").with_terms(
        LockTerms::default().poll(Duration::from_millis(5)).unwrap().ttl(Duration::from_secs(3)).unwrap(),
    );
    let first = lock.try_acquire().await.unwrap().unwrap();
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire_within(Duration::from_secs(20)).await }
    });
    for _ in 0..40 {
        let now = client.put("other", "value", None).await.unwrap().header().unwrap().revision();
        client.compact(now, Some(CompactionOptions::new().with_physical())).await.unwrap();
    }
    assert!(first.is_valid() && !waits.is_finished());
    let before = first.fence();
    drop(first);
    let second = waits.await.unwrap().unwrap().unwrap();
    assert!(second.fence() > before);
    second.release().await.unwrap();
    assert_eq!(leases(&mut client).await, 0);
    let keys = client.get("throttle", Some(etcd_client::GetOptions::new().with_prefix())).await.unwrap();
    assert!(keys.kvs().is_empty(), "a waiter leaves no key behind");
}

/// The leader, and whichever member is asked, one after the other: the holder keeps the lock, and nobody else gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_each_member() {
    let mut own = Own::cluster(3, &[]).await;
    let backend = EtcdBackend::connect(own.config()).await.unwrap();
    let terms = LockTerms::default().ttl(Duration::from_secs(12)).unwrap();
    let lock = Lock::new(backend.clone(), "lock").with_terms(terms);
    let guard = lock.try_acquire().await.unwrap().unwrap();
    for member in 0..3 {
        own.kill(member);
        let killed = Instant::now();
        while killed.elapsed() < Duration::from_secs(6) {
            if let Ok(answer) = backend.acquire("lock", Owner::random(), secs(12)).await {
                assert!(matches!(answer, Acquisition::Busy { .. }), "two hold it");
            }
            assert!(guard.is_valid(), "it is lost {:?} after a member was", killed.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        own.restart(member);
        until("the member's return", Duration::from_secs(20), async || {
            own.leader().await.is_some()
                && tokio::net::TcpStream::connect(&own.addresses()[member]).await.is_ok()
        })
        .await;
    }
    let fence = guard.fence();
    guard.release().await.unwrap();
    let next = lock.acquire_within(Duration::from_secs(5)).await.unwrap().unwrap();
    assert!(next.fence() > fence);
}

/// A leader that hangs is deposed, and does not know it at first when it goes on. A holder who believes in its lock has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hangs_frees_no_lock() {
    let own = Own::cluster(3, &[]).await;
    let leader = own.leader().await.unwrap();
    let backend = EtcdBackend::connect(own.config()).await.unwrap();
    let terms = LockTerms::default().ttl(Duration::from_secs(8)).unwrap();
    let guard = Lock::new(backend.clone(), "lock").with_terms(terms).try_acquire().await.unwrap().unwrap();
    for _ in 0..3 {
        own.signal(leader, "-STOP");
        tokio::time::sleep(Duration::from_secs(3)).await;
        own.signal(leader, "-CONT");
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(3) {
            let was_valid = guard.is_valid();
            if let Ok(answer) = backend.acquire("lock", Owner::random(), secs(8)).await {
                assert!(!was_valid || !guard.is_valid() || answer.fence().is_none(), "two hold it");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(guard.is_valid());
}

/// O-88: somebody removes the key by hand. The holder is told, and what it says frees nobody else's lock.
#[tokio::test]
async fn o_88_a_lock_that_was_removed_by_hand_is_lost() {
    let own = Own::start(&[]).await;
    let (backend, mut client) = (own.backend().await, own.client().await);
    let (first, second) = (Owner::random(), Owner::random());
    let before = take(&backend, "lock", first, 2).await;
    client.delete(lock_key("throttle", "lock", "lock"), None).await.unwrap();
    assert!(!backend.extend("lock", first, secs(2)).await.unwrap());
    assert!(take(&backend, "lock", second, 600).await > before);
    assert!(!backend.extend("lock", first, secs(2)).await.unwrap());
    assert!(!backend.release("lock", first).await.unwrap());
    until("the end of the first lease", Duration::from_secs(2) + 4 * LAG, async || {
        leases(&mut client).await == 1
    })
    .await;
    assert!(take(&backend, "lock", second, 600).await.is_some());
}

/// Somebody revokes the lease: it is lost as well, and can be had again.
#[tokio::test]
async fn a_lock_whose_lease_was_revoked_is_lost() {
    let own = Own::start(&[]).await;
    let (backend, mut client, owner) = (own.backend().await, own.client().await, Owner::random());
    let first = take(&backend, "lock", owner, 600).await;
    let lease = lease_of(&mut client, "lock").await;
    client.lease_revoke(lease).await.unwrap();
    assert!(!backend.extend("lock", owner, secs(600)).await.unwrap());
    assert!(take(&backend, "lock", owner, 600).await > first);
}

/// What is no lock is said to be none, and left as it is.
#[tokio::test]
async fn a_value_that_is_no_lock_is_reported() {
    let own = Own::start(&[]).await;
    let (backend, mut client, owner) = (own.backend().await, own.client().await, Owner::random());
    let key = lock_key("throttle", "lock", "lock");
    client.put(key.as_str(), "something else", None).await.unwrap();
    let acquired = backend.acquire("lock", owner, secs(2)).await.map(|_| ());
    let extended = backend.extend("lock", owner, secs(2)).await.map(|_| ());
    for failed in [acquired, extended] {
        let error = failed.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::NotApplied));
    }
    assert!(!backend.release("lock", owner).await.unwrap());
    assert_eq!(client.get(key, None).await.unwrap().kvs()[0].value(), b"something else");
    assert_eq!(leases(&mut client).await, 0);
}

/// Where no member answers, that is told within the deadlines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_told_in_time_and_is_not_busy() {
    let mut own = Own::start(&[]).await;
    let backend = EtcdBackend::connect(own.config()).await.unwrap();
    let store = Arc::new(Guarded::new(backend));
    let owner = Owner::random();
    assert!(store.acquire("lock", owner, secs(30)).await.unwrap().fence().is_some());
    own.kill(0);
    let mut took = HashMap::new();
    for operation in ["acquire", "extend", "release"] {
        let started = Instant::now();
        let failed = match operation {
            "acquire" => store.acquire("lock", owner, secs(30)).await.map(|_| ()),
            "extend" => store.extend("lock", owner, secs(30)).await.map(|_| ()),
            _ => store.release("lock", owner).await.map(|_| ()),
        };
        assert!(failed.unwrap_err().kind().is_transient(), "{operation}");
        took.insert(operation, started.elapsed());
    }
    assert!(took.values().all(|took| *took < Duration::from_secs(2)), "{took:?}");
}
