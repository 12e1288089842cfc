//! The Redis servers of every topology: how one starts, and how it is asked.

use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::time::Duration;

use super::packages::Package;
use super::process;
use super::site::Site;
use crate::util::{self, Result};

/// Also the sentinel.
pub(crate) const SERVER: Package = Package { program: "redis-server", debian: "redis-server" };
pub(crate) const CLIENT: Package = Package { program: "redis-cli", debian: "redis-tools" };
pub(crate) static PACKAGES: &[Package] = &[SERVER, CLIENT];

const ANSWER: Duration = Duration::from_secs(5);

/// Starts a server from these lines of configuration, in a folder of its own.
pub(crate) fn spawn(site: &Site, name: &str, lines: &[String], options: &[&str]) -> Result<()> {
    let folder = site.file(name);
    fs::create_dir_all(&folder)?;
    let file = folder.join("redis.conf");
    let dir = format!("dir {}", folder.display());
    let common = [dir, "bind 127.0.0.1".to_owned(), "set-proc-title no".to_owned()];
    fs::write(&file, [&common[..], lines, &[String::new()]].concat().join("\n"))?;
    process::spawn(site.home(), name, Command::new("redis-server").arg(file).args(options))
}

/// The lines of a server that keeps nothing on disk and lets replicas in at once.
pub(crate) fn data_node(port: u16) -> Vec<String> {
    vec![
        format!("port {port}"),
        "save \"\"".to_owned(),
        "appendonly no".to_owned(),
        "repl-diskless-sync yes".to_owned(),
        "repl-diskless-sync-delay 0".to_owned(),
        "repl-ping-replica-period 1".to_owned(),
    ]
}

/// How to reach one server with `redis-cli`.
#[derive(Debug)]
pub(crate) struct Cli {
    options: Vec<OsString>,
    password: Option<&'static str>,
}

impl Cli {
    pub(crate) fn new(port: u16) -> Self {
        Self {
            options: vec!["-h".into(), "127.0.0.1".into(), "-p".into(), port.to_string().into()],
            password: None,
        }
    }

    pub(crate) fn user(mut self, user: &'static str, password: &'static str) -> Self {
        self.options.extend(["--user".into(), user.into()]);
        Self { password: Some(password), ..self }
    }

    pub(crate) fn tls(mut self, authority: OsString) -> Self {
        self.options.extend(["--tls".into(), "--cacert".into(), authority]);
        self
    }

    /// What the server answers.
    pub(crate) fn ask(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("redis-cli");
        command.args(&self.options).args(words).env_remove("REDISCLI_AUTH");
        if let Some(password) = self.password {
            command.env("REDISCLI_AUTH", password);
        }
        util::output_within(ANSWER, &mut command)
    }

    /// Fails unless the answer has all of these lines.
    pub(crate) fn answers(&self, words: &[&str], lines: &[&str]) -> Result<()> {
        let answer = self.ask(words)?;
        let has = |line: &&&str| !answer.lines().any(|l| l.trim_end() == **line);
        match lines.iter().find(has) {
            None => Ok(()),
            Some(line) => {
                Err(format!("{} does not say `{line}`: {}", words.join(" "), answer.trim_end()).into())
            }
        }
    }
}
