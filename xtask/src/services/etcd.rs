//! An etcd cluster of three members.

use std::ops::Range;
use std::process::Command;
use std::time::Duration;

use super::packages::Package;
use super::site::Site;
use super::{Service, Variables, process};
use crate::util::{self, Result};

const MEMBERS: Range<u16> = 0..3;
/// The ports on which the members talk to each other lie this far above those for clients.
const PEER: u16 = 3;
const ASK: Duration = Duration::from_secs(5);

static PACKAGES: &[Package] = &[
    Package { program: "etcd", debian: "etcd-server" },
    Package { program: "etcdctl", debian: "etcd-client" },
];

/// The cluster.
pub(crate) struct Etcd;

impl Service for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn needed_by(&self) -> &'static str {
        "throttle-etcd"
    }

    fn packages(&self) -> &'static [Package] {
        PACKAGES
    }

    fn ports(&self) -> Range<u16> {
        40..46
    }

    fn start(&self, site: &Site) -> Result<()> {
        MEMBERS.into_iter().try_for_each(|n| {
            process::spawn(site.home(), &name(n), Command::new("etcd").args(arguments(site, n)))
        })
    }

    fn ready(&self, site: &Site) -> Result<()> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &site.addresses(MEMBERS), "endpoint", "health"]);
        util::output_within(ASK, &mut command).map(drop)
    }

    fn env(&self, site: &Site) -> Variables {
        let mut variables = Variables::default();
        variables.set("THROTTLE_TEST_ETCD_URL", format!("etcd://{}", site.addresses(MEMBERS)));
        variables
    }
}

fn name(n: u16) -> String {
    format!("member-{n}")
}

fn arguments(site: &Site, n: u16) -> Vec<String> {
    let peer = |n| format!("http://127.0.0.1:{}", site.port(PEER + n));
    let client = format!("http://127.0.0.1:{}", site.port(n));
    let members: Vec<_> = MEMBERS.map(|n| format!("{}={}", name(n), peer(n))).collect();
    let data = site.file(&format!("data-{n}")).to_string_lossy().into_owned();
    [
        ("--name", name(n)),
        ("--data-dir", data),
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client),
        ("--listen-peer-urls", peer(n)),
        ("--initial-advertise-peer-urls", peer(n)),
        ("--initial-cluster", members.join(",")),
        ("--auto-compaction-mode", "revision".to_owned()),
        ("--auto-compaction-retention", "10000".to_owned()),
        ("--logger", "zap".to_owned()),
        ("--log-level", "warn".to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}
