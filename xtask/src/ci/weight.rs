//! Proof by `cargo tree` that the light builds stay light.

use xshell::{Shell, cmd};

use crate::util::{self, Result};

/// Crates of stores, and what their builds take: a name ending in `-` stands for all that start so.
const DRIVERS: &[&str] = &[
    "redis",
    "sqlx",
    "sqlx-",
    "etcd-client",
    "tonic",
    "tonic-",
    "prost-build",
    "protoc-",
    "protobuf-src",
    "throttle-redis",
    "throttle-postgres",
    "throttle-etcd",
];

/// Checks the builds that promise to pull no driver.
pub(crate) fn run(sh: &Shell) -> Result<()> {
    let cargo = util::cargo();
    let tree = ["--edges", "normal,build", "--target", "all", "--prefix", "none", "--format", "{p}"];
    let facade = cmd!(sh, "{cargo} tree -p throttle {tree...}").read()?;
    let core = cmd!(sh, "{cargo} tree -p throttle-core --all-features {tree...}").read()?;
    refuse("the default build of the facade", &facade)?;
    refuse("throttle-core", &core)
}

fn refuse(what: &str, tree: &str) -> Result<()> {
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    match names.clone().find(|name| DRIVERS.iter().any(|driver| is(name, driver))) {
        Some(name) => Err(format!("{what} pulls in {name}").into()),
        None if names.count() < 2 => Err(format!("{what}: no tree to look at").into()),
        None => Ok(()),
    }
}

fn is(name: &str, driver: &str) -> bool {
    name == driver || (driver.ends_with('-') && name.starts_with(driver))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_anywhere_in_the_tree_is_named() {
        let refused = refuse("it", "throttle v0.1.0\nsqlx-core v0.9.0\n").unwrap_err();
        assert_eq!(refused.to_string(), "it pulls in sqlx-core");
        refuse("it", "throttle v0.1.0\nredistribute v1.0.0\n").unwrap();
    }

    #[test]
    fn an_empty_tree_proves_nothing() {
        assert_eq!(refuse("it", "").unwrap_err().to_string(), "it: no tree to look at");
    }
}
