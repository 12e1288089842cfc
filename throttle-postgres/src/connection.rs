//! [`Connection`]: statements in the simple protocol, each on a connection of the pool, each with a deadline.
//!
//! The simple protocol is one message there and one back, with no prepared statement, so that a pooler may give each
//! statement to another server process.

mod probe;
mod spare;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, PgPool, Postgres};
use throttle_core::SeenThrough;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use crate::PostgresError;
use crate::config::{PostgresConfig, Settings};
use crate::error::{classify, classify_connect};

use self::probe::Probe;
use self::spare::Spare;

/// How often a statement is sent that others made the server roll back.
const TRIES: usize = 5;

/// A connection that was idle for longer is asked whether it is alive before it is used.
const SURELY_ALIVE: Duration = Duration::from_secs(1);

/// What makes a transaction see what others have done meanwhile, whatever the defaults of the server are.
const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;";

/// The pool, and what was learned about the server.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pool: PgPool,
    spare: Arc<Spare>,
    probe: Arc<Probe>,
    /// Places for attempts to connect that go on without their callers.
    seen_through: Arc<Semaphore>,
    acquire_deadline: Duration,
    response_deadline: Duration,
    /// Whether the defaults of the server are stricter than read committed.
    is_strict: Arc<AtomicBool>,
    /// How many connections are in use by us.
    leased: Arc<AtomicUsize>,
    /// Whether others use the pool too.
    is_shared: bool,
}

