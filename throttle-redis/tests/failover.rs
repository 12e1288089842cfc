//! Failover under load: sentinels promote the replica, and callers go on there.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::own::Own;
use futures_util::future::join_all;
use throttle_core::{Action, BaseErrorSet, Policy, Quota, Rule, StoreBackend};
use throttle_redis::{RedisBackend, RedisConfig};

const CALLERS: usize = 32;
const LIMIT: u32 = 30_000;

struct Load {
    backend: RedisBackend,
    policy: Policy,
    admitted: AtomicU64,
    over: AtomicBool,
    /// When a call last failed.
    failed: parking_lot::Mutex<Option<Instant>>,
}

impl Load {
    async fn on(sentinel: &Own) -> Self {
        let url = format!("redis+sentinel://127.0.0.1:{}/own", sentinel.port);
        Self {
            backend: RedisBackend::connect(RedisConfig::new(&url).unwrap()).await.unwrap(),
            policy: Policy::new("p", [Rule::fixed_window(Quota::per_day(LIMIT)).unwrap()]).unwrap(),
            admitted: AtomicU64::new(0),
            over: AtomicBool::new(false),
            failed: parking_lot::Mutex::new(None),
        }
    }

    async fn run(self: Arc<Self>) {
        while !self.over.load(Ordering::Relaxed) {
            self.call().await;
        }
    }

    async fn call(&self) {
        match self.backend.decide(&Action::consume(&self.policy, "hot")).await {
            Ok(outcome) => {
                self.admitted.fetch_add(u64::from(outcome.granted()), Ordering::Relaxed);
                if outcome.granted() == 0 {
                    self.over.store(true, Ordering::Relaxed);
                }
            }
            Err(error) => {
                assert!(error.kind().is_transient(), "{error:?}");
                *self.failed.lock() = Some(Instant::now());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }

    fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < Duration::from_secs(30), "{what} takes too long");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_leave_a_primary_that_died() {
    fail_over(Own::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_leave_a_primary_that_hangs() {
    fail_over(|primary| primary.hang(Duration::from_secs(60))).await;
}

async fn fail_over(break_it: impl FnOnce(&mut Own)) {
    let (mut primary, replica, sentinel) = watched_pair().await;
    let load = Arc::new(Load::on(&sentinel).await);
    let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(Load::run(Arc::clone(&load)))).collect();

    tokio::time::sleep(Duration::from_millis(200)).await;
    let earlier = load.admitted();
    tokio::time::sleep(Duration::from_millis(100)).await;
    break_it(&mut primary);
    let (broken, at_break) = (Instant::now(), load.admitted());
    assert!(earlier > 0 && at_break < u64::from(LIMIT), "{at_break} admitted before the failover");
    until("failover", async || {
        let present: Vec<String> = sentinel.ask("SENTINEL GET-MASTER-ADDR-BY-NAME own").await;
        present.last().is_some_and(|port| *port == replica.port.to_string())
    })
    .await;
    let failed_over = broken.elapsed();
    until("the end of the allowance", async || load.over.load(Ordering::Relaxed)).await;
    for caller in join_all(callers).await {
        caller.unwrap();
    }

    let back = load.failed.lock().unwrap().duration_since(broken);
    assert!(
        back < failed_over + Duration::from_secs(2),
        "back after {back:?}, failed over after {failed_over:?}"
    );
    // What the primary had admitted and not yet replicated is admitted again: no more than in the lag, here put at
    // 100 ms, and what was under way.
    let excess = load.admitted().saturating_sub(u64::from(LIMIT));
    let lost_at_most = at_break - earlier + CALLERS as u64;
    assert!(excess <= lost_at_most, "{excess} too many, with {lost_at_most} in the lag");
}

/// A primary, its replica, and the sentinel that watches them.
async fn watched_pair() -> (Own, Own, Own) {
    let primary = Own::start(&[]).await;
    let replica = Own::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]).await;
    until("replication", async || {
        replica.ask::<String>("INFO replication").await.contains("master_link_status:up")
    })
    .await;
    let sentinel = Own::sentinel(primary.port).await;
    until("the sentinel's view", async || {
        sentinel.ask::<Vec<redis::Value>>("SENTINEL REPLICAS own").await.len() == 1
    })
    .await;
    (primary, replica, sentinel)
}
