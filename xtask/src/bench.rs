//! `cargo xtask bench`: runs one bench of the bench package.

use std::process::ExitCode;

use xshell::cmd;

use crate::util::{self, Result};

/// Runs the bench of that name.
pub(crate) fn run(name: &str, arguments: &[String]) -> Result<ExitCode> {
    let (sh, cargo) = (util::shell()?, util::cargo());
    cmd!(sh, "{cargo} bench -p throttle-bench --bench {name} -- {arguments...}").run()?;
    Ok(ExitCode::SUCCESS)
}
