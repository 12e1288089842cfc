//! Replays a web server's log: limits each client address, at the log's own time.
//!
//! ```sh
//! cargo run --release --example replay -- examples/replay/sample.log --rule "30/m burst 10"
//! ```

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod log;
mod run;

use std::error::Error;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use throttle::{Algorithm, Policy};

use crate::log::Log;
use crate::run::{Report, replay};

/// Limits each client of a Common Log Format file, and says who would have been turned away.
#[derive(Parser)]
struct Arguments {
    /// The log file.
    log: PathBuf,
    /// The quota of each client, such as "30/m burst 10"; several are separated by commas.
    #[arg(long)]
    rule: String,
    /// How to decide: token-bucket, leaky-bucket, gcra, fixed-window, sliding-window or sliding-window-log.
    #[arg(long, default_value = "token-bucket")]
    algorithm: Algorithm,
    /// Where to count.
    #[arg(long, default_value = "memory://")]
    store: String,
    /// Replay the lines as they stand, even if their times step back, in place of sorted by time.
    #[arg(long)]
    in_file_order: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let policy = Policy::parse("replay", arguments.algorithm, &arguments.rule)?;
    let bytes =
        std::fs::read(&arguments.log).map_err(|error| format!("{}: {error}", arguments.log.display()))?;
    let mut log = Log::read(&bytes);
    if !arguments.in_file_order {
        log.sort();
    }
    let store = throttle::connect(&arguments.store).await?;
    let bar = progress_bar(log.requests.len());
    let start = Instant::now();
    let report = replay(&log, &policy, &store, |done| bar.set_position(done)).await?;
    bar.finish_and_clear();
    if arguments.json {
        println!("{}", report.to_json());
    } else {
        print(&report, &policy, start.elapsed());
    }
    Ok(())
}

fn progress_bar(requests: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {per_sec} {eta}");
    ProgressBar::new(requests as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn print(report: &Report, policy: &Policy, elapsed: Duration) {
    println!("{policy:?}");
    println!("{} requests of {} clients in {elapsed:.1?}", report.requests, report.clients);
    println!("admitted {}, denied {}", report.admitted, report.denied);
    for (client, denied) in &report.most_denied {
        println!("  {denied:>7} denied  {}", client.escape_debug());
    }
    if !report.malformed.is_empty() {
        println!("{} malformed lines: {:?}", report.malformed.len(), report.first_malformed());
    }
}
