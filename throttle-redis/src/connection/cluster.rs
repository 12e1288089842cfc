//! A cluster: the driver keeps its map and its connections; what it does not send again is sent again here.

use std::fmt;

use redis::aio::ConnectionLike;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, ErrorKind, Pipeline, RedisError as DriverError, RedisResult, ServerErrorKind, Value};
use tokio::time::{Instant, timeout, timeout_at};

use super::{Node, reply};
use crate::RedisError;
use crate::config::Settings;
use crate::error::{classify, classify_connect};

/// See the module. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub(crate) struct Cluster(ClusterConnection);

impl Cluster {
    pub(super) async fn open(client: &ClusterClient, settings: &Settings) -> Result<Self, RedisError> {
        let connected = timeout(2 * settings.connect_deadline, client.get_async_connection()).await;
        let connected = connected.map_err(|elapsed| DriverError::from(std::io::Error::from(elapsed)));
        connected.and_then(|connected| connected).map(Self).map_err(classify_connect)
    }

    pub(super) async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, RedisError> {
        in_time(self.follow(command), deadline).await
    }

    pub(super) async fn nodes(&self, deadline: Instant) -> Result<Vec<Node>, RedisError> {
        let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let mut connection = self.0.clone();
        let Value::Map(replies) =
            in_time(connection.route_command(redis::cmd("PING"), all), deadline).await?
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
        let mut connection = self.0.clone();
        in_time(connection.route_pipeline(commands.clone(), 0, commands.len(), node), deadline).await
    }

    /// Goes after a key that is, or is being, moved to another node: the first one has not run anything. The driver has
    /// a new map by the time it takes the second command.
    async fn follow(&self, command: &Cmd) -> RedisResult<Value> {
        let mut connection = self.0.clone();
        let error = match connection.req_packed_command(command).await.and_then(reply) {
            Err(error) => error,
            value => return value,
        };
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                connection.req_packed_command(command).await.and_then(reply)
            }
            ErrorKind::Server(ServerErrorKind::Ask) => {
                let Some(Node::At { host, port }) =
                    error.redirect_node().and_then(|(address, _)| node_at(address))
                else {
                    return Err(error);
                };
                let mut asking = redis::pipe();
                asking.cmd("ASKING").add_command(command.clone());
                let node = SingleNodeRoutingInfo::ByAddress { host, port };
                let values = connection.route_pipeline(asking, 1, 1, node).await?;
                values.into_iter().next().map_or(Err(error), reply)
            }
            _ => Err(error),
        }
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
