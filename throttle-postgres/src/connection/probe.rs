//! [`Probe`]: a connection beside the pool, to learn why the pool gets none.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use sqlx::{ConnectOptions, PgPool};
use tokio::time::timeout;

use crate::PostgresError;
use crate::error::classify_connect;

type Attempt = BoxFuture<'static, Result<(), PostgresError>>;

/// At most one attempt at a time: what it finds is for all who wait, who are many when a server has gone. It ends when
/// nobody waits for it any more.
#[derive(Default)]
pub(super) struct Probe(Mutex<Option<WeakShared<Attempt>>>);

impl Probe {
    /// What the attempt that goes on will find, or a new one of at most `deadline`.
    pub(super) fn result(&self, pool: &PgPool, deadline: Duration) -> Shared<Attempt> {
        let mut attempt = self.0.lock();
        let present = attempt.as_ref().and_then(WeakShared::upgrade);
        // One that is over may have been so for long.
        if let Some(present) = present.filter(|present| present.peek().is_none()) {
            return present;
        }
        let new = connect(pool.clone(), deadline).boxed().shared();
        *attempt = new.downgrade();
        new
    }
}

async fn connect(pool: PgPool, deadline: Duration) -> Result<(), PostgresError> {
    match timeout(deadline, pool.connect_options().connect()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(classify_connect(error)),
        Err(late) => Err(classify_connect(sqlx::Error::Io(late.into()))),
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe")
    }
}
