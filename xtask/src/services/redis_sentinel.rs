//! A Redis primary with one replica, watched by three sentinels of which two must agree.

use std::ops::Range;
use std::time::Duration;

use super::packages::Package;
use super::redis_cli::{self, Cli};
use super::site::Site;
use super::{Service, Variables, process};
use crate::util::Result;

/// What the sentinels call the pair.
const SERVICE: &str = "throttle";
const PRIMARY: u16 = 0;
const REPLICA: u16 = 1;
const SENTINELS: Range<u16> = 2..5;
const LINK: Duration = Duration::from_secs(20);

/// The sentinel topology.
pub(crate) struct RedisSentinel;

impl Service for RedisSentinel {
    fn name(&self) -> &'static str {
        "redis-sentinel"
    }

    fn needed_by(&self) -> &'static str {
        "throttle-redis"
    }

    fn packages(&self) -> &'static [Package] {
        redis_cli::PACKAGES
    }

    fn ports(&self) -> Range<u16> {
        20..25
    }

    /// The sentinels come last: they learn of the replica when they first ask the primary.
    fn start(&self, site: &Site) -> Result<()> {
        let primary = site.port(PRIMARY);
        let mut following = redis_cli::data_node(site.port(REPLICA));
        following.push(format!("replicaof 127.0.0.1 {primary}"));
        redis_cli::spawn(site, "primary", &redis_cli::data_node(primary), &[])?;
        redis_cli::spawn(site, "replica", &following, &[])?;
        process::until(site.home(), LINK, || linked(site))?;
        SENTINELS.into_iter().try_for_each(|n| {
            redis_cli::spawn(
                site,
                &format!("sentinel-{n}"),
                &sentinel(site.port(n), primary),
                &["--sentinel"],
            )
        })
    }

    /// Asks for a whole group and not for the roles of the start, which a failover exchanges.
    fn ready(&self, site: &Site) -> Result<()> {
        linked(site)?;
        SENTINELS.map(|n| Cli::new(site.port(n))).try_for_each(|sentinel| {
            let master = sentinel.ask(&["SENTINEL", "MASTER", SERVICE])?;
            require(&master, "flags", "master")?;
            require(&master, "num-slaves", "1")?;
            require(&master, "num-other-sentinels", "2")?;
            require(&sentinel.ask(&["SENTINEL", "REPLICAS", SERVICE])?, "flags", "slave")
        })
    }

    fn env(&self, site: &Site) -> Variables {
        let mut variables = Variables::default();
        let url = format!("redis+sentinel://{}/{SERVICE}", site.addresses(SENTINELS));
        variables.set("THROTTLE_TEST_REDIS_SENTINEL_URL", url);
        variables
    }
}

/// Times are short, so that a test need not wait long for a failover.
fn sentinel(port: u16, primary: u16) -> Vec<String> {
    vec![
        format!("port {port}"),
        format!("sentinel monitor {SERVICE} 127.0.0.1 {primary} 2"),
        format!("sentinel down-after-milliseconds {SERVICE} 1000"),
        format!("sentinel failover-timeout {SERVICE} 5000"),
        format!("sentinel parallel-syncs {SERVICE} 1"),
    ]
}

/// One of the two is the primary, and the other follows it.
fn linked(site: &Site) -> Result<()> {
    let role = |n| Cli::new(site.port(n)).ask(&["INFO", "replication"]);
    let roles = [role(PRIMARY)?, role(REPLICA)?];
    let leads = roles.iter().any(|role| role.contains("role:master") && role.contains("connected_slaves:1"));
    let follows = roles.iter().any(|role| role.contains("master_link_status:up"));
    if leads && follows { Ok(()) } else { Err("the replica does not follow its primary".into()) }
}

/// Fails unless the field has the value, in an answer of alternating names and values.
fn require(answer: &str, field: &str, value: &str) -> Result<()> {
    let found = answer.lines().skip_while(|line| *line != field).nth(1);
    if found == Some(value) {
        return Ok(());
    }
    Err(format!("{field} is {}, not {value}", found.unwrap_or("absent")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_from_alternating_lines() {
        let answer = "name\nflags-of-it\nflags\nslave,s_down\n";
        assert_eq!(
            require(answer, "flags", "slave").unwrap_err().to_string(),
            "flags is slave,s_down, not slave"
        );
        require(answer, "name", "flags-of-it").unwrap();
        assert_eq!(require(answer, "epoch", "1").unwrap_err().to_string(), "epoch is absent, not 1");
    }
}
