//! One PostgreSQL cluster with a user and a password, on a plain and TLS port and on a socket.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::packages::Package;
use super::site::Site;
use super::tls::{self, Certificate};
use super::{Service, Variables, process, run_as};
use crate::util::{self, Result};

pub(super) const USER: &str = "throttle";
/// With characters that a URL must escape, so that the tests notice who does not.
pub(super) const PASSWORD: &str = "pa:ss/w@rd";
pub(super) const PASSWORD_IN_URL: &str = "pa%3Ass%2Fw%40rd";

/// Debian keeps the programs of each version in a folder of its own, and only the client on the path.
pub(super) static PACKAGES: &[Package] = &[
    Package { program: "pg_ctlcluster", debian: "postgresql" },
    Package { program: "psql", debian: "postgresql-client" },
    Package { program: "openssl", debian: "openssl" },
];

const ANSWER: Duration = Duration::from_secs(5);
const INIT: Duration = Duration::from_secs(60);

/// Nothing survives a crash of the machine, which no test makes; all else is as it comes.
const SETTINGS: &str = "
fsync = off
full_page_writes = off
unix_socket_directories = ''
listen_addresses = '127.0.0.1'
logging_collector = off
log_min_messages = warning
log_min_error_statement = panic
";

const TLS: &str = "
ssl = on
ssl_cert_file = 'server.pem'
ssl_key_file = 'server.key'
";

/// The one server.
pub(crate) struct Postgres;

impl Service for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn needed_by(&self) -> &'static str {
        "throttle-postgres"
    }

    fn packages(&self) -> &'static [Package] {
        PACKAGES
    }

    fn ports(&self) -> Range<u16> {
        30..31
    }

    fn start(&self, site: &Site) -> Result<()> {
        let data = create(site)?;
        let Certificate { server, key, .. } = Certificate::make(site)?;
        fs::copy(server, data.join("server.pem"))?;
        fs::copy(key, data.join("server.key"))?;
        append(&data, TLS)?;
        spawn(site)
    }

    fn ready(&self, site: &Site) -> Result<()> {
        ask(site.port(0), "postgres", "SELECT 1").map(drop)
    }

    fn env(&self, site: &Site) -> Variables {
        let url = url(site.port(0), "postgres");
        let mut variables = Variables::default();
        variables.set("THROTTLE_TEST_POSTGRES_CA", tls::authority(site).to_string_lossy());
        variables.set("THROTTLE_TEST_POSTGRES_URL", url);
        variables
    }

    /// Ends the sessions too; the gentle way waits for them.
    fn stop_signal(&self) -> &'static str {
        "INT"
    }
}

/// Where a database of the server on this port is.
pub(super) fn url(port: u16, database: &str) -> String {
    format!("postgres://{USER}:{PASSWORD_IN_URL}@127.0.0.1:{port}/{database}")
}

/// What the server answers.
pub(super) fn ask(port: u16, database: &str, statement: &str) -> Result<String> {
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--tuples-only", "--no-align", "--command", statement]);
    util::output_within(ANSWER, command.arg(url(port, database)))
}

/// A new cluster in the folder, with its settings; not running.
pub(super) fn create(site: &Site) -> Result<PathBuf> {
    let (data, password) = (site.file("data"), site.file("password"));
    fs::write(&password, PASSWORD)?;
    run_as::give(site.home())?;
    let mut command = run_as::unprivileged(&program("initdb")?, site.home())?;
    command.arg("--pgdata").arg(&data).args(["--username", USER, "--pwfile"]).arg(&password);
    command.args(["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"]);
    util::output_within(INIT, &mut command)?;
    append(&data, &format!("{SETTINGS}port = {}\n", site.port(0)))?;
    Ok(data)
}

fn append(data: &Path, settings: &str) -> Result<()> {
    let file = data.join("postgresql.conf");
    let lines = fs::read_to_string(&file)? + settings;
    Ok(fs::write(file, lines)?)
}

/// Starts the cluster.
pub(super) fn spawn(site: &Site) -> Result<()> {
    run_as::give(site.home())?;
    let mut command = run_as::unprivileged(&program("postgres")?, site.home())?;
    process::spawn(site.home(), "server", command.arg("-D").arg(site.file("data")))
}

/// The path of a program of the newest version there is.
fn program(name: &str) -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(version);
    let program = newest.map_or_else(|| PathBuf::from(name), |path| path.join("bin").join(name));
    if program.is_absolute() && !program.is_file() {
        return Err(format!("no {}", program.display()).into());
    }
    Ok(program)
}
