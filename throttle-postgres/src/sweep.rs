//! The sweep: removes expired rows in bounded steps, beside the decisions.

use std::time::Duration;

use sqlx::Row;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::PostgresError;
use crate::config::Settings;
use crate::connection::Connection;

/// How many pages of the table one step looks at: at most some thousand rows.
const STEP: i64 = 32;

/// What is waited between two steps, so that decisions come first.
const PAUSE: Duration = Duration::from_millis(10);

/// A task that sweeps until this value is dropped.
#[derive(Debug)]
pub(crate) struct Sweeper(Option<JoinHandle<()>>);

impl Sweeper {
    pub(crate) fn start(connection: &Connection, settings: &Settings) -> Self {
        let (connection, prefix) = (connection.clone(), settings.prefix());
        let task = settings.sweep_interval.map(|interval| {
            tokio::spawn(async move {
                loop {
                    sleep(interval).await;
                    // Whatever failed, decisions see it too, and the next round may find it mended.
                    let _ = sweep(&connection, &prefix).await;
                }
            })
        });
        Self(task)
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Removes what has expired by now, unless another process is at it; how many rows that were.
pub(crate) async fn sweep(connection: &Connection, prefix: &str) -> Result<u64, PostgresError> {
    let (mut first, mut removed) = (0, 0);
    loop {
        let step = format!("SELECT removed, all_pages FROM {prefix}_sweep_1({first}, {STEP})");
        let rows = connection.rows(&step).await?;
        let number = |column: usize| rows.first().and_then(|row| row.try_get::<i64, _>(column).ok());
        let (Some(rows), Some(pages)) = (number(0), number(1)) else { return Ok(removed) };
        removed += u64::try_from(rows).unwrap_or(0);
        first += STEP;
        if first >= pages {
            return Ok(removed);
        }
        sleep(PAUSE).await;
    }
}
