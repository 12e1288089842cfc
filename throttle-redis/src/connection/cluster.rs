//! A cluster: the driver keeps its map and its connections; what it does not send again is sent again here.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use redis::aio::ConnectionLike;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::{
    Cmd, ConnectionAddr, ErrorKind, Pipeline, RedisError as DriverError, RedisResult, ServerErrorKind, Value,
};
use tokio::time::{Instant, timeout, timeout_at};

use super::connector::Connector;
use super::link::Link;
use super::{Node, reply};
use crate::RedisError;
use crate::config::RedisConfig;
use crate::error::{classify, classify_connect};

/// See the module. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub(crate) struct Cluster {
    driver: ClusterConnection,
    /// Nodes to which keys are on their way: the driver does not know them before they have arrived.
    receiving: Arc<Receiving>,
}

struct Receiving {
    config: RedisConfig,
    links: Mutex<HashMap<String, Link>>,
}

impl Cluster {
    pub(super) async fn open(client: &ClusterClient, config: &RedisConfig) -> Result<Self, RedisError> {
        let connected = timeout(2 * config.settings.connect_deadline, client.get_async_connection()).await;
        let connected = connected.map_err(|elapsed| DriverError::from(std::io::Error::from(elapsed)));
        let driver = connected.and_then(|connected| connected).map_err(classify_connect)?;
        let receiving = Receiving { config: config.clone(), links: Mutex::default() };
        Ok(Self { driver, receiving: Arc::new(receiving) })
    }

    /// Goes after a key that is, or is being, moved to another node: the first one has not run anything. After `MOVED`
    /// the driver has a new map by the time it takes the second command.
    pub(super) async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, RedisError> {
        let mut driver = self.driver.clone();
        let mut ask = async || driver.req_packed_command(command).await.and_then(reply);
        match timeout_at(deadline, ask()).await.map_err(|_| RedisError::NoAnswerInTime)? {
            Err(error) => match error.kind() {
                ErrorKind::Server(ServerErrorKind::Moved) => in_time(ask(), deadline).await,
                ErrorKind::Server(ServerErrorKind::Ask) => self.ask_there(error, command, deadline).await,
                _ => Err(classify(error)),
            },
            Ok(value) => Ok(value),
        }
    }

    /// Sends `command` to the node that `ASK` names.
    async fn ask_there(
        &self,
        error: DriverError,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, RedisError> {
        let link = error.redirect_node().and_then(|(address, _)| self.receiving.link_to(address));
        let Some(link) = link else { return Err(classify(error)) };
        let mut asking = redis::pipe();
        asking.cmd("ASKING").add_command(command.clone());
        let values = link.send_all(&asking, deadline).await?;
        values.into_iter().nth(1).map_or(Err(error), reply).map_err(classify)
    }

    pub(super) async fn nodes(&self, deadline: Instant) -> Result<Vec<Node>, RedisError> {
        let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let mut driver = self.driver.clone();
        let Value::Map(replies) = in_time(driver.route_command(redis::cmd("PING"), all), deadline).await?
        else {
            return Err(RedisError::answer("the cluster has no map of nodes"));
        };
        let nodes = replies.into_iter().map(|(address, pong)| {
            reply(pong).map_err(classify)?;
            let address: String = redis::from_redis_value(address).map_err(|error| classify(error.into()))?;
            node_at(&address).ok_or_else(|| RedisError::answer("the address of a node is not readable"))
        });
        nodes.collect()
    }

    pub(super) async fn send_all(
        &self,
        host: &str,
        port: u16,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, RedisError> {
        let node = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port };
        let mut driver = self.driver.clone();
        in_time(driver.route_pipeline(commands.clone(), 0, commands.len(), node), deadline).await
    }
}

impl Receiving {
    fn link_to(&self, address: &str) -> Option<Link> {
        let mut links = self.links.lock();
        if let Some(link) = links.get(address) {
            return Some(link.clone());
        }
        let Some(Node::At { host, port }) = node_at(address) else { return None };
        let known = self.config.servers.each().first()?;
        let there = match known.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let connector = Connector::server(&known.clone().set_addr(there), &self.config).ok()?;
        let link = Link::new(connector, &self.config.settings);
        links.insert(address.to_owned(), link.clone());
        Some(link)
    }
}

async fn in_time<T>(
    answer: impl Future<Output = RedisResult<T>>,
    deadline: Instant,
) -> Result<T, RedisError> {
    timeout_at(deadline, answer).await.map_err(|_| RedisError::NoAnswerInTime)?.map_err(classify)
}

fn node_at(address: &str) -> Option<Node> {
    let (host, port) = address.rsplit_once(':')?;
    Some(Node::At { host: host.to_owned(), port: port.parse().ok()? })
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}
