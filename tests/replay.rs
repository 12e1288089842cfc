//! The replay example gives the answers of the oracle that was written from the definition alone.
//!
//! On the project's sample log the answers are recorded here. On a log of a real server beside the checkout, when it is
//! there, the oracle itself is asked, for every algorithm and in both orders.

#[path = "../examples/replay/log.rs"]
mod log;
#[path = "../examples/replay/run.rs"]
mod run;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};
use throttle::{Algorithm, Policy};

use crate::log::Log;
use crate::run::{Report, replay};

fn main() -> ExitCode {
    let mut trials: Vec<Trial> = Algorithm::ALL.into_iter().flat_map(sample_trials).collect();
    trials.extend(Algorithm::ALL.into_iter().flat_map(oracle_trials));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// What each algorithm admits of the sample log by 30 a minute (buckets: 10 at once), sorted and in file order.
fn sample_admitted(algorithm: Algorithm) -> [usize; 2] {
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra => [234, 234],
        Algorithm::FixedWindow => [235, 235],
        Algorithm::SlidingWindow => [222, 220],
        Algorithm::SlidingWindowLog => [222, 223],
    }
}

fn sample_trials(algorithm: Algorithm) -> [Trial; 2] {
    [false, true].map(|in_file_order| {
        Trial::test(format!("sample::{algorithm}::{}", order(in_file_order)), move || {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/replay/sample.log");
            let report = ours(&path, algorithm, in_file_order)?;
            assert_eq!(report.malformed, [101]);
            assert_eq!(report.requests, 240);
            let [sorted, as_it_stands] = sample_admitted(algorithm);
            assert_eq!(report.admitted, if in_file_order { as_it_stands } else { sorted });
            assert_eq!(report.admitted + report.denied, report.requests);
            Ok(())
        })
    })
}

fn oracle_trials(algorithm: Algorithm) -> [Trial; 2] {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let (oracle, log) = (shared.join("semantics/oracle.py"), shared.join("data/access.log"));
    let missing = !oracle.exists() || !log.exists();
    [false, true].map(|in_file_order| {
        let (oracle, log) = (oracle.clone(), log.clone());
        Trial::test(format!("oracle::{algorithm}::{}", order(in_file_order)), move || {
            let ours: Value = serde_json::from_str(&ours(&log, algorithm, in_file_order)?.to_json())?;
            let theirs = theirs(&oracle, &log, algorithm, in_file_order)?;
            for field in ["requests", "clients", "admitted", "denied", "most_denied"] {
                assert_eq!(ours.get(field), theirs.get(field), "{field}");
            }
            Ok(())
        })
        .with_ignored_flag(missing)
    })
}

fn order(in_file_order: bool) -> &'static str {
    if in_file_order { "in_file_order" } else { "sorted" }
}

fn ours(path: &Path, algorithm: Algorithm, in_file_order: bool) -> Result<Report, Failed> {
    let quota = if algorithm.is_bucket() { "30/m burst 10" } else { "30/m" };
    let policy = Policy::parse("replay", algorithm, quota)?;
    let mut log = Log::read(&std::fs::read(path)?);
    if !in_file_order {
        log.sort();
    }
    pollster::block_on(async {
        let store = throttle::connect("memory://").await?;
        Ok(replay(&log, &policy, &store, |_| {}).await?)
    })
}

fn theirs(
    oracle: &PathBuf,
    log: &PathBuf,
    algorithm: Algorithm,
    in_file_order: bool,
) -> Result<Value, Failed> {
    let burst = if algorithm.is_bucket() { 10 } else { 30 };
    let rule = json!({ "algorithm": algorithm.name(), "limit": 30, "period_us": 60_000_000, "burst": burst });
    let mut command = Command::new("python3");
    command.arg(oracle).arg("replay").arg(log).arg("--rule").arg(rule.to_string());
    if in_file_order {
        command.arg("--in-file-order");
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
