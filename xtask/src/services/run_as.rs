//! Servers that refuse to run as root run as `nobody` instead.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::util::Result;

/// The user and group that own nothing, the same number on every Debian.
const NOBODY: u32 = 65_534;

/// The program, as ourselves unless that is root.
pub(super) fn unprivileged(program: &Path) -> Result<Command> {
    let mut command = Command::new(program);
    if is_root()? {
        command.uid(NOBODY).gid(NOBODY);
    }
    Ok(command)
}

/// Lets such a program use the folder and what is in it.
pub(super) fn give(folder: &Path) -> Result<()> {
    if is_root()? {
        chown(folder, Some(NOBODY), Some(NOBODY))?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                give(&path)?;
            } else {
                chown(&path, Some(NOBODY), Some(NOBODY))?;
            }
        }
    }
    Ok(())
}

/// Whether this process may change owners: it owns itself.
fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self").map_or(1, |own| own.uid()) == 0)
}
