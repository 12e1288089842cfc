//! [`PostgresBackend`]: decisions by one function, one statement for each batch.

use std::sync::Arc;

use sqlx::{PgPool, Row};
use throttle_core::{Action, ConnectError, Outcome, PolicyName, Results, StoreBackend, stored_key};

use crate::PostgresError;
use crate::config::{PostgresConfig, Settings};
use crate::connection::Connection;
use crate::schema::{self, unsupported};
use crate::script::{Answers, Batch, Hexadecimal};
use crate::sweep::{self, Sweeper};

pub(crate) const NAME: &str = "postgres";

/// Most actions in one statement: more would keep rows from others for too long.
const BATCH: usize = 128;

/// How many rows one step of forgetting a policy removes.
const RESET_STEP: usize = 1_000;

/// The server's time in microseconds since the Unix epoch.
const CLOCK: &str = "extract(epoch FROM clock_timestamp()) * 1000000";

/// The first version that finds rows by page, and tells time exactly.
const OLDEST: u32 = 14;

/// PostgreSQL as a store of decisions. Cheap to clone; all clones share their connections, and with the last one the
/// sweep ends.
///
/// Time is the server's, unless an action brings its own. A dropped call is decided or not; its connection is closed.
///
/// ```no_run
/// use throttle_core::{Policy, RateLimiter, Rule};
/// use throttle_postgres::{PostgresBackend, PostgresConfig};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let config = PostgresConfig::new("postgres://limiter@localhost/shop")?;
/// let postgres = PostgresBackend::connect(config).await?;
/// let limiter = RateLimiter::new(Policy::new("api", [Rule::gcra("100/s")?])?, postgres);
/// assert!(limiter.check("alice").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PostgresBackend {
    pub(crate) connection: Connection,
    pub(crate) settings: Arc<Settings>,
    _sweeper: Arc<Sweeper>,
}

impl PostgresBackend {
    /// Connects, makes the schema unless told not to, and checks that it fits. Many processes may do so at once.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Unavailable`] if the server could not be reached or did not let us;
    /// [`ConnectError::Setup`] if it is too old, or if the schema is too new, or missing and not to be made:
    /// [`SetupError::Unsupported`](throttle_core::SetupError::Unsupported).
    pub async fn connect(config: PostgresConfig) -> Result<Self, ConnectError> {
        Self::checked(Connection::open(&config), config.settings).await
    }

