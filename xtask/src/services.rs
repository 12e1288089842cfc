//! `cargo xtask services`: the servers that tests use, on private ports, with their data under `target/services`.
//!
//! A service is one file with one [`Service`] implementation, listed in [`ALL`]; everything else is the same for all.

mod env;
mod etcd;
mod guard;
mod lifecycle;
mod packages;
mod pgbouncer;
mod ports;
mod postgres;
mod process;
mod redis;
mod redis_cli;
mod redis_cluster;
mod redis_sentinel;
mod run_as;
mod site;
mod tls;

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

pub(crate) use self::env::Variables;
pub(crate) use self::guard::Guard;
use self::lifecycle::State;
use self::packages::Package;
pub(crate) use self::packages::ensure_for_builds;
use self::site::Site;
use crate::flags::Action;
use crate::util::{self, Result};

/// One kind of server that tests talk to.
pub(crate) trait Service: Sync {
    /// The name on the command line, in `THROTTLE_TEST_REQUIRE`, and of the folder.
    fn name(&self) -> &'static str;

    /// The folder of the workspace whose tests need this service.
    fn needed_by(&self) -> &'static str;

    /// The programs it takes, and the Debian packages that bring them.
    fn packages(&self) -> &'static [Package];

    /// Which ports of the workspace's block it uses.
    fn ports(&self) -> Range<u16>;

    /// Starts the processes in an empty folder, and sets them up as far as starting does not.
    fn start(&self, site: &Site) -> Result<()>;

    /// Whether a client can use it now, in every role; the error says what is missing.
    fn ready(&self, site: &Site) -> Result<()>;

    /// The environment variables that tell tests where it is.
    fn env(&self, site: &Site) -> Variables;

    /// The signal that stops its processes at once and in order.
    fn stop_signal(&self) -> &'static str {
        "TERM"
    }
}

static ALL: &[&dyn Service] = &[
    &redis::Redis,
    &redis_cluster::RedisCluster,
    &redis_sentinel::RedisSentinel,
    &postgres::Postgres,
    &pgbouncer::PgBouncer,
    &etcd::Etcd,
];

/// Carries out one `services` command.
pub(crate) fn run(action: Action) -> Result<ExitCode> {
    match action {
        Action::Up { names } => print!("{}", up(&select(&names)?)?),
        Action::Down { names } => down(&select(&names)?)?,
        Action::Status { names } => return status(&select(&names)?),
        Action::Hold { names } => guard::hold(&select(&names)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts what does not run yet, and returns the variables of all that runs.
pub(crate) fn up(services: &[&dyn Service]) -> Result<Variables> {
    packages::ensure(services.iter().flat_map(|service| service.packages()))?;
    let _lock = lock()?;
    let outcome = thread::scope(|scope| {
        let starts: Vec<_> = services
            .iter()
            .map(|service| (service.name(), scope.spawn(|| lifecycle::up(*service))))
            .collect();
        let joined = starts.into_iter().map(|(name, start)| (name, start.join()));
        util::run_all(joined.map(|(name, joined)| (name, joined.unwrap_or_else(|_| Err("panicked".into())))))
    });
    let variables = write_env()?;
    outcome.map(|()| variables)
}

/// Stops what runs.
pub(crate) fn down(services: &[&dyn Service]) -> Result<()> {
    let _lock = lock()?;
    let outcome = util::run_all(services.iter().map(|service| (service.name(), lifecycle::down(*service))));
    write_env()?;
    outcome
}

/// The services that the tests of the present workspace need.
pub(crate) fn needed() -> Vec<&'static dyn Service> {
    let present = |service: &&dyn Service| util::root().join(service.needed_by()).join("Cargo.toml").exists();
    ALL.iter().copied().filter(present).collect()
}

fn status(services: &[&dyn Service]) -> Result<ExitCode> {
    let mut all_run = true;
    for service in services {
        let state = lifecycle::state(*service);
        all_run &= matches!(state, State::Running(_));
        println!("{}: {state}", service.name());
    }
    print!("{}", write_env()?);
    Ok(if all_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn select(names: &[String]) -> Result<Vec<&'static dyn Service>> {
    if names.is_empty() {
        return Ok(ALL.to_vec());
    }
    names.iter().map(|name| find(name)).collect()
}

fn find(name: &str) -> Result<&'static dyn Service> {
    let known = || ALL.iter().map(|service| service.name()).collect::<Vec<_>>().join(", ");
    let found = ALL.iter().copied().find(|service| service.name() == name);
    found.ok_or_else(|| format!("no service `{name}`; there are {}", known()).into())
}

/// Writes `target/services/env` for what runs now.
fn write_env() -> Result<Variables> {
    let mut variables = Variables::default();
    for service in ALL {
        if let State::Running(site) = lifecycle::state(*service) {
            variables.extend(service.env(&site));
        }
    }
    std::fs::create_dir_all(home())?;
    std::fs::write(home().join("env"), variables.to_string())?;
    Ok(variables)
}

/// Held while services start or stop, so that two commands do not meet halfway.
fn lock() -> Result<File> {
    std::fs::create_dir_all(home())?;
    let file = File::create(home().join("lock"))?;
    file.lock()?;
    Ok(file)
}

fn home() -> PathBuf {
    util::root().join("target/services")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_ports_are_distinct() {
        let names: BTreeSet<_> = ALL.iter().map(|service| service.name()).collect();
        let ports: Vec<u16> = ALL.iter().flat_map(|service| service.ports()).collect();
        assert_eq!(names.len(), ALL.len());
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
        assert!(ports.iter().all(|port| *port < ports::BLOCK));
    }

    #[test]
    fn an_unknown_service_is_an_error_that_lists_the_known() {
        let error = find("mysql").err().unwrap().to_string();
        assert_eq!(
            error,
            "no service `mysql`; there are redis, redis-cluster, redis-sentinel, postgres, pgbouncer, etcd"
        );
    }
}
