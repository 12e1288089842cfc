//! Units taken ahead by several processes, on one key of one Redis.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and a child reports"
)]

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use throttle_core::{Policy, RateLimiter, Rule};
use throttle_memory::Leased;
use throttle_redis::RedisBackend;

const REDIS: &str = "THROTTLE_TEST_REDIS_URL";
const TEST: &str = "THROTTLE_TEST_LEASED_PREFIX";

const PROCESSES: u64 = 4;
const RUN: Duration = Duration::from_secs(30);
const RATE: u64 = 4_000;
const BURST: u64 = 4_000;

/// The time of the server, in microseconds.
async fn server_time() -> u64 {
    let value = common::ask(REDIS, &redis::cmd("TIME")).await.unwrap();
    let (seconds, micros): (u64, u64) = redis::from_redis_value(value).unwrap();
    seconds * 1_000_000 + micros
}

/// What one process does: asks about 2,500 times a second, and reports.
#[tokio::test]
#[ignore = "a child of the test below"]
async fn child() {
    let config = common::config_of(REDIS, &std::env::var(TEST).unwrap()).unwrap();
    let config = config.prefix(&std::env::var(TEST).unwrap()).unwrap();
    let leased = Leased::new(RedisBackend::connect(config).await.unwrap());
    let rule = Rule::gcra(format!("{RATE}/s burst {BURST}").as_str()).unwrap();
    let limiter = RateLimiter::new(Policy::new("p", [rule]).unwrap(), leased);
    let (start, from, mut admitted) = (Instant::now(), server_time().await, 0_u64);
    while start.elapsed() < RUN {
        for _ in 0..5 {
            admitted += u64::from(limiter.check("key").await.unwrap().is_allowed());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let until = server_time().await;
    println!("\nreport {admitted} {} {from} {until}", limiter.store().get_ref().asked());
}

#[test]
fn four_processes_admit_what_one_limit_allows_and_nearly_all_of_it() {
    common::server(REDIS);
    let prefix = common::prefix("leased");
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env(TEST, &prefix)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let reports: Vec<[u64; 4]> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let report = text.lines().find_map(|line| line.strip_prefix("report ")).expect("a report");
            let numbers: Vec<u64> = report.split(' ').map(|number| number.parse().unwrap()).collect();
            <[u64; 4]>::try_from(numbers).unwrap()
        })
        .collect();
    let admitted: u64 = reports.iter().map(|[admitted, ..]| admitted).sum();
    let from = reports.iter().map(|[_, _, from, _]| from).min().unwrap();
    let until = reports.iter().map(|[_, _, _, until]| until).max().unwrap();
    let most = BURST + (until - from) * RATE / 1_000_000;
    println!("{admitted} of {most} admitted; reports: {reports:?}");
    assert!(admitted <= most, "{admitted} were admitted, of at most {most}");
    assert!(admitted * 100 >= most * 95, "{admitted} were admitted, of {most}");
    for [_, asked, ..] in reports {
        assert!(asked <= 100 * RUN.as_secs(), "asked {asked} times in {RUN:?}");
    }
}
