//! The project's own tasks: `cargo xtask help` lists them.
//!
//! This file only dispatches; each command is one file of the same name.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to its terminal")]

mod bench;
mod ci;
mod flags;
mod services;
mod test;
mod tidy;
mod util;
mod vectors;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

use crate::flags::{Command, Xtask};

fn main() -> ExitCode {
    let outcome = match Xtask::parse().command {
        Command::Services { action } => services::run(action),
        Command::Test { arguments } => test::run(&arguments),
        Command::Ci { legs } => ci::run(&legs),
        Command::Vectors { file, backend } => vectors::run(&file, &backend),
        Command::Bench { name, arguments } => bench::run(&name, &arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}
