//! The schema: made and brought up to date by whoever comes first, and checked by everybody.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use throttle_core::{ConnectError, SetupError, StoreUnavailableError};

use crate::PostgresError;
use crate::backend::NAME;
use crate::config::Settings;
use crate::connection::{Connection, Lease};

/// The version of the schema that this program knows.
///
/// A later version adds functions beside those of earlier ones, whose names end in the version that brought them, so
/// that programs of both work side by side. One that breaks programs that know an earlier one says so in its mark.
const VERSION: i32 = 1;

/// What makes each version from the one before, and which programs work with it.
const MIGRATIONS: [Migration; 1] = [Migration {
    version: 1,
    usable_by: 1,
    files: &[
        include_str!("sql/table.sql"),
        include_str!("sql/rules.sql"),
        include_str!("sql/any_rules.sql"),
        include_str!("sql/decide_buckets.sql"),
        include_str!("sql/decide_many.sql"),
        include_str!("sql/decide.sql"),
        include_str!("sql/lock_table.sql"),
        include_str!("sql/lock.sql"),
        include_str!("sql/sweep.sql"),
    ],
}];

struct Migration {
    version: i32,
    usable_by: i32,
    files: &'static [&'static str],
}

const MARK: &str = include_str!("sql/schema.sql");

/// What stands in the SQL files for the schema alone, and for the table and the beginning of all other names.
const SCHEMA_ALONE: [&str; 2] = ["to_regnamespace('public')", "CREATE SCHEMA public;"];
const PLACEHOLDER: &str = "public.throttle";

/// Changes of the schema may have to wait for others that are at it.
const DEADLINE: Duration = Duration::from_secs(30);

/// All statements that make the schema, in one transaction.
pub(crate) fn sql(settings: &Settings) -> String {
    let files = named(MARK, settings) + &migrations(0, settings);
    format!("BEGIN;\n{}\n{files}\nCOMMIT;\n", lock(settings))
}

/// Makes the schema fit, or says why it does not.
pub(crate) async fn ensure(connection: &Connection, settings: &Settings) -> Result<(), ConnectError> {
    let mut lease = connection.lease().await.map_err(unavailable)?;
    if is_usable(&mut lease, settings).await? {
        return Ok(());
    }
    if !settings.migrate {
        let table = settings.prefix();
        return Err(unsupported(format!(
            "the schema of {table} is missing or too old; PostgresBackend::schema_sql says what makes it"
        )));
    }
    if let Err(error) = migrate(&mut lease, settings).await {
        // Whatever transaction is open ends with its connection.
        lease.discard();
        return Err(unavailable(error));
    }
    match is_usable(&mut lease, settings).await? {
        true => Ok(()),
        false => Err(unsupported("the schema is not there after it was made".to_owned())),
    }
}

async fn is_usable(lease: &mut Lease, settings: &Settings) -> Result<bool, ConnectError> {
    let newest =
        format!("SELECT version, usable_by FROM {}_schema ORDER BY version DESC LIMIT 1", settings.prefix());
    let (version, usable_by) = match lease.ask(newest, DEADLINE).await {
        Ok(rows) => (number(&rows, 0), number(&rows, 1)),
        Err(PostgresError::SchemaMissing(_)) => (0, 0),
        Err(error) => return Err(unavailable(error)),
    };
    if usable_by > VERSION {
        let table = settings.prefix();
        return Err(unsupported(format!(
            "the schema of {table} is of version {version}, too new for this program, which knows {VERSION}"
        )));
    }
    Ok(version >= VERSION)
}

/// In one transaction, under a lock, from the version that is found under it.
async fn migrate(lease: &mut Lease, settings: &Settings) -> Result<(), PostgresError> {
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED;".to_owned();
    lease.ask(begin + &lock(settings) + &named(MARK, settings), DEADLINE).await?;
    let present = format!("SELECT coalesce(max(version), 0) FROM {}_schema", settings.prefix());
    let present = number(&lease.ask(present, DEADLINE).await?, 0);
    lease.ask(migrations(present, settings) + "COMMIT", DEADLINE).await.map(drop)
}

fn migrations(present: i32, settings: &Settings) -> String {
    let mut sql = String::new();
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > present) {
        for file in migration.files {
            sql.push_str(&named(file, settings));
            sql.push('\n');
        }
        let Migration { version, usable_by, .. } = migration;
        sql.push_str(&format!(
            "INSERT INTO {}_schema VALUES ({version}, {usable_by}) ON CONFLICT DO NOTHING;\n",
            settings.prefix()
        ));
    }
    sql
}

/// Held until the end of the transaction; of these names, and no others.
fn lock(settings: &Settings) -> String {
    format!("SELECT pg_advisory_xact_lock(hashtextextended('{}', 0));", settings.prefix())
}

fn named(file: &str, settings: &Settings) -> String {
    let (schema, prefix) = (&settings.schema, settings.prefix());
    let mut sql = file.to_owned();
    for alone in SCHEMA_ALONE {
        sql = sql.replace(alone, &alone.replace("public", &format!("\"{schema}\"")));
    }
    if settings.unlogged {
        let table = format!("TABLE IF NOT EXISTS {PLACEHOLDER} (");
        sql = sql.replace(&format!("CREATE {table}"), &format!("CREATE UNLOGGED {table}"));
    }
    sql.replace(PLACEHOLDER, &prefix)
}

fn number(rows: &[PgRow], column: usize) -> i32 {
    rows.last().and_then(|row| row.try_get(column).ok()).unwrap_or(0)
}

pub(crate) fn unavailable(error: PostgresError) -> ConnectError {
    StoreUnavailableError::on_connect(NAME, error).into()
}

pub(crate) fn unsupported(reason: String) -> ConnectError {
    SetupError::Unsupported { backend: NAME, reason }.into()
}
