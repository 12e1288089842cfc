//! Servers that refuse to run as root run as `nobody` instead.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::util::Result;

/// The user and group that own nothing, the same number on every Debian.
const NOBODY: u32 = 65_534;

/// The program for work in `folder`, as ourselves unless that is root. Where others may not enter, as in root's home, it
/// may pass all the same.
pub(super) fn unprivileged(program: &Path, folder: &Path) -> Result<Command> {
    let mut command = Command::new(program);
    match is_root()? {
        true if is_open(folder)? => drop(command.uid(NOBODY).gid(NOBODY)),
        true => command = passing(program),
        false => {}
    }
    Ok(command)
}

fn passing(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
    command.args(["--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--"]);
    command.arg(program);
    command
}

/// Lets such a program use the folder and what is in it.
pub(super) fn give(folder: &Path) -> Result<()> {
    if is_root()? { give_all(folder) } else { Ok(()) }
}

fn give_all(folder: &Path) -> Result<()> {
    chown(folder, Some(NOBODY), Some(NOBODY))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            give_all(&path)?;
        } else {
            chown(&path, Some(NOBODY), Some(NOBODY))?;
        }
    }
    Ok(())
}

/// Whether everybody may pass through the folders above.
fn is_open(folder: &Path) -> Result<bool> {
    for above in folder.ancestors().skip(1) {
        if fs::metadata(above)?.mode() & 0o001 == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether this process may change owners: it owns itself.
fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self").map_or(1, |own| own.uid()) == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::util;

    #[test]
    fn a_program_works_in_a_folder_that_others_may_not_enter() {
        let closed = util::root().join("target/xtask-tests/closed");
        let inner = closed.join("inner");
        fs::create_dir_all(&inner).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!is_open(&inner).unwrap());
        give(&inner).unwrap();
        let mut touch = unprivileged(Path::new("touch"), &inner).unwrap();
        assert!(touch.arg(inner.join("file")).status().unwrap().success());
        if is_root().unwrap() {
            assert_eq!(fs::metadata(inner.join("file")).unwrap().uid(), NOBODY);
        }
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o711)).unwrap();
        fs::remove_dir_all(&closed).unwrap();
    }
}
