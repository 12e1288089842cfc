//! Servers of a test's own, to break.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::FromRedisValue;
use throttle_redis::{RedisBackend, RedisConfig};

/// A `redis-server` that ends with this value. Only where Redis is known to be installed.
pub(crate) struct Own {
    child: Child,
    pub(crate) port: u16,
    dir: PathBuf,
}

impl Own {
    /// A server with more settings, as on its command line.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        super::server("THROTTLE_TEST_REDIS_URL");
        let server = Self::spawn(free_port(), settings);
        server.answers().await;
        server
    }

    /// The same on a certain port, not waiting for it.
    pub(crate) fn spawn(port: u16, settings: &[&str]) -> Self {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("redis-{port}"));
        std::fs::create_dir_all(&dir).unwrap();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(&dir)
            .args(["--enable-debug-command", "yes"])
            .args(settings)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, port, dir }
    }

    /// A sentinel that watches the server on `primary` alone, and fails over within a second or so.
    pub(crate) async fn sentinel(primary: u16) -> Self {
        let port = free_port();
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sentinel-{port}.conf"));
        let lines = [
            format!("port {port}"),
            "bind 127.0.0.1".to_owned(),
            format!("dir {}", env!("CARGO_TARGET_TMPDIR")),
            format!("sentinel monitor own 127.0.0.1 {primary} 1"),
            "sentinel down-after-milliseconds own 500".to_owned(),
            "sentinel failover-timeout own 3000".to_owned(),
        ];
        std::fs::write(&file, lines.join("\n")).unwrap();
        let mut command = Command::new("redis-server");
        let child = command.arg(&file).arg("--sentinel").stdout(Stdio::null()).spawn().unwrap();
        let sentinel = Self { child, port, dir: file };
        sentinel.answers().await;
        sentinel
    }

    async fn answers(&self) {
        let since = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            assert!(since.elapsed() < Duration::from_secs(20), "redis-server does not start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn config(&self) -> RedisConfig {
        RedisConfig::new(&self.url()).unwrap().response_deadline(Duration::from_secs(2)).unwrap()
    }

    pub(crate) async fn backend(&self) -> RedisBackend {
        RedisBackend::connect(self.config()).await.unwrap()
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        let client = redis::Client::open(self.url()).unwrap();
        let patient = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(10)))
            .set_response_timeout(Some(Duration::from_secs(20)));
        let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
        let mut words = command.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            command.arg(word);
        });
        command.query_async(&mut connection).await.unwrap()
    }

    /// Ends the process as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Keeps the process from doing anything, but not its connections from being open.
    pub(crate) fn hang(&self, span: Duration) {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("DEBUG SLEEP {}\r\n", span.as_secs()).as_bytes()).unwrap();
    }

    /// Stops the process as it is (`STOP`), or lets it go on (`CONT`).
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success(), "no {name} was sent");
    }

    pub(crate) fn restart(&mut self, settings: &[&str]) {
        self.kill();
        let again = Self::spawn(self.port, settings);
        drop(std::mem::replace(self, again));
    }

    pub(crate) fn dir(&self) -> &PathBuf {
        &self.dir
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
