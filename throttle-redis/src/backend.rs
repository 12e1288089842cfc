//! [`RedisBackend`]: decisions by one script, in one round trip.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue, Pipeline, Value};
use throttle_core::{
    Action, ConnectError, Outcome, Policy, PolicyName, Results, Rule, SetupError, StoreBackend,
    StoreUnavailableError, storage_key, storage_prefix,
};
use tokio::time::Instant;

use crate::RedisError;
use crate::config::{RedisConfig, Settings};
use crate::connection::{Connection, Node};
use crate::error::classify;
use crate::script::{self, Source};

/// Most actions in one run of the script: more would keep the server from others for too long.
const BATCH: usize = 128;

/// How many keys one step of a scan looks at.
const SCAN_STEP: usize = 512;

/// The first version that can replace a value and leave its time to live (`KEEPTTL`).
const OLDEST: u32 = 6;

const NAME: &str = "redis";

/// Redis as a store of decisions. Cheap to clone; all clones share their connections.
///
/// Time is the server's, unless an action brings its own. A dropped call is decided or not, and leaves nothing behind;
/// a connection that is being made is made to its end, or its deadline.
///
/// # Panics
///
/// Every operation panics outside a tokio runtime with its timer enabled.
///
/// ```no_run
/// use throttle_core::{Policy, RateLimiter, Rule};
/// use throttle_redis::{RedisBackend, RedisConfig};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = RedisBackend::connect(RedisConfig::new("redis://127.0.0.1")?).await?;
/// let limiter = RateLimiter::new(Policy::new("api", [Rule::gcra("100/s")?])?, redis);
/// assert!(limiter.check("alice").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RedisBackend {
    connection: Connection,
    settings: Arc<Settings>,
}

impl RedisBackend {
    /// Connects, and checks that the server can run the script.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Unavailable`] if no server could be reached within the connect deadline;
    /// [`ConnectError::Setup`] if the servers cannot be used, or not for this: [`SetupError::Unsupported`].
    pub async fn connect(config: RedisConfig) -> Result<Self, ConnectError> {
        let connection = Connection::open(&config).await?;
        Self::checked(connection, config.settings).await
    }

