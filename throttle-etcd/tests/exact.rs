//! Several processes on the same keys: what they admit together is exact, whatever their clocks say.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use throttle_core::{Action, Clock, Policy, Quota, Rule, StoreBackend, SystemClock};
use throttle_etcd::{EtcdBackend, EtcdConfig};
use throttle_testkit::ManualClock;

/// Tells this program that it is one of the processes: its prefix.
const CHILD: &str = "THROTTLE_ETCD_CHILD";
const HOT: u32 = 1_000;
const EACH: u32 = 20;
const KEYS: usize = 100;

fn policy(name: &str, limit: u32) -> Policy {
    Policy::new(name, [Rule::gcra(Quota::per_week(1).burst(limit)).unwrap()]).unwrap()
}

fn patient(prefix: &str) -> EtcdConfig {
    let config = EtcdConfig::new(&common::url()).unwrap().prefix(prefix).unwrap();
    let long = Duration::from_secs(20);
    config.response_deadline(long).unwrap().contention_deadline(long).unwrap()
}

/// How many of many callers at once are admitted, on one key and on a hundred.
async fn hammer(backend: &EtcdBackend) -> u64 {
    let (hot, each) = (policy("hot", HOT), policy("each", EACH));
    let admitted = AtomicU64::new(0);
    let ask = async |action: Action<'_>| {
        let outcome = backend.decide(&action).await.unwrap();
        admitted.fetch_add(u64::from(outcome.granted()), Ordering::Relaxed);
    };
    join_all((0..32).map(async |caller| {
        for nth in 0..100 {
            ask(Action::consume(&hot, "hot")).await;
            ask(Action::consume(&each, &((caller * 7 + nth) % KEYS).to_string())).await;
        }
    }))
    .await;
    admitted.into_inner()
}

/// One of the processes of the test below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of the test below"]
async fn child() {
    let prefix = std::env::var(CHILD).unwrap();
    let backend = EtcdBackend::connect(patient(&prefix)).await.unwrap();
    println!("admitted {}", hammer(&backend).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_admit_exactly_the_limit() {
    let prefix = common::prefix("two-processes");
    let spawn = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["child", "--exact", "--ignored", "--nocapture"])
            .env(CHILD, &prefix)
            .stdout(Stdio::piped())
            .spawn()
    };
    let children = [spawn().unwrap(), spawn().unwrap()];
    let mut admitted = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        let count = said.split("admitted ").nth(1).and_then(|rest| rest.split_whitespace().next());
        admitted += count.unwrap().parse::<u64>().unwrap();
    }
    // Each process asks 3,200 times for the hot key, and 32 times for each of the others.
    assert_eq!(admitted, u64::from(HOT) + KEYS as u64 * u64::from(EACH));
}

/// A key on which another process is busy does not hold up the keys that are this process's alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contended_key_does_not_starve_others() {
    let prefix = common::prefix("fair");
    let connect = || async { EtcdBackend::connect(patient(&prefix)).await.unwrap() };
    let (one, other) = (connect().await, connect().await);
    let policy = Policy::new("fair", [Rule::fixed_window(Quota::per_week(1_000_000)).unwrap()]).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = [&one, &other, &other]
        .map(|backend| {
            let (backend, policy, is_over) = (backend.clone(), policy.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut asked = 0_u32;
                while !is_over.load(Ordering::Relaxed) {
                    backend.decide(&Action::consume(&policy, "hot")).await.unwrap();
                    asked += 1;
                }
                asked
            })
        })
        .into_iter()
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut waits = Vec::new();
    for nth in 0..200 {
        let since = Instant::now();
        one.decide(&Action::consume(&policy, &format!("calm-{}", nth % 10))).await.unwrap();
        waits.push(since.elapsed());
    }
    is_over.store(true, Ordering::Relaxed);
    let asked: Vec<u32> = join_all(busy).await.into_iter().map(|asked| asked.unwrap()).collect();
    waits.sort_unstable();
    println!(
        "calm keys wait {:?} in the middle, {:?} at most; the hot key was decided {asked:?} times",
        waits[100], waits[199]
    );
    assert!(asked.iter().all(|asked| *asked > 10), "{asked:?}");
    // One exchange of one key: nowhere near what an exchange of the hot key may take.
    assert!(waits[150] < Duration::from_millis(250), "{:?}", waits[150]);
}

/// Two processes whose clocks are a second apart, turn by turn: no more than by the clock that is ahead alone.
#[tokio::test]
async fn clocks_apart_admit_nothing_extra() {
    let prefix = common::prefix("apart");
    let start = SystemClock.now();
    for (name, rule) in [
        ("bucket", "gcra 1/s burst 10"),
        ("window", "fixed_window 10 per 10s"),
        ("sliding", "sliding_window 10 per 10s"),
        ("log", "sliding_window_log 10 per 10s"),
    ] {
        let policy = Policy::new(name, [Rule::from_str(rule).unwrap()]).unwrap();
        let (ahead, behind) =
            (ManualClock::new(start.saturating_add(Duration::from_secs(1))), ManualClock::new(start));
        let fast = EtcdBackend::connect(patient(&prefix).clock(ahead.clone())).await.unwrap();
        let slow = EtcdBackend::connect(patient(&prefix).clock(behind.clone())).await.unwrap();
        let mut admitted = 0;
        for step in 0..60 {
            let backend = if step % 2 == 0 { &fast } else { &slow };
            admitted += backend.decide(&Action::consume(&policy, "key")).await.unwrap().granted();
            ahead.advance(Duration::from_millis(100));
            behind.advance(Duration::from_millis(100));
        }
        // Ten at once, and what six seconds give back; a window may turn once.
        let most = if name == "window" { 20 } else { 16 };
        assert!((10..=most).contains(&admitted), "{rule}: {admitted}");
    }
}

#[tokio::test]
async fn skew_is_measured_against_those_who_started_before() {
    let prefix = common::prefix("skew");
    let config = |ahead: u64| {
        let clock = ManualClock::new(SystemClock.now().saturating_add(Duration::from_secs(ahead)));
        patient(&prefix).warn_of_skew(Duration::from_secs(1)).clock(clock)
    };
    let first = EtcdBackend::connect(config(60)).await.unwrap();
    let second = EtcdBackend::connect(config(90)).await.unwrap();
    let (of_first, of_second) = (first.skew().await.unwrap().unwrap(), second.skew().await.unwrap().unwrap());
    assert!(of_first.is_ahead() && !of_second.is_ahead());
    // The clocks stand still while etcd's goes on.
    for skew in [of_first, of_second] {
        let seconds = skew.at_least().as_secs();
        assert!((25..=35).contains(&seconds), "{seconds} s");
    }
    let alone = EtcdBackend::connect(patient(&common::prefix("skew-alone"))).await.unwrap();
    assert_eq!(alone.skew().await.unwrap(), None);
}
