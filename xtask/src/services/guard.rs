//! Stops services when the command that started them ends, however it ends.
//!
//! A second process of this program waits on a pipe whose other end only the first one holds. The pipe closes when the
//! first is done, fails, or is killed; the second is in a process group of its own, so Ctrl-C does not reach it.

use std::io::{Read, stdin};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::Service;
use super::lifecycle::{self, State};
use crate::util::Result;

/// Stops, when dropped, the services that did not run when it was made.
#[derive(Debug)]
pub(crate) struct Guard(Option<Child>);

impl Guard {
    /// Call it before the services start, so that no moment is unguarded.
    pub(crate) fn new(services: &[&dyn Service]) -> Result<Self> {
        let idle = |service: &&&dyn Service| !matches!(lifecycle::state(**service), State::Running(_));
        let names: Vec<_> = services.iter().filter(idle).map(|service| service.name()).collect();
        if names.is_empty() {
            return Ok(Self(None));
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["services", "hold"]).args(names).stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Self(Some(command.process_group(0).spawn()?)))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.stdin.take());
            if let Err(error) = child.wait() {
                eprintln!("error: the services may still run: {error}");
            }
        }
    }
}

/// The second process: waits for the end of standard input, then stops the services.
pub(crate) fn hold(services: &[&dyn Service]) -> Result<()> {
    stdin().read_to_end(&mut Vec::new())?;
    super::down(services)
}
