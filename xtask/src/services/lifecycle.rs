//! Up, down and state: the same for every service.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use super::site::Site;
use super::{Service, ports, process};
use crate::util::{self, Result};

/// How long a service may take from its start to its first answer.
const START: Duration = Duration::from_secs(60);
/// How long one that runs may take to show that it works: a failover under way ends within this.
const CHECK: Duration = Duration::from_secs(10);

/// What is known of a service from its folder.
#[derive(Debug)]
pub(crate) enum State {
    Stopped,
    /// Some processes are gone: it must be started anew.
    Broken(String),
    Running(Site),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => write!(f, "stopped"),
            Self::Broken(gone) => write!(f, "broken: {gone} no longer runs"),
            Self::Running(site) => write!(f, "running in {}", site.home().display()),
        }
    }
}

/// Looks at the recorded processes; asks the service nothing.
pub(crate) fn state(service: &dyn Service) -> State {
    let Some(site) = Site::open(service) else { return State::Stopped };
    let gone = process::gone(site.home());
    if process::recorded(site.home()).len() == gone.len() {
        State::Stopped
    } else if gone.is_empty() {
        State::Running(site)
    } else {
        State::Broken(gone.join(", "))
    }
}

/// Starts the service and waits until it is ready, unless it runs and is.
pub(crate) fn up(service: &dyn Service) -> Result<()> {
    let name = service.name();
    if let State::Running(site) = state(service) {
        match util::until(CHECK, || service.ready(&site)) {
            Ok(()) => {
                eprintln!("{name}: already running");
                return Ok(());
            }
            Err(error) => eprintln!("{name}: runs, but is not ready ({error}): starting it anew"),
        }
    }
    down(service)?;
    let began = Instant::now();
    let site = Site::create(service, ports::pick(service.ports())?)?;
    let started = service.start(&site);
    if let Err(error) = started.and_then(|()| process::until(site.home(), START, || service.ready(&site))) {
        let log = process::log_tail(site.home());
        down(service)?;
        return Err(format!("{error}\n{log}").into());
    }
    eprintln!("{name}: up in {:.1} s", began.elapsed().as_secs_f32());
    Ok(())
}

/// Stops the recorded processes of the service. Its folder stays, for its logs.
pub(crate) fn down(service: &dyn Service) -> Result<()> {
    let Some(site) = Site::open(service) else { return Ok(()) };
    if process::stop_all(site.home(), service.stop_signal())? {
        eprintln!("{}: stopped", service.name());
    }
    Ok(fs::remove_file(site.record())?)
}
