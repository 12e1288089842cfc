//! Runs a file of vectors: `vectors FILE [--backend NAME|all]`.
//!
//! The last line is `N passed, M failed`; the exit code is 1 on any failure.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::error::Error;
use std::process::ExitCode;

use throttle_core::{AnyStore, Guarded};
use throttle_testkit::ReferenceBackend;
use throttle_testkit::vectors::Vectors;

/// The backends by name, each a store of its own.
fn backend(name: &str) -> Option<AnyStore> {
    match name {
        "reference" => Some(AnyStore::new(Guarded::new(ReferenceBackend::default()))),
        _ => None,
    }
}

const NAMES: &[&str] = &["reference"];

struct Arguments {
    file: String,
    backends: Vec<(String, AnyStore)>,
}

impl Arguments {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let (mut file, mut backend_name) = (None, "reference".to_owned());
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--backend" => backend_name = arguments.next().ok_or("--backend needs a name")?,
                _ if file.is_none() => file = Some(argument),
                other => return Err(format!("unexpected argument {other:?}").into()),
            }
        }
        let file = file.ok_or("usage: vectors FILE [--backend NAME|all]")?;
        Ok(Self { file, backends: named(&backend_name)? })
    }
}

fn named(name: &str) -> Result<Vec<(String, AnyStore)>, Box<dyn Error>> {
    let names = if name == "all" { NAMES.to_vec() } else { vec![name] };
    let stores = names.into_iter().map(|name| match backend(name) {
        Some(store) => Ok((name.to_owned(), store)),
        None => Err(format!("no backend is called {name:?}: use one of {}, or all", NAMES.join(", ")).into()),
    });
    stores.collect()
}

async fn run() -> Result<usize, Box<dyn Error>> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let vectors = Vectors::parse(&std::fs::read_to_string(&arguments.file)?)?;
    let mut totals = (0, 0);
    for (name, store) in &arguments.backends {
        let report = vectors.run(store).await;
        for mismatch in report.mismatches() {
            println!("{name}: {mismatch}");
        }
        totals = (totals.0 + report.passed(), totals.1 + report.failed());
    }
    println!("{} passed, {} failed", totals.0, totals.1);
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