impl Connection {
    pub(crate) fn open(config: &PostgresConfig) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(config.max_connections)
            .acquire_timeout(config.settings.acquire_deadline)
            .test_before_acquire(false)
            .before_acquire(|connection, seen| {
                Box::pin(async move {
                    if seen.idle_for > SURELY_ALIVE {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_lazy_with(config.options.clone());
        Self { is_shared: false, ..Self::over(pool, &config.settings) }
    }

    pub(crate) fn over(pool: PgPool, settings: &Settings) -> Self {
        Self {
            seen_through: Arc::new(Semaphore::new(most_connections(&pool))),
            pool,
            spare: Arc::default(),
            probe: Arc::default(),
            acquire_deadline: settings.acquire_deadline,
            response_deadline: settings.response_deadline,
            is_strict: Arc::default(),
            leased: Arc::default(),
            is_shared: true,
        }
    }

    /// The rows of one statement. It is sent again if it was rolled back because of others.
    pub(crate) async fn rows(&self, statement: &str) -> Result<Vec<PgRow>, PostgresError> {
        let mut tries = 1;
        loop {
            match self.try_rows(statement).await {
                Err(error) if error.is_conflict() && tries < TRIES => {
                    self.is_strict.store(true, Ordering::Relaxed);
                    tries += 1;
                }
                rows => return rows,
            }
        }
    }

    async fn try_rows(&self, statement: &str) -> Result<Vec<PgRow>, PostgresError> {
        let statement = match self.is_strict.load(Ordering::Relaxed) {
            true => format!("{READ_COMMITTED}{statement}"),
            false => statement.to_owned(),
        };
        let mut lease = self.lease().await?;
        lease.ask(statement, self.response_deadline).await
    }

    /// A connection, within the acquire deadline.
    pub(crate) async fn lease(&self) -> Result<Lease, PostgresError> {
        if let Some(connection) = self.spare.take()
            && !self.pool.is_closed()
        {
            return Ok(Lease::new(connection, self));
        }
        self.acquire().await.map(|connection| Lease::new(connection, self))
    }

    async fn acquire(&self) -> Result<PoolConnection<Postgres>, PostgresError> {
        let deadline = Instant::now() + self.acquire_deadline;
        let mut acquire = pin!(self.acquire_for_good());
        if let Ok(acquired) = timeout(self.acquire_deadline / 4, &mut acquire).await {
            return acquired.map_err(classify_connect);
        }
        let acquired = match select(pin!(self.find_out(deadline)), acquire.as_mut()).await {
            Either::Left((found, acquire)) => {
                found?;
                timeout_at(deadline, acquire).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
            }
            Either::Right((Err(sqlx::Error::PoolTimedOut), finding)) => {
                finding.await?;
                Err(sqlx::Error::PoolTimedOut)
            }
            Either::Right((acquired, _)) => acquired,
        };
        acquired.map_err(classify_connect)
    }

    /// A connection that a caller has begun to make is made, and is there for the next one: there may be no caller who has
    /// as much time as it takes. For as many callers as there can be connections.
    async fn acquire_for_good(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let Ok(place) = Arc::clone(&self.seen_through).try_acquire_owned() else {
            return self.pool.acquire().await;
        };
        let acquire = timeout(self.acquire_deadline, self.pool.acquire());
        SeenThrough::new(async move {
            let acquired = acquire.await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
            drop(place);
            acquired
        })
        .await
    }

    /// The pool keeps trying while the server refuses, and then only says that time is up. Unless all connections are in
    /// use, this finds out what is wrong.
    async fn find_out(&self, deadline: Instant) -> Result<(), PostgresError> {
        let used = match self.is_shared {
            true => usize::try_from(self.pool.size()).unwrap_or(usize::MAX),
            false => self.leased.load(Ordering::Relaxed),
        };
        if used >= most_connections(&self.pool) {
            return Ok(());
        }
        let probed = timeout_at(deadline, self.probe.result(&self.pool, self.acquire_deadline)).await;
        probed.unwrap_or_else(|late| Err(classify_connect(sqlx::Error::Io(late.into()))))
    }
}

fn most_connections(pool: &PgPool) -> usize {
    usize::try_from(pool.options().get_max_connections())
        .map_or(Semaphore::MAX_PERMITS, |most| most.min(Semaphore::MAX_PERMITS))
}

/// A connection that goes back if its last answer was whole, and is closed otherwise: nobody else is to wait
/// for an answer that may never come.
pub(crate) struct Lease {
    connection: Option<PoolConnection<Postgres>>,
    is_whole: bool,
    owner: Connection,
    /// The pool takes connections back in a task, and a call may be dropped where no runtime is.
    runtime: Handle,
}

impl Lease {
    fn new(connection: PoolConnection<Postgres>, owner: &Connection) -> Self {
        owner.leased.fetch_add(1, Ordering::Relaxed);
        let runtime = Handle::current();
        Self { connection: Some(connection), is_whole: true, owner: owner.clone(), runtime }
    }

    /// The rows of all statements in the text.
    pub(crate) async fn ask(
        &mut self,
        statements: String,
        deadline: Duration,
    ) -> Result<Vec<PgRow>, PostgresError> {
        let Some(connection) = self.connection.as_mut() else {
            return Err(PostgresError::answer("the connection is gone"));
        };
        self.is_whole = false;
        let query = sqlx::raw_sql(AssertSqlSafe(statements)).fetch_all(&mut **connection);
        let Ok(answer) = timeout(deadline, query).await else { return Err(PostgresError::NoAnswerInTime) };
        self.is_whole = matches!(answer, Ok(_) | Err(sqlx::Error::Database(_)));
        answer.map_err(classify)
    }
}

impl Lease {
    /// Closes the connection.
    pub(crate) fn discard(mut self) {
        self.is_whole = false;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.owner.leased.fetch_sub(1, Ordering::Relaxed);
        let _within = self.runtime.enter();
        match self.connection.take() {
            Some(connection) if self.is_whole => {
                self.owner.spare.keep(connection, &self.owner.pool, &self.runtime);
            }
            Some(connection) => drop(connection.detach()),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use throttle_core::{BaseErrorSet, ErrorKind};
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    use super::*;

    /// Counts those who connect, and says nothing to them.
    async fn count_connects(listener: TcpListener, count: Arc<AtomicUsize>) {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn of_a_thousand_callers_one_finds_out_what_is_wrong() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://u@{}/d?sslmode=disable", listener.local_addr().unwrap());
        let config = PostgresConfig::new(&url).unwrap().max_connections(4).unwrap();
        let connection = Connection::open(&config.acquire_deadline(Duration::from_secs(4)).unwrap());
        let connects = Arc::new(AtomicUsize::new(0));
        tokio::spawn(count_connects(listener, Arc::clone(&connects)));
        // Well after everybody has become impatient, and before the first give up and let others try.
        let look = async {
            sleep(Duration::from_millis(2_500)).await;
            connects.load(Ordering::Relaxed)
        };
        let callers = join_all((0..1_000).map(|_| connection.rows("SELECT 1")));
        let (answers, opened) = tokio::join!(callers, look);
        assert_eq!(opened, 5, "the pool's four, and one to find out");
        for answer in answers {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Connection);
        }
    }
}
