//! `cargo xtask test`: the one test command.
//!
//! The unit and integration tests come last, so that the closing line of their runner ends the output.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use xshell::{Shell, cmd};

use crate::services::{self, Guard, Service, Variables};
use crate::util::{self, Result};
use crate::workspace::Workspace;

/// How long an example may take.
const EXAMPLE: Duration = Duration::from_secs(60);

/// Examples that do not end by themselves with success, and why. All others are run.
const NOT_RUN: &[(&str, &str)] =
    &[("replay", "takes a file; a test runs what it does"), ("vectors", "takes a file: cargo xtask vectors")];

/// Starts what the tests need, runs them, and stops what was started.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    services::ensure_for_builds()?;
    let needed = services::needed();
    let guard = Guard::new(&needed)?;
    let sh = util::shell()?;
    set_environment(&sh, &needed, &services::up(&needed)?);
    if arguments.is_empty() {
        util::run_all([
            ("doc tests", doc_tests(&sh)),
            ("examples", examples(&sh)),
            ("tests", tests(&sh, &["--workspace".to_owned()])),
        ])?;
    } else {
        tests(&sh, arguments)?;
    }
    drop(guard);
    Ok(ExitCode::SUCCESS)
}

fn set_environment(sh: &Shell, services: &[&dyn Service], variables: &Variables) {
    let names: Vec<_> = services.iter().map(|service| service.name()).collect();
    sh.set_var("THROTTLE_TEST_REQUIRE", names.join(","));
    variables.iter().for_each(|(name, value)| sh.set_var(name, value));
}

fn doc_tests(sh: &Shell) -> Result<()> {
    let cargo = util::cargo();
    Ok(cmd!(sh, "{cargo} test --doc --workspace --all-features").run()?)
}

fn examples(sh: &Shell) -> Result<()> {
    let (workspace, cargo) = (Workspace::load()?, util::cargo());
    cmd!(sh, "{cargo} build --examples --workspace --all-features").run()?;
    let runs = |name: &&String| !NOT_RUN.iter().any(|(not_run, _)| not_run == name);
    let names = workspace.members.iter().flat_map(|member| &member.examples).filter(runs);
    util::run_all(names.map(|name| (name.as_str(), example(sh, &workspace, name))))
}

fn example(sh: &Shell, workspace: &Workspace, name: &str) -> Result<()> {
    eprintln!("example {name}");
    let program = workspace.target.join("debug/examples").join(name);
    let mut child = Command::from(sh.cmd(program)).stdin(Stdio::null()).spawn()?;
    let status = util::status_within(EXAMPLE, &mut child)?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

/// Runs the unit and integration tests with nextest, or without it with cargo alone.
fn tests(sh: &Shell, arguments: &[String]) -> Result<()> {
    let cargo = util::cargo();
    let nextest = cmd!(sh, "{cargo} nextest --version").quiet().ignore_stdout().ignore_stderr().run();
    if nextest.is_ok() {
        return Ok(cmd!(sh, "{cargo} nextest run --all-features {arguments...}").run()?);
    }
    let command = cmd!(sh, "{cargo} test --tests --no-fail-fast --all-features {arguments...}");
    eprintln!("$ {command}");
    counted(&mut Command::from(command))
}

/// Runs cargo's own test runner, which closes once per binary, and closes once for all of them.
fn counted(command: &mut Command) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut total = [0; 3];
    for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
        let line = line?;
        println!("{line}");
        total = add(total, &line);
    }
    let [passed, failed, skipped] = total;
    println!("\n{passed} passed, {failed} failed, {skipped} skipped");
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

/// Adds what a line says of passed, failed and ignored tests, if it is a closing line.
fn add(total: [u64; 3], line: &str) -> [u64; 3] {
    let Some(counts) = line.strip_prefix("test result: ") else { return total };
    let words: Vec<_> = counts.split([' ', ';']).collect();
    let count = |of: &str| {
        let pair = words.windows(2).find(|pair| pair.last() == Some(&of));
        pair.and_then(|pair| pair.first()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let [passed, failed, skipped] = total;
    [passed + count("passed"), failed + count("failed"), skipped + count("ignored")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_closing_lines_count() {
        let lines = [
            "test a ... ok",
            "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 1 filtered out; finished in 0.01s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        ];
        assert_eq!(lines.iter().fold([0; 3], |total, line| add(total, line)), [13, 2, 3]);
    }

    #[test]
    fn examples_that_are_not_run_say_why() {
        assert!(NOT_RUN.iter().all(|(name, why)| !name.is_empty() && why.len() > 10));
    }
}