    /// The same with a client of the driver, for what a URL cannot say: certificates of one's own, credentials that
    /// change. `config` gives prefix and deadlines; its servers are not used.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub async fn from_client(client: redis::Client, config: &RedisConfig) -> Result<Self, ConnectError> {
        let connection = Connection::open_client(client, &config.settings).await;
        Self::checked(connection, config.settings.clone()).await
    }

    async fn checked(
        connection: Result<Connection, RedisError>,
        settings: Settings,
    ) -> Result<Self, ConnectError> {
        let unavailable = |error| ConnectError::from(StoreUnavailableError::on_connect(NAME, error));
        let connection = connection.map_err(unavailable)?;
        let backend = Self { connection, settings: Arc::new(settings) };
        let policy = Policy::new("connect", [Rule::gcra("1/s")?])?;
        match backend.decide(&Action::peek(&policy, "")).await {
            Ok(_) => {}
            Err(RedisError::Replied(cause)) => {
                return Err(unsupported(format!("the server does not run the script: {cause}")));
            }
            Err(error) => return Err(unavailable(error)),
        }
        match backend.major_version().await {
            Some(version) if version < OLDEST => {
                Err(unsupported(format!("Redis {OLDEST} or later is needed, not {version}")))
            }
            _ => Ok(backend),
        }
    }

    /// Of the server, if it says so; not all that behaves like Redis does.
    async fn major_version(&self) -> Option<u32> {
        let info = self.connection.send(redis::cmd("INFO").arg("server"), self.deadline()).await.ok()?;
        let info: String = redis::from_redis_value(info).ok()?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"))?;
        version.split('.').next()?.parse().ok()
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.settings.response_deadline
    }

    fn key_of(&self, action: &Action<'_>) -> String {
        storage_key(&self.settings.prefix, action.policy().name(), action.key())
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.settings.prefix
    }

    /// Runs a script, with its text if the server does not know it: then nothing of it has run.
    pub(crate) async fn run(
        &self,
        source: &Source,
        keys: &[String],
        fill: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Value, RedisError> {
        let deadline = self.deadline();
        match self.connection.send(&source.by_hash(keys, &fill), deadline).await {
            Err(RedisError::Replied(cause)) if cause.code() == Some("NOSCRIPT") => {
                self.connection.send(&source.by_text(keys, &fill), deadline).await
            }
            value => value,
        }
    }

    async fn run_decide(&self, keys: &[String], actions: &[Action<'_>]) -> Result<Value, RedisError> {
        self.run(&script::DECIDE, keys, |command| script::pack_all(actions, command)).await
    }

    /// Runs the script on keys of one server, one key or several.
    async fn run_batch(&self, keys: &[String], actions: &[Action<'_>]) -> Results<Outcome, RedisError> {
        let value = self.run_decide(keys, actions).await;
        match (value, actions) {
            (Err(error), _) => actions.iter().map(|_| Err(error.clone())).collect(),
            (Ok(value), [action]) => vec![outcome(value, action)],
            (Ok(Value::Array(values)), _) if values.len() == actions.len() => {
                values.into_iter().zip(actions).map(|(value, action)| outcome(value, action)).collect()
            }
            (Ok(_), _) => actions
                .iter()
                .map(|_| Err(RedisError::answer("there are not as many replies as actions")))
                .collect(),
        }
    }
}

impl StoreBackend for RedisBackend {
    type BaseError = RedisError;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, RedisError> {
        let keys = [self.key_of(action)];
        outcome(self.run_decide(&keys, std::slice::from_ref(action)).await?, action)
    }

    /// Many keys in one run of the script, or one run for each key where keys may be on different servers.
    async fn decide_many(&self, actions: &[Action<'_>]) -> Results<Outcome, RedisError> {
        let keys: Vec<_> = actions.iter().map(|action| self.key_of(action)).collect();
        if !self.connection.has_all_keys_together() {
            return self.decide_by_key(&keys, actions).await;
        }
        let mut outcomes = Vec::with_capacity(actions.len());
        for (keys, actions) in keys.chunks(BATCH).zip(actions.chunks(BATCH)) {
            outcomes.extend(self.run_batch(keys, actions).await);
        }
        outcomes
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, RedisError> {
        let mut command = redis::cmd("UNLINK");
        command.arg(storage_key(&self.settings.prefix, policy, key));
        let value = self.connection.send(&command, self.deadline()).await?;
        read::<u64>(value).map(|removed| removed > 0)
    }

    /// By `SCAN`, a step at a time on each server; a step has the response deadline.
    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, RedisError> {
        let pattern = format!("{}*", escape_glob(&storage_prefix(&self.settings.prefix, policy)));
        let mut removed = 0;
        for node in self.connection.nodes(self.deadline()).await? {
            let mut cursor = 0;
            loop {
                let keys;
                (cursor, keys) = self.scan(&node, cursor, &pattern).await?;
                removed += self.unlink(&node, &keys).await?;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(removed)
    }

    async fn ping(&self) -> Result<(), RedisError> {
        self.connection.send(&redis::cmd("PING"), self.deadline()).await.map(|_| ())
    }
}

/// A name of a key, as the server has it.
type KeyName = Vec<u8>;

impl RedisBackend {
    /// On a cluster: what is asked of one key goes together and in order, the keys at once.
    async fn decide_by_key(&self, keys: &[String], actions: &[Action<'_>]) -> Results<Outcome, RedisError> {
        let mut of_key = HashMap::<&String, Vec<usize>>::with_capacity(keys.len());
        for (position, key) in keys.iter().enumerate() {
            of_key.entry(key).or_default().push(position);
        }
        let groups = of_key.into_iter().map(async |(key, positions)| {
            let actions: Vec<_> = positions.iter().filter_map(|at| actions.get(*at)).copied().collect();
            let mut outcomes = Vec::with_capacity(actions.len());
            for actions in actions.chunks(BATCH) {
                outcomes.extend(self.run_batch(&vec![key.clone(); actions.len()], actions).await);
            }
            positions.into_iter().zip(outcomes).collect::<Vec<_>>()
        });
        let mut outcomes: Vec<_> = join_all(groups).await.into_iter().flatten().collect();
        outcomes.sort_unstable_by_key(|(position, _)| *position);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn scan(&self, node: &Node, cursor: u64, pattern: &str) -> Result<(u64, Vec<KeyName>), RedisError> {
        let mut scan = Pipeline::new();
        scan.cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_STEP);
        let values = self.connection.send_all(node, &scan, self.deadline()).await?;
        match values.into_iter().next() {
            Some(value) => read(value),
            None => Err(RedisError::answer("a scan has no reply")),
        }
    }

    /// Key by key, since they are in different slots.
    async fn unlink(&self, node: &Node, keys: &[KeyName]) -> Result<u64, RedisError> {
        if keys.is_empty() {
            return Ok(0);
        }
        let mut unlink = Pipeline::with_capacity(keys.len());
        for key in keys {
            unlink.cmd("UNLINK").arg(key);
        }
        let values = self.connection.send_all(node, &unlink, self.deadline()).await?;
        values.into_iter().map(read::<u64>).sum()
    }
}

fn unsupported(reason: String) -> ConnectError {
    SetupError::Unsupported { backend: NAME, reason }.into()
}

fn outcome(value: Value, action: &Action<'_>) -> Result<Outcome, RedisError> {
    match value {
        Value::BulkString(reply) => script::unpack(&reply, action),
        Value::ServerError(error) => Err(classify(error.into())),
        _ => Err(RedisError::answer("a reply is no bytes")),
    }
}

fn read<T: FromRedisValue>(value: Value) -> Result<T, RedisError> {
    let value = value.extract_error().map_err(classify)?;
    redis::from_redis_value(value).map_err(|error| classify(error.into()))
}

/// The text itself, in a pattern of `SCAN`.
fn escape_glob(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_the_text_itself() {
        assert_eq!(escape_glob(r"a*b?[c]\d"), r"a\*b\?\[c\]\\d");
    }
}
