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
        check_open(folder)?;
        give_all(folder)?;
    }
    Ok(())
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

/// Fails unless everybody may pass through the folders above.
fn check_open(folder: &Path) -> Result<()> {
    for above in folder.ancestors().skip(1) {
        if fs::metadata(above)?.mode() & 0o001 == 0 {
            return Err(format!(
                "the server runs as the user nobody, who may not enter {0}: `chmod o+x {0}`, or use a checkout elsewhere",
                above.display()
            )
            .into());
        }
    }
    Ok(())
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
    fn a_closed_folder_above_is_named() {
        let closed = util::root().join("target/xtask-tests/closed");
        let inner = closed.join("inner");
        fs::create_dir_all(&inner).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        let error = check_open(&inner).unwrap_err().to_string();
        assert!(error.contains(&format!("may not enter {}", closed.display())), "{error}");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o711)).unwrap();
        assert!(!check_open(&inner).is_err_and(|error| error.to_string().contains("target")));
    }
}
