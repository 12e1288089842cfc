//! How commands reach Redis: one seam over a server, the primary that sentinels name, and a cluster.

mod cluster;
mod connector;
mod link;

use redis::{Cmd, Pipeline, Value};
use throttle_core::SetupError;
use tokio::time::Instant;

use self::cluster::Cluster;
use self::connector::Connector;
use self::link::Link;
use crate::RedisError;
use crate::config::{RedisConfig, Servers, Settings};

/// Where commands go. Cheap to clone; all clones share their connections.
#[derive(Debug, Clone)]
pub(crate) enum Connection {
    /// One server at a time: the one configured, or the present primary.
    One(Link),
    /// Many; the driver knows which has which key.
    Cluster(Cluster),
}

/// One server among those of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    /// There is no other.
    Only,
    /// A primary of a cluster.
    At { host: String, port: u16 },
}

impl Connection {
    /// Connects. The inner error is that of a server which cannot be reached.
    pub(crate) async fn open(config: &RedisConfig) -> Result<Result<Self, RedisError>, SetupError> {
        if config.servers.use_tls() {
            connector::prepare_tls();
        }
        let connector = match &config.servers {
            Servers::One(server) => Connector::server(server, config)?,
            Servers::Sentinel { sentinels, service } => Connector::sentinels(sentinels, service, config)?,
            Servers::Cluster(nodes) => {
                let client = connector::cluster(nodes, config)?;
                return Ok(Cluster::open(&client, config).await.map(Self::Cluster));
            }
        };
        Ok(Self::open_link(connector, &config.settings).await)
    }

    /// The same with a client that somebody else has made.
    pub(crate) async fn open_client(client: redis::Client, settings: &Settings) -> Result<Self, RedisError> {
        if matches!(client.get_connection_info().addr(), redis::ConnectionAddr::TcpTls { .. }) {
            connector::prepare_tls();
        }
        Self::open_link(Connector::client(client), settings).await
    }

    async fn open_link(connector: Connector, settings: &Settings) -> Result<Self, RedisError> {
        let link = Link::new(connector, settings);
        link.open().await?;
        Ok(Self::One(link))
    }

    /// Whether one command may name keys of different slots.
    pub(crate) const fn has_all_keys_together(&self) -> bool {
        matches!(self, Self::One(_))
    }

    /// Sends `command` to the server of its key, and waits for the reply until `deadline`. It is never sent again to a
    /// server that may have run it. An error reply is an error, one inside an array stays there.
    ///
    /// Dropped, the command may be run or not.
    pub(crate) async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, RedisError> {
        match self {
            Self::One(link) => link.send(command, deadline).await,
            Self::Cluster(cluster) => cluster.send(command, deadline).await,
        }
    }

    /// Every server that has keys.
    pub(crate) async fn nodes(&self, deadline: Instant) -> Result<Vec<Node>, RedisError> {
        match self {
            Self::One(_) => Ok(vec![Node::Only]),
            Self::Cluster(cluster) => cluster.nodes(deadline).await,
        }
    }

    /// Sends several commands to one server; their replies in order, error replies among them.
    pub(crate) async fn send_all(
        &self,
        node: &Node,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, RedisError> {
        match (self, node) {
            (Self::One(link), _) => link.send_all(commands, deadline).await,
            (Self::Cluster(cluster), Node::At { host, port }) => {
                cluster.send_all(host, *port, commands, deadline).await
            }
            (Self::Cluster(_), Node::Only) => Err(RedisError::answer("a cluster has no only node")),
        }
    }
}

/// An error reply as an error; not those inside an array.
fn reply(value: Value) -> Result<Value, redis::RedisError> {
    match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}
