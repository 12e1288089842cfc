//! Servers of a test's own, to break.

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A `postgres` that ends with this value.
pub(crate) struct Own {
    child: Child,
    port: u16,
    dir: PathBuf,
    settings: Vec<String>,
}

impl Own {
    /// A server with more settings.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let port = free_port();
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("postgres-{port}"));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        chown(&dir, nobody(), nobody()).unwrap();
        let mut init = unprivileged("initdb");
        init.arg("-D").arg(dir.join("data")).args([
            "-U",
            "throttle",
            "-A",
            "trust",
            "--no-sync",
            "--locale=C",
        ]);
        assert!(init.stdout(Stdio::null()).status().unwrap().success());
        let settings: Vec<_> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let server = Self { child: spawn(port, &dir, &settings), port, dir, settings };
        server.answers().await;
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://throttle@127.0.0.1:{}/postgres", self.port)
    }

    async fn answers(&self) {
        let since = Instant::now();
        while super::ask(&self.url(), "SELECT 1").await.is_err() {
            assert!(since.elapsed() < Duration::from_secs(30), "postgres does not start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends the server as an administrator would who does not wait, and starts it again.
    pub(crate) async fn restart(&mut self) {
        self.stop("INT");
        self.start_again().await;
    }

    pub(crate) async fn start_again(&mut self) {
        self.child = spawn(self.port, &self.dir, &self.settings);
        self.answers().await;
    }

    /// Sends it to all processes of the server.
    pub(crate) fn signal_all(&self, signal: &str) {
        let server = self.child.id().to_string();
        let children = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children")).unwrap();
        let all = std::iter::once(server.as_str()).chain(children.split_whitespace());
        assert!(Command::new("kill").arg(format!("-{signal}")).args(all).status().unwrap().success());
    }

    /// Ends the server: `INT` rolls back what is open, `QUIT` is a crash.
    pub(crate) fn stop(&mut self, signal: &str) {
        let kill = Command::new("kill").arg(format!("-{signal}")).arg(self.child.id().to_string()).status();
        assert!(kill.unwrap().success());
        self.child.wait().unwrap();
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.stop("INT");
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn spawn(port: u16, dir: &Path, settings: &[String]) -> Child {
    let mut command = unprivileged("postgres");
    command.arg("-D").arg(dir.join("data")).args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k", ""]);
    for setting in
        ["fsync=off", "log_min_messages=fatal"].into_iter().chain(settings.iter().map(String::as_str))
    {
        command.args(["-c", setting]);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A program of the newest version there is, not as root, which these programs refuse.
fn unprivileged(program: &str) -> Command {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(version);
    let program = newest.map_or_else(|| program.into(), |path| path.join("bin").join(program));
    let closed = |above: &Path| above.metadata().unwrap().mode() & 1 == 0;
    match nobody() {
        None => Command::new(program),
        // Past folders that others may not enter, such as root's home.
        Some(nobody) if Path::new(env!("CARGO_TARGET_TMPDIR")).ancestors().any(closed) => {
            let mut command = Command::new("setpriv");
            command.args([
                format!("--reuid={nobody}"),
                format!("--regid={nobody}"),
                "--clear-groups".to_owned(),
            ]);
            command.args(["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--"]).arg(program);
            command
        }
        Some(nobody) => {
            let mut command = Command::new(program);
            command.uid(nobody).gid(nobody);
            command
        }
    }
}

fn nobody() -> Option<u32> {
    let own = std::fs::metadata("/proc/self").map_or(1, |own| own.uid());
    (own == 0).then_some(65_534)
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
