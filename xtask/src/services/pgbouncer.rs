//! PgBouncer with transaction pooling, in front of a PostgreSQL of its own.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use super::packages::Package;
use super::postgres::{self, PASSWORD, USER};
use super::site::Site;
use super::{Service, Variables, process, run_as};
use crate::util::Result;

static PACKAGES: &[Package] = &[
    Package { program: "pg_ctlcluster", debian: "postgresql" },
    Package { program: "psql", debian: "postgresql-client" },
    Package { program: "pgbouncer", debian: "pgbouncer" },
];
const SERVER: u16 = 0;
const POOLER: u16 = 1;
const START: Duration = Duration::from_secs(30);

/// The pooler and its server.
pub(crate) struct PgBouncer;

impl Service for PgBouncer {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn needed_by(&self) -> &'static str {
        "throttle-postgres"
    }

    fn packages(&self) -> &'static [Package] {
        PACKAGES
    }

    fn ports(&self) -> Range<u16> {
        31..33
    }

    fn start(&self, site: &Site) -> Result<()> {
        postgres::create(site)?;
        postgres::spawn(site)?;
        process::until(site.home(), START, || {
            postgres::ask(site.port(SERVER), "postgres", "SELECT 1").map(drop)
        })?;
        let (settings, users) = (site.file("pgbouncer.ini"), site.file("users.txt"));
        fs::write(&users, format!("\"{USER}\" \"{PASSWORD}\"\n"))?;
        fs::write(&settings, settings_of(site, &users))?;
        run_as::give(site.home())?;
        let mut command = run_as::unprivileged(Path::new("/usr/sbin/pgbouncer"), site.home())?;
        process::spawn(site.home(), "pooler", command.arg(settings))
    }

    fn ready(&self, site: &Site) -> Result<()> {
        postgres::ask(site.port(POOLER), "postgres", "SELECT 1").map(drop)
    }

    fn env(&self, site: &Site) -> Variables {
        let mut variables = Variables::default();
        variables.set("THROTTLE_TEST_PGBOUNCER_URL", postgres::url(site.port(POOLER), "postgres"));
        variables
    }

    fn stop_signal(&self) -> &'static str {
        "INT"
    }
}

/// Two connections for everybody, so that whoever relies on keeping one is found out.
fn settings_of(site: &Site, users: &Path) -> String {
    [
        "[databases]".to_owned(),
        format!("* = host=127.0.0.1 port={}", site.port(SERVER)),
        "[pgbouncer]".to_owned(),
        "listen_addr = 127.0.0.1".to_owned(),
        format!("listen_port = {}", site.port(POOLER)),
        "unix_socket_dir =".to_owned(),
        "auth_type = scram-sha-256".to_owned(),
        format!("auth_file = {}", users.display()),
        "pool_mode = transaction".to_owned(),
        "default_pool_size = 2".to_owned(),
        "max_client_conn = 400".to_owned(),
    ]
    .join("\n")
}
