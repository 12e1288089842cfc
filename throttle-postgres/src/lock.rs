//! Locks: a row for each that is held, and one statement for each call. `sql/lock.sql` says what it does.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use throttle_core::lock::{Acquisition, Fence, LockTtl, Owner};
use throttle_core::{LockBackend, stored_key};

use crate::script::Hexadecimal;
use crate::{PostgresBackend, PostgresError};

/// By the clock of the server, with no lag. The numbers of all locks come from one sequence.
///
/// Commits are waited for, so a lock and its number outlive a crash of the server. A standby that is promoted has what was
/// replicated to it: without synchronous replication a lock that it had not heard of is free, and its number may be given
/// again.
impl LockBackend for PostgresBackend {
    async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition, PostgresError> {
        let call = format!("number, expires_in FROM {}", self.lock_call("acquire", name, owner, Some(ttl)));
        acquisition(&self.only_row(&call).await?)
    }

    async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool, PostgresError> {
        is_holder(&self.only_row(&self.lock_call("extend", name, owner, Some(ttl))).await?)
    }

    async fn release(&self, name: &str, owner: Owner) -> Result<bool, PostgresError> {
        is_holder(&self.only_row(&self.lock_call("release", name, owner, None)).await?)
    }
}

impl PostgresBackend {
    fn lock_call(&self, function: &str, name: &str, owner: Owner, ttl: Option<LockTtl>) -> String {
        let (prefix, patience) = (self.settings.prefix(), self.settings.patience());
        let ttl = ttl.map(|ttl| format!("'{}',", ttl.as_duration().as_micros())).unwrap_or_default();
        format!(
            "{prefix}_{function}_1(E'\\\\x{}','{:032x}',{ttl}'{patience}')",
            Hexadecimal(stored_key(name).as_bytes()),
            owner.as_u128(),
        )
    }

    async fn only_row(&self, selected: &str) -> Result<PgRow, PostgresError> {
        let row = self.connection.rows(&format!("SELECT {selected}")).await?.pop();
        row.ok_or_else(|| PostgresError::answer("there is no row"))
    }
}

fn acquisition(row: &PgRow) -> Result<Acquisition, PostgresError> {
    Ok(match (number(row, 0)?, number(row, 1)?) {
        (Some(fence), _) => Acquisition::Held(Fence::new(fence)),
        (None, left) => Acquisition::Busy { expires_in: left.map(Duration::from_micros) },
    })
}

fn number(row: &PgRow, column: usize) -> Result<Option<u64>, PostgresError> {
    let number = row.try_get::<Option<i64>, _>(column).ok().map(|number| number.map(u64::try_from));
    match number.map(Option::transpose) {
        Some(Ok(number)) => Ok(number),
        _ => Err(PostgresError::answer("the numbers of a lock are not readable")),
    }
}

fn is_holder(row: &PgRow) -> Result<bool, PostgresError> {
    row.try_get(0).map_err(|_| PostgresError::answer("it does not say who holds the lock"))
}
