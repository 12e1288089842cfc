//! Runs a file of vectors: `vectors FILE [--backend NAME|all]`.
//!
//! The last line is `N passed, M failed`; the exit code is 1 on any failure.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

#[path = "../custom_backend/shelf.rs"]
mod shelf;

use std::error::Error;
use std::process::ExitCode;

use throttle::memory::MemoryBackend;
use throttle::{AnyStore, CasBackend, GroupCommit};
use throttle_testkit::ReferenceBackend;
use throttle_testkit::vectors::Vectors;

use crate::shelf::Shelf;

/// The backends that need no service, by name.
const NAMES: [&str; 5] = ["reference", "memory", "cas", "group-commit", "group-commit-cas"];

/// The backends that need one: its URL is read from this variable. Without it they are left out of `all`.
const SERVICES: [(&str, &str); 6] = [
    ("redis", "THROTTLE_TEST_REDIS_URL"),
    ("redis-sentinel", "THROTTLE_TEST_REDIS_SENTINEL_URL"),
    ("redis-cluster", "THROTTLE_TEST_REDIS_CLUSTER_URL"),
    ("postgres", "THROTTLE_TEST_POSTGRES_URL"),
    ("pgbouncer", "THROTTLE_TEST_PGBOUNCER_URL"),
    ("etcd", "THROTTLE_TEST_ETCD_URL"),
];

async fn backend(name: &str) -> Result<AnyStore, Box<dyn Error>> {
    Ok(match name {
        "reference" => AnyStore::from(ReferenceBackend::default()),
        "memory" => AnyStore::from(MemoryBackend::default()),
        "cas" => AnyStore::from(CasBackend::new(Shelf::default())),
        "group-commit" => AnyStore::from(GroupCommit::new(MemoryBackend::default())),
        "group-commit-cas" => AnyStore::from(GroupCommit::new(CasBackend::new(Shelf::default()))),
        _ => throttle::connect(&url(name)?).await?,
    })
}

fn url(name: &str) -> Result<String, Box<dyn Error>> {
    let Some((_, variable)) = SERVICES.into_iter().find(|(service, _)| *service == name) else {
        let names: Vec<&str> = NAMES.into_iter().chain(SERVICES.map(|(name, _)| name)).collect();
        return Err(format!("no backend is called {name:?}: use one of {}, or all", names.join(", ")).into());
    };
    std::env::var(variable).map_err(|_| format!("{variable} does not say where {name} is").into())
}

fn all() -> Vec<String> {
    let configured = SERVICES.into_iter().filter(|(_, variable)| std::env::var_os(variable).is_some());
    NAMES.into_iter().chain(configured.map(|(name, _)| name)).map(str::to_owned).collect()
}

struct Arguments {
    file: String,
    backends: Vec<String>,
}

impl Arguments {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let (mut file, mut backend) = (None, "memory".to_owned());
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--backend" => backend = arguments.next().ok_or("--backend needs a name")?,
                _ if file.is_none() => file = Some(argument),
                other => return Err(format!("unexpected argument {other:?}").into()),
            }
        }
        let file = file.ok_or("usage: vectors FILE [--backend NAME|all]")?;
        Ok(Self { file, backends: if backend == "all" { all() } else { vec![backend] } })
    }
}

async fn run() -> Result<usize, Box<dyn Error>> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let vectors = Vectors::parse(&std::fs::read_to_string(&arguments.file)?)?;
    let mut totals = (0, 0);
    for name in &arguments.backends {
        let report = vectors.run(&backend(name).await?).await;
        for mismatch in report.mismatches() {
            println!("{name}: {mismatch}");
        }
        println!("{name}: {} steps agree, {} do not", report.passed(), report.failed());
        totals = (totals.0 + report.passed(), totals.1 + report.failed());
    }
    println!("{} passed, {} failed", totals.0, totals.1);
    if totals == (0, 0) {
        return Err("the file holds no vectors".into());
    }
    Ok(totals.1)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
