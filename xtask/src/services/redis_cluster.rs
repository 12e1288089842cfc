//! A Redis cluster: three masters with one replica each.

use std::ops::Range;
use std::process::Command;
use std::time::Duration;

use super::packages::Package;
use super::redis_cli::{self, Cli};
use super::site::Site;
use super::{Service, Variables, process};
use crate::util::{self, Result};

const NODES: Range<u16> = 0..6;
const MASTERS: Range<u16> = 0..3;
const FIRST_ANSWERS: Duration = Duration::from_secs(20);
const CREATE: Duration = Duration::from_secs(40);

/// The cluster topology.
pub(crate) struct RedisCluster;

impl Service for RedisCluster {
    fn name(&self) -> &'static str {
        "redis-cluster"
    }

    fn needed_by(&self) -> &'static str {
        "throttle-redis"
    }

    fn packages(&self) -> &'static [Package] {
        redis_cli::PACKAGES
    }

    fn ports(&self) -> Range<u16> {
        10..16
    }

    fn start(&self, site: &Site) -> Result<()> {
        for n in NODES {
            let mut lines = redis_cli::data_node(site.port(n));
            lines.push("cluster-enabled yes".to_owned());
            lines.push("cluster-node-timeout 2000".to_owned());
            redis_cli::spawn(site, &format!("node-{n}"), &lines, &[])?;
        }
        process::until(site.home(), FIRST_ANSWERS, || {
            NODES.map(|n| Cli::new(site.port(n))).try_for_each(|node| node.answers(&["PING"], &["PONG"]))
        })?;
        create(site)
    }

    fn ready(&self, site: &Site) -> Result<()> {
        let mut replicas = 0;
        for n in NODES {
            let node = Cli::new(site.port(n));
            let whole =
                ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:6", "cluster_size:3"];
            node.answers(&["CLUSTER", "INFO"], &whole)?;
            let role = node.ask(&["INFO", "replication"])?;
            replicas += usize::from(role.contains("master_link_status:up"));
        }
        if replicas == 3 {
            Ok(())
        } else {
            Err(format!("{replicas} of 3 replicas follow their master").into())
        }
    }

    fn env(&self, site: &Site) -> Variables {
        let mut variables = Variables::default();
        let url = format!("redis+cluster://{}", site.addresses(MASTERS));
        variables.set("THROTTLE_TEST_REDIS_CLUSTER_URL", url);
        variables
    }
}

/// Joins the nodes; `redis-cli` chooses masters, slots and replicas.
fn create(site: &Site) -> Result<()> {
    let mut command = Command::new("redis-cli");
    command.args(["--cluster", "create"]).args(site.addresses(NODES).split(','));
    command.args(["--cluster-replicas", "1", "--cluster-yes"]);
    util::output_within(CREATE, &mut command).map(drop)
}
