//! The programs that services take: found on the path, or installed from Debian's packages.

use std::collections::BTreeSet;

use xshell::{Shell, cmd};

use crate::util::{self, Result};

/// A program, and the Debian package that brings it.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) program: &'static str,
    pub(crate) debian: &'static str,
}

/// What builds take beside Rust, and the folder of the workspace that takes it. The second package has the definitions
/// that others import.
const BUILD: &[(&str, Package)] = &[
    ("throttle-etcd", Package { program: "protoc", debian: "protobuf-compiler" }),
    ("throttle-etcd", Package { program: "protoc", debian: "libprotobuf-dev" }),
];

/// Installs what building the present workspace with all features takes.
pub(crate) fn ensure_for_builds() -> Result<()> {
    let present = |(folder, _): &&(&str, Package)| util::root().join(folder).join("Cargo.toml").exists();
    ensure(BUILD.iter().filter(present).map(|(_, package)| package))
}

/// Installs what is missing, saying each thing it does.
///
/// # Errors
///
/// Says what to install when this may not install it: no `apt-get`, or neither root nor a `sudo` that asks nothing.
pub(crate) fn ensure<'a>(packages: impl IntoIterator<Item = &'a Package>) -> Result<()> {
    let missing = packages.into_iter().filter(|package| !on_path(package.program));
    let missing: BTreeSet<_> = missing.map(|package| package.debian).collect();
    if missing.is_empty() {
        return Ok(());
    }
    install(&missing.into_iter().collect::<Vec<_>>())
}

fn install(packages: &[&str]) -> Result<()> {
    let (sh, names) = (util::shell()?, packages.join(" "));
    eprintln!("missing: {names}");
    let Some(become_root) = root_prefix(&sh) else {
        return Err(format!("cannot install packages here; please run: apt-get install {names}").into());
    };
    // A run level of 1 keeps the packages from starting servers of their own.
    let prefix =
        &[become_root, &["DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get", "--quiet"]].concat();
    cmd!(sh, "env {prefix...} update").run()?;
    cmd!(sh, "env {prefix...} install --yes --no-install-recommends {packages...}").run()?;
    Ok(())
}

/// What runs a program as root, if that is possible without asking; it is to stand after one `env`.
fn root_prefix(sh: &Shell) -> Option<&'static [&'static str]> {
    if !on_path("apt-get") {
        return None;
    }
    if cmd!(sh, "id -u").quiet().read().ok()? == "0" {
        return Some(&[]);
    }
    let sudo = cmd!(sh, "sudo -n true").quiet().ignore_stdout().ignore_stderr().run();
    sudo.is_ok().then(|| &["sudo", "-n", "env"][..])
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(on_path("sh"));
        assert!(!on_path("no-such-program"));
    }

    #[test]
    fn nothing_is_installed_when_nothing_is_missing() {
        ensure(&[Package { program: "sh", debian: "no-such-package" }]).unwrap();
    }
}
