//! Where one running service lives: its folder and its ports.

use std::fs;
use std::path::{Path, PathBuf};

use super::Service;
use crate::util::Result;

/// The folder of a service, and the port from which its own are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    home: PathBuf,
    first_port: u16,
}

impl Site {
    /// An empty folder for a service about to start.
    pub(crate) fn create(service: &dyn Service, first_port: u16) -> Result<Self> {
        let site = Self { home: super::home().join(service.name()), first_port };
        if site.home.exists() {
            fs::remove_dir_all(&site.home)?;
        }
        fs::create_dir_all(&site.home)?;
        fs::write(site.record(), first_port.to_string())?;
        Ok(site)
    }

    /// The folder of a service that was started and not stopped.
    pub(crate) fn open(service: &dyn Service) -> Option<Self> {
        let site = Self { home: super::home().join(service.name()), first_port: 0 };
        let first_port = fs::read_to_string(site.record()).ok()?.trim().parse().ok()?;
        Some(Self { first_port, ..site })
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// A file in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// The n-th port of the service.
    pub(crate) fn port(&self, n: u16) -> u16 {
        self.first_port.saturating_add(n)
    }

    /// `127.0.0.1:port` of the ports from the n-th on, with commas between.
    pub(crate) fn addresses(&self, ports: std::ops::Range<u16>) -> String {
        let addresses: Vec<_> = ports.map(|n| format!("127.0.0.1:{}", self.port(n))).collect();
        addresses.join(",")
    }

    /// The file that says the service was started, and on which ports.
    pub(crate) fn record(&self) -> PathBuf {
        self.file("first-port")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_counted_from_the_first_port() {
        let site = Site { home: PathBuf::new(), first_port: 12_010 };
        assert_eq!(site.addresses(2..4), "127.0.0.1:12012,127.0.0.1:12013");
    }
}
