//! The command line. Doc comments here are the help texts.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// The project's own tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub(crate) struct Xtask {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start, stop or look at the servers that tests use.
    Services {
        #[command(subcommand)]
        action: Action,
    },
    /// Run every test: doc tests, examples, unit and integration tests, with the services they need.
    Test {
        /// With arguments, only the unit and integration tests run, and these select among them.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Run what continuous integration runs, or only the named legs of it, cheapest first.
    Ci { legs: Vec<Leg> },
    /// Check a backend against a file of decision vectors.
    Vectors {
        file: PathBuf,
        /// The backend to check, or `all`.
        #[arg(long, default_value = "all")]
        backend: String,
    },
    /// Run one bench.
    Bench {
        name: String,
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Start the named services, or all, and wait until they are ready.
    Up { names: Vec<String> },
    /// Stop the named services, or all.
    Down { names: Vec<String> },
    /// Say which services run, and where; fails when one of them does not.
    Status { names: Vec<String> },
    /// Stop the named services as soon as standard input ends.
    #[command(hide = true)]
    Hold { names: Vec<String> },
}

/// The legs of continuous integration, in the order they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Leg {
    /// Formatting.
    Fmt,
    /// The house rules.
    Tidy,
    /// Clippy on every target with every feature, warnings denied.
    Clippy,
    /// The documentation builds without warnings, private items too.
    Docs,
    /// Each feature alone builds, and the light crates stay light.
    Features,
    /// Every test.
    Test,
}
