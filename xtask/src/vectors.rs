//! `cargo xtask vectors`: holds a backend to a file of decision vectors.

use std::path::Path;
use std::process::{Command, ExitCode};

use xshell::cmd;

use crate::util::{self, Result};

/// Runs the example on the file, and ends as it ends.
pub(crate) fn run(file: &Path, backend: &str) -> Result<ExitCode> {
    let (sh, cargo, file) = (util::shell()?, util::cargo(), std::path::absolute(file)?);
    let command = cmd!(sh, "{cargo} run --quiet --release -p throttle --all-features --example vectors --");
    let status = Command::from(command.arg(file).args(["--backend", backend])).status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
