//! Prints the statements that make the schema, for those who run them by another way: `schema [SCHEMA [TABLE]]`.
//!
//! ```sh
//! cargo run -p throttle-postgres --example schema -- limits | psql shop
//! ```
#![expect(clippy::print_stdout, reason = "a program for people")]

use throttle_core::SetupError;
use throttle_postgres::{PostgresBackend, PostgresConfig};

fn main() -> Result<(), SetupError> {
    let mut names = std::env::args().skip(1);
    let mut config = PostgresConfig::new("postgres://not.asked/")?;
    if let Some(schema) = names.next() {
        config = config.schema(&schema)?;
    }
    if let Some(table) = names.next() {
        config = config.table(&table)?;
    }
    print!("{}", PostgresBackend::schema_sql(&config));
    Ok(())
}
