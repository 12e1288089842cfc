//! Clusters of a test's own, to break.

#![allow(clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use etcd_client::Client;
use throttle_etcd::{EtcdBackend, EtcdConfig};

/// Members of an etcd cluster that end with this value. Only where etcd is known to be installed.
pub(crate) struct Own {
    members: Vec<Member>,
    scheme: &'static str,
}

pub(crate) struct Member {
    words: Vec<String>,
    pub(crate) port: u16,
    dir: PathBuf,
    child: Option<Child>,
}

impl Own {
    /// One member with more settings, as on its command line. Fails where these tests are not to run.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        Self::cluster(1, settings).await
    }

    pub(crate) async fn cluster(members: usize, settings: &[&str]) -> Self {
        let own = Self::spawn(members, settings);
        own.answers().await;
        own
    }

    /// The same, not waiting for it.
    pub(crate) fn spawn(members: usize, settings: &[&str]) -> Self {
        super::url();
        let scheme = if settings.contains(&"--cert-file") { "https" } else { "http" };
        let ports: Vec<_> = (0..members).map(|_| (free_port(), free_port())).collect();
        let name = |port: u16| format!("own-{port}");
        let peers: Vec<_> =
            ports.iter().map(|(port, peer)| format!("{}=http://127.0.0.1:{peer}", name(*port))).collect();
        let start = |(port, peer): &(u16, u16)| {
            let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("etcd-{port}"));
            let _ = std::fs::remove_dir_all(&dir);
            let (client, peer) = (format!("{scheme}://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
            let mut words: Vec<String> = ["--name", &name(*port), "--data-dir", dir.to_str().unwrap()]
                .into_iter()
                .chain(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .chain(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .chain(["--initial-cluster", &peers.join(","), "--logger", "zap", "--log-level", "error"])
                .map(str::to_owned)
                .collect();
            words.extend(settings.iter().map(|setting| (*setting).to_owned()));
            Member { words, port: *port, dir, child: None }
        };
        let mut own = Self { members: ports.iter().map(start).collect(), scheme };
        (0..members).for_each(|at| own.restart(at));
        own
    }

    async fn answers(&self) {
        if self.scheme == "https" {
            return;
        }
        super::until("the start of etcd", Duration::from_secs(30), async || {
            let Ok(mut client) = Client::connect(self.addresses(), None).await else { return false };
            let asked = tokio::time::timeout(Duration::from_secs(1), client.get("ready", None)).await;
            // With users, nobody may ask; that is an answer too.
            asked.is_ok_and(|answer| match answer {
                Err(etcd_client::Error::GRpcStatus(status)) => status.code() == tonic::Code::InvalidArgument,
                answer => answer.is_ok(),
            })
        })
        .await;
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect()
    }

    pub(crate) fn url(&self) -> String {
        format!("etcd://{}", self.addresses().join(","))
    }

    pub(crate) fn config(&self) -> EtcdConfig {
        EtcdConfig::new(&self.url()).unwrap()
    }

    pub(crate) async fn backend(&self) -> EtcdBackend {
        EtcdBackend::connect(self.patient()).await.unwrap()
    }

    pub(crate) fn patient(&self) -> EtcdConfig {
        let long = Duration::from_secs(10);
        self.config().response_deadline(long).unwrap().connect_deadline(long).unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.addresses(), None).await.unwrap()
    }

    /// The place of the leader.
    pub(crate) async fn leader(&self) -> Option<usize> {
        for (place, address) in self.addresses().into_iter().enumerate() {
            let Ok(mut client) = Client::connect([address], None).await else { continue };
            let status = tokio::time::timeout(Duration::from_secs(1), client.status()).await;
            let Ok(Ok(status)) = status else { continue };
            if status.leader() != 0 && status.header().is_some_and(|own| own.member_id() == status.leader()) {
                return Some(place);
            }
        }
        None
    }

    /// Ends a member as a crash would.
    pub(crate) fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.members[at].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Keeps a member from doing anything, but not its connections from being open; or lets it go on.
    pub(crate) fn signal(&self, at: usize, signal: &str) {
        let pid = self.members[at].child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub(crate) fn restart(&mut self, at: usize) {
        self.kill(at);
        let member = &mut self.members[at];
        let log = std::fs::File::create(member.dir.with_extension("log")).unwrap();
        let child = Command::new("etcd").args(&member.words).stdout(Stdio::null()).stderr(log).spawn();
        member.child = Some(child.unwrap());
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.members[0].dir
    }

    /// Asks with `etcdctl`.
    pub(crate) fn ctl(&self, words: &[&str]) -> String {
        let endpoints = self.addresses().join(",");
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoints])
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|at| self.kill(at));
        for member in &self.members {
            let _ = std::fs::remove_dir_all(&member.dir);
        }
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