    /// The same on a pool that the program already has. `config` gives names, deadlines and the sweep; its server and
    /// number of connections are not used.
    ///
    /// Behind PgBouncer the pool must send no setting that the pooler refuses: make it from options with
    /// `extra_float_digits(None)`, as [`connect`](Self::connect) does.
    ///
    /// # Keys in logs
    ///
    /// Statements have policies, keys and names of locks in them, as text and as hexadecimal digits, and a pool of `sqlx`
    /// logs statements unless told not to: each at the level `debug`, and with `warn` those that take a second. Where keys
    /// are addresses, users or tokens, make the pool without that, as [`connect`](Self::connect) does:
    ///
    /// ```no_run
    /// use sqlx::ConnectOptions;
    /// use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
    /// use throttle_postgres::{PostgresBackend, PostgresConfig};
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let url = "postgres://limiter@localhost/shop";
    /// let options = url.parse::<PgConnectOptions>()?.disable_statement_logging();
    /// let pool = PgPoolOptions::new().connect_with(options).await?;
    /// let postgres = PostgresBackend::from_pool(pool, &PostgresConfig::new(url)?).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub async fn from_pool(pool: PgPool, config: &PostgresConfig) -> Result<Self, ConnectError> {
        let settings = config.settings.clone();
        Self::checked(Connection::over(pool, &settings), settings).await
    }

    /// The statements that make the schema, for those who run them by another way. They may run again.
    ///
    /// ```
    /// use throttle_postgres::{PostgresBackend, PostgresConfig};
    ///
    /// let config = PostgresConfig::new("postgres://localhost/shop")?.schema("limits")?;
    /// assert!(PostgresBackend::schema_sql(&config).contains("CREATE TABLE IF NOT EXISTS \"limits\".throttle"));
    /// # Ok::<(), throttle_core::SetupError>(())
    /// ```
    #[must_use]
    pub fn schema_sql(config: &PostgresConfig) -> String {
        schema::sql(&config.settings)
    }

    /// Removes what has expired by now, which the sweep does by itself; how many keys and locks that were.
    ///
    /// # Errors
    ///
    /// A [`PostgresError`]. What was removed until then is gone.
    pub async fn sweep(&self) -> Result<u64, PostgresError> {
        sweep::sweep(&self.connection, &self.settings.prefix()).await
    }

    async fn checked(connection: Connection, settings: Settings) -> Result<Self, ConnectError> {
        schema::ensure(&connection, &settings).await?;
        let version = connection.rows("SHOW server_version_num").await.map_err(schema::unavailable)?;
        let version = version.first().and_then(|row| row.try_get::<&str, _>(0).ok()?.parse::<u32>().ok());
        match version.map(|version| version / 10_000) {
            Some(version) if version < OLDEST => {
                return Err(unsupported(format!("PostgreSQL {OLDEST} or later is needed, not {version}")));
            }
            _ => {}
        }
        let sweeper = Arc::new(Sweeper::start(&connection, &settings));
        Ok(Self { connection, settings: Arc::new(settings), _sweeper: sweeper })
    }

    async fn decide_batch(&self, actions: &[Action<'_>]) -> Results<Outcome, PostgresError> {
        let answers = self.ask(Batch::new(actions)).await;
        let missing = || Err(PostgresError::answer("an action has no answer"));
        let mut outcomes: Vec<_> = actions.iter().map(|_| missing()).collect();
        for (at, outcome) in answers {
            if let Some(place) = outcomes.get_mut(at) {
                *place = outcome;
            }
        }
        outcomes
    }

    /// What had no answer, and so was not decided, is asked once more in a way that waits for others.
    async fn ask(&self, batch: Batch<'_>) -> Answers {
        let (mut answers, rest) = self.ask_once(&batch).await;
        if let Some(rest) = rest {
            answers.extend(self.ask_once(&rest).await.0);
        }
        answers
    }

    async fn ask_once<'b>(&self, batch: &Batch<'b>) -> (Answers, Option<Batch<'b>>) {
        let statement = batch.statement(&self.settings.prefix(), self.settings.patience());
        match self.connection.rows(&statement).await {
            Ok(rows) => batch.answers(&rows),
            Err(error) => (batch.failed(&error), None),
        }
    }

    /// Removes rows of the policy from the key `from` on, in hexadecimal; how many counted, and which was the last.
    async fn reset_step(
        &self,
        policy: &PolicyName,
        from: &str,
    ) -> Result<(u64, Option<String>), PostgresError> {
        let table = self.settings.prefix();
        let statement = format!(
            "WITH gone AS (DELETE FROM {table} WHERE policy = '{policy}' AND key IN (\
             SELECT key FROM {table} WHERE policy = '{policy}' AND key >= decode('{from}', 'hex') \
             ORDER BY key LIMIT {RESET_STEP} FOR UPDATE) RETURNING key, expires_at) \
             SELECT count(*) FILTER (WHERE expires_at > {CLOCK}), max(encode(key, 'hex') COLLATE \"C\") FROM gone"
        );
        let rows = self.connection.rows(&statement).await?;
        let row = rows.first().ok_or_else(|| PostgresError::answer("there is no count"))?;
        let last = row.try_get::<Option<String>, _>(1).map_err(crate::error::classify)?;
        Ok((count(&rows)?, last))
    }
}

impl StoreBackend for PostgresBackend {
    type BaseError = PostgresError;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, PostgresError> {
        let missing = || Err(PostgresError::answer("an action has no answer"));
        self.decide_batch(std::slice::from_ref(action)).await.pop().unwrap_or_else(missing)
    }

    async fn decide_many(&self, actions: &[Action<'_>]) -> Results<Outcome, PostgresError> {
        let mut outcomes = Vec::with_capacity(actions.len());
        for actions in actions.chunks(BATCH) {
            outcomes.extend(self.decide_batch(actions).await);
        }
        outcomes
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, PostgresError> {
        let table = self.settings.prefix();
        let key = stored_key(key);
        let key = Hexadecimal(key.as_bytes());
        let statement = format!(
            "WITH gone AS (DELETE FROM {table} WHERE policy = '{policy}' AND key = decode('{key}', 'hex') \
             RETURNING expires_at) SELECT count(*) FROM gone WHERE expires_at > {CLOCK}"
        );
        count(&self.connection.rows(&statement).await?).map(|removed| removed > 0)
    }

    /// In steps of a thousand rows, each a statement with a deadline of its own.
    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, PostgresError> {
        let (mut removed, mut from) = (0, String::new());
        loop {
            let (counted, last) = self.reset_step(policy, &from).await?;
            removed += counted;
            match last {
                // The next key there can be.
                Some(last) => from = last + "00",
                None => return Ok(removed),
            }
        }
    }

    async fn ping(&self) -> Result<(), PostgresError> {
        self.connection.rows("SELECT 1").await.map(drop)
    }
}

fn count(rows: &[sqlx::postgres::PgRow]) -> Result<u64, PostgresError> {
    let count = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok());
    let count = count.and_then(|count| u64::try_from(count).ok());
    count.ok_or_else(|| PostgresError::answer("there is no count"))
}
