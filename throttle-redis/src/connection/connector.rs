//! How connections are made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo, PushKind,
    RedisResult, TlsCertificates, TlsMode,
};
use throttle_core::SetupError;

use crate::config::{RedisConfig, setting};

/// How many commands may wait to be written before their callers wait instead.
const QUEUE: usize = 1_024;

/// How long the network may leave what was written unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// Makes connections to one server at a time.
pub(super) enum Connector {
    /// The server of a client.
    Client(Box<Client>),
    /// The primary that the first of these to answer names. Each stands alone, since any of them may be gone.
    Sentinels(Vec<Sentinel>),
}

/// One sentinel, and the server to ask it for.
pub(super) struct Sentinel {
    server: ConnectionInfo,
    service: String,
    config: RedisConfig,
}

/// A connection, and whether it has ended.
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    pub(super) ended: Arc<AtomicBool>,
}

impl Connector {
    pub(super) fn client(client: Client) -> Self {
        Self::Client(Box::new(client))
    }

    pub(super) fn server(server: &ConnectionInfo, config: &RedisConfig) -> Result<Self, SetupError> {
        let server = server.clone().set_tcp_settings(tcp_settings());
        let client = match certificates(config) {
            None => Client::open(server),
            Some(certificates) => Client::build_with_tls(server, certificates),
        };
        client.map(Self::client).map_err(|_| unusable())
    }

    pub(super) fn sentinels(
        sentinels: &[ConnectionInfo],
        service: &str,
        config: &RedisConfig,
    ) -> Result<Self, SetupError> {
        let sentinels = sentinels.iter().map(|server| {
            let sentinel =
                Sentinel { server: server.clone(), service: service.to_owned(), config: config.clone() };
            sentinel.client().map(|_| sentinel)
        });
        sentinels.collect::<RedisResult<_>>().map(Self::Sentinels).map_err(|_| unusable())
    }

    /// A new connection; the primary's, as it is now.
    pub(super) async fn connect(&self, deadline: Duration) -> RedisResult<Connected> {
        match self {
            Self::Client(client) => connect(client, deadline).await,
            Self::Sentinels(sentinels) => {
                let each = sentinels.iter().map(|sentinel| Box::pin(sentinel.connect(deadline)));
                select_ok(each).await.map(|(connected, _)| connected)
            }
        }
    }
}

impl Sentinel {
    async fn connect(&self, deadline: Duration) -> RedisResult<Connected> {
        let found = tokio::time::timeout(deadline, async { self.client()?.async_get_client().await });
        connect(&found.await.map_err(std::io::Error::from)??, deadline).await
    }

    fn client(&self) -> RedisResult<SentinelClient> {
        let server = self.server.redis_settings();
        let address = self.server.addr().clone();
        let tls = matches!(address, redis::ConnectionAddr::TcpTls { .. });
        let mut builder = SentinelClientBuilder::new([address], &self.service, SentinelServerType::Master)?
            .set_client_to_redis_db(server.db())
            .set_client_to_redis_tcp_settings(tcp_settings());
        if let Some(user) = server.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = server.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(login) = &self.config.sentinel_login {
            builder = builder.set_client_to_sentinel_password(&login.password);
            if let Some(user) = &login.user {
                builder = builder.set_client_to_sentinel_username(user);
            }
        }
        if tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            if let Some(certificates) = certificates(&self.config) {
                builder = builder
                    .set_client_to_redis_certificates(certificates.clone())
                    .set_client_to_sentinel_certificates(certificates);
            }
        }
        builder.build()
    }
}

/// Through RESP3, which says when a connection ends, or RESP2 where that is not known.
async fn connect(client: &Client, deadline: Duration) -> RedisResult<Connected> {
    let ended = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&ended);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(deadline))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE);
    let told = config.clone().set_push_sender(move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            tells.store(true, Ordering::Release);
        }
        Ok::<_, redis::aio::SendError>(())
    });
    let modern = with_protocol(client, ProtocolVersion::RESP3)?;
    let connection = match modern.get_multiplexed_async_connection_with_config(&told).await {
        Err(error) if knows_no_resp3(&error) => {
            let old = with_protocol(client, ProtocolVersion::RESP2)?;
            old.get_multiplexed_async_connection_with_config(&config).await?
        }
        connected => connected?,
    };
    Ok(Connected { connection, ended })
}

fn with_protocol(client: &Client, protocol: ProtocolVersion) -> RedisResult<Client> {
    let server = client.get_connection_info().clone();
    let settings = server.redis_settings().clone().set_protocol(protocol);
    Client::open(server.set_redis_settings(settings))
}

fn knows_no_resp3(error: &redis::RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported || matches!(error.code(), Some("ERR" | "NOPROTO"))
}

/// A client of the cluster that never sends again on its own account: what was lost may have been run.
pub(super) fn cluster(nodes: &[ConnectionInfo], config: &RedisConfig) -> Result<ClusterClient, SetupError> {
    let mut builder = ClusterClient::builder(nodes.iter().cloned())
        .retries(0)
        .connection_timeout(config.settings.connect_deadline)
        .response_timeout(config.settings.response_deadline)
        .overall_response_timeout(None)
        .use_protocol(ProtocolVersion::RESP3)
        .tcp_settings(tcp_settings());
    if let Some(certificates) = certificates(config) {
        builder = builder.certs(certificates);
    }
    builder.build().map_err(|_| unusable())
}

/// TLS needs somebody's cryptography: that of the process if it has chosen one, else ours.
pub(super) fn prepare_tls() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may have been faster, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn certificates(config: &RedisConfig) -> Option<TlsCertificates> {
    let root_cert = config.root_certificates.clone()?;
    Some(TlsCertificates { client_tls: None, root_cert: Some(root_cert) })
}

fn tcp_settings() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED);
    settings
}

fn unusable() -> SetupError {
    setting("url", "these servers cannot be used together")
}
