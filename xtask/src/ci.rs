//! `cargo xtask ci`: what continuous integration runs, in legs that a laptop can run too.

mod features;
mod weight;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use xshell::{Shell, cmd};

use crate::flags::Leg;
use crate::util::{self, Result};
use crate::{services, test, tidy};

/// Runs the named legs, or all, each to its end; fails with the names of those that failed.
pub(crate) fn run(legs: &[Leg]) -> Result<ExitCode> {
    let sh = util::shell()?;
    services::ensure_for_builds()?;
    let named: BTreeSet<Leg> = legs.iter().copied().collect();
    let chosen = Leg::value_variants().iter().filter(|leg| named.is_empty() || named.contains(leg));
    util::run_all(chosen.map(|leg| (name(*leg), timed(&sh, *leg))))?;
    Ok(ExitCode::SUCCESS)
}

fn timed(sh: &Shell, leg: Leg) -> Result<()> {
    let began = Instant::now();
    eprintln!("== {}", name(leg));
    run_leg(sh, leg)?;
    eprintln!("== {}: ok in {:.1} s", name(leg), began.elapsed().as_secs_f32());
    Ok(())
}

fn run_leg(sh: &Shell, leg: Leg) -> Result<()> {
    let cargo = util::cargo();
    match leg {
        Leg::Fmt => cmd!(sh, "{cargo} fmt --all -- --check").run()?,
        Leg::Tidy => tidy::run()?,
        Leg::Clippy => {
            cmd!(sh, "{cargo} clippy --workspace --all-targets --all-features -- -D warnings").run()?;
        }
        Leg::Docs => docs(sh)?,
        Leg::Features => features::run(sh)?,
        Leg::Test => test::run(&[]).map(drop)?,
    }
    Ok(())
}

/// Twice: the first sees links in private docs, the second links from public docs to private items.
fn docs(sh: &Shell) -> Result<()> {
    let cargo = util::cargo();
    let _deny = sh.push_env("RUSTDOCFLAGS", "-D warnings");
    cmd!(sh, "{cargo} doc --workspace --no-deps --all-features --document-private-items").run()?;
    Ok(cmd!(sh, "{cargo} doc --workspace --no-deps --all-features").run()?)
}

fn name(leg: Leg) -> &'static str {
    match leg {
        Leg::Fmt => "fmt",
        Leg::Tidy => "tidy",
        Leg::Clippy => "clippy",
        Leg::Docs => "docs",
        Leg::Features => "features",
        Leg::Test => "test",
    }
}
