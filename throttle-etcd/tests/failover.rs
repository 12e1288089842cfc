//! Members that die and come back under load, the leader too.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::own::Own;
use common::until;
use futures_util::future::join_all;
use parking_lot::Mutex;
use throttle_core::{Action, BaseErrorSet, Effect, Policy, Quota, Rule, StoreBackend};
use throttle_etcd::{EtcdBackend, EtcdConfig};

const CALLERS: usize = 32;
const LIMIT: u32 = 200_000;

struct Load {
    backend: EtcdBackend,
    policy: Policy,
    admitted: AtomicU64,
    /// Calls whose fate is not known.
    unknown: AtomicU64,
    is_over: AtomicBool,
    /// When a call last succeeded.
    succeeded: Mutex<Instant>,
    failed: Mutex<Option<Instant>>,
}

impl Load {
    /// All is asked of the leader, or of the first of these members if it is not among them.
    async fn on(own: &Own, members: &[usize]) -> Arc<Self> {
        let addresses = own.addresses();
        let members: Vec<_> =
            members.iter().filter_map(|at| addresses.get(*at)).map(String::as_str).collect();
        let config = EtcdConfig::new(&format!("etcd://{}", members.join(","))).unwrap();
        Arc::new(Self {
            backend: EtcdBackend::connect(config).await.unwrap(),
            policy: Policy::new("p", [Rule::fixed_window(Quota::per_week(LIMIT)).unwrap()]).unwrap(),
            admitted: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            succeeded: Mutex::new(Instant::now()),
            failed: Mutex::new(None),
        })
    }

    async fn run(self: Arc<Self>) {
        while !self.is_over.load(Ordering::Relaxed) {
            match self.backend.decide(&Action::consume(&self.policy, "hot")).await {
                Ok(outcome) => {
                    self.admitted.fetch_add(u64::from(outcome.granted()), Ordering::Relaxed);
                    *self.succeeded.lock() = Instant::now();
                }
                Err(error) => {
                    assert!(error.kind().is_transient(), "{error:?}");
                    self.unknown.fetch_add(u64::from(error.effect() == Effect::Unknown), Ordering::Relaxed);
                    *self.failed.lock() = Some(Instant::now());
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        }
    }

    async fn succeeds_after(&self, moment: Instant) {
        until("recovery", Duration::from_secs(30), async || *self.succeeded.lock() > moment).await;
    }

    /// Asks for what is left, and holds the sum to the limit.
    async fn ends_exactly(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        let all = Action::consume(&self.policy, "hot").with_cost(0);
        let mut left = None;
        until("the last question", Duration::from_secs(30), async || {
            left = self.backend.decide(&all).await.ok();
            left.is_some()
        })
        .await;
        let used = u64::from(LIMIT - throttle_core::Decision::of(&all, &left.unwrap(), 0).remaining());
        let (admitted, unknown) =
            (self.admitted.load(Ordering::Relaxed), self.unknown.load(Ordering::Relaxed));
        println!("{used} used: {admitted} admitted, {unknown} unknown");
        assert!(admitted > 1_000, "{admitted} admitted");
        assert!(
            (admitted..=admitted + unknown).contains(&used),
            "{used} used: {admitted} admitted, {unknown} unknown"
        );
    }
}

fn config(own: &Own, members: &[usize]) -> EtcdConfig {
    let addresses = own.addresses();
    let members: Vec<_> = members.iter().filter_map(|at| addresses.get(*at)).map(String::as_str).collect();
    EtcdConfig::new(&format!("etcd://{}", members.join(","))).unwrap()
}

async fn under_load(own: &mut Own, members: &[usize], story: impl AsyncFnOnce(&mut Own, &Load)) {
    let load = Load::on(own, members).await;
    let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(Load::run(Arc::clone(&load)))).collect();
    load.succeeds_after(Instant::now() + Duration::from_millis(500)).await;
    story(own, &load).await;
    load.is_over.store(true, Ordering::Relaxed);
    for caller in join_all(callers).await {
        caller.unwrap();
    }
    load.ends_exactly().await;
}

/// The election timeout of etcd is 1 s, and may be drawn up to 2 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_dies_and_comes_back() {
    let mut own = Own::cluster(3, &[]).await;
    let leader = own.leader().await.unwrap();
    under_load(&mut own, &[0, 1, 2], async |own, load| {
        own.kill(leader);
        let killed = Instant::now();
        let mut elected = None;
        until("an election", Duration::from_secs(20), async || {
            elected = own.leader().await.map(|_| Instant::now());
            elected.is_some()
        })
        .await;
        load.succeeds_after(elected.unwrap()).await;
        let recovered = *load.succeeded.lock();
        println!("elected after {:?}, recovered after {:?}", elected.unwrap() - killed, recovered - killed);
        assert!(recovered - elected.unwrap() < Duration::from_secs(1));
        own.restart(leader);
        load.succeeds_after(Instant::now() + Duration::from_secs(3)).await;
    })
    .await;
}

/// Each in turn, so also the one that is asked: those of its calls that were under way are lost, no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_member_dies_and_comes_back() {
    let mut own = Own::cluster(3, &[]).await;
    under_load(&mut own, &[0, 1, 2], async |own, load| {
        for member in 0..3 {
            own.kill(member);
            load.succeeds_after(Instant::now() + Duration::from_millis(500)).await;
            own.restart(member);
            until("the member's return", Duration::from_secs(20), async || {
                own.leader().await.is_some()
                    && tokio::net::TcpStream::connect(&own.addresses()[member]).await.is_ok()
            })
            .await;
            load.succeeds_after(Instant::now() + Duration::from_secs(2)).await;
        }
    })
    .await;
}

/// A member that hangs, with its connections open, is left after one deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_hangs_is_left() {
    let mut own = Own::cluster(3, &[]).await;
    let leader = own.leader().await.unwrap();
    let hangs = (leader + 1) % 3;
    under_load(&mut own, &[hangs, (leader + 2) % 3], async |own, load| {
        own.signal(hangs, "-STOP");
        let stopped = Instant::now();
        load.succeeds_after(stopped + Duration::from_secs(2)).await;
        let failed = load.failed.lock().map(|failed| failed - stopped);
        own.signal(hangs, "-CONT");
        assert!(failed.unwrap() < Duration::from_secs(1), "{failed:?}");
    })
    .await;
}

/// Whichever member is named first, the leader is asked: the followers need not pass anything on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_asked() {
    let own = Own::cluster(3, &[]).await;
    let leader = own.leader().await.unwrap();
    for follower in [(leader + 1) % 3, (leader + 2) % 3] {
        let config = config(&own, &[follower, leader]).response_deadline(Duration::from_secs(5)).unwrap();
        let backend = EtcdBackend::connect(config).await.unwrap();
        own.signal(follower, "-STOP");
        let answer = backend.ping().await;
        own.signal(follower, "-CONT");
        answer.unwrap();
    }
}
