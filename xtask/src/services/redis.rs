//! One Redis server with a user and a password, on a plain port and on a TLS port.

use std::fs;
use std::ops::Range;

use super::packages::Package;
use super::redis_cli::{self, Cli};
use super::site::Site;
use super::{Service, Variables, tls};
use crate::util::Result;

const USER: &str = "throttle";
/// With characters that a URL must escape, so that the tests notice who does not.
const PASSWORD: &str = "pa:ss/w@rd";
const PASSWORD_IN_URL: &str = "pa%3Ass%2Fw%40rd";

static PACKAGES: &[Package] =
    &[redis_cli::SERVER, redis_cli::CLIENT, Package { program: "openssl", debian: "openssl" }];

/// The standalone topology.
pub(crate) struct Redis;

impl Service for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn needed_by(&self) -> &'static str {
        "throttle-redis"
    }

    fn packages(&self) -> &'static [Package] {
        PACKAGES
    }

    fn ports(&self) -> Range<u16> {
        0..2
    }

    fn start(&self, site: &Site) -> Result<()> {
        let certificate = tls::Certificate::make(site)?;
        let users = site.file("users.acl");
        fs::write(&users, format!("user default off\nuser {USER} on >{PASSWORD} ~* &* +@all\n"))?;
        let mut lines = redis_cli::data_node(site.port(0));
        lines.extend([
            format!("aclfile {}", users.display()),
            format!("tls-port {}", site.port(1)),
            format!("tls-cert-file {}", certificate.server.display()),
            format!("tls-key-file {}", certificate.key.display()),
            format!("tls-ca-cert-file {}", certificate.authority.display()),
            "tls-auth-clients no".to_owned(),
        ]);
        redis_cli::spawn(site, "server", &lines, &[])
    }

    fn ready(&self, site: &Site) -> Result<()> {
        let authority = tls::authority(site).into_os_string();
        Cli::new(site.port(0)).user(USER, PASSWORD).answers(&["PING"], &["PONG"])?;
        Cli::new(site.port(1)).user(USER, PASSWORD).tls(authority).answers(&["PING"], &["PONG"])
    }

    fn env(&self, site: &Site) -> Variables {
        let url = |scheme, n| format!("{scheme}://{USER}:{PASSWORD_IN_URL}@127.0.0.1:{}/0", site.port(n));
        let mut variables = Variables::default();
        variables.set("THROTTLE_TEST_REDIS_URL", url("redis", 0));
        variables.set("THROTTLE_TEST_REDIS_TLS_URL", url("rediss", 1));
        variables.set("THROTTLE_TEST_REDIS_CA", tls::authority(site).to_string_lossy());
        variables
    }
}
