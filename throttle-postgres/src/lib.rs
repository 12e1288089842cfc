#![doc = include_str!("../README.md")]

mod backend;
mod config;
mod connection;
mod error;
mod lock;
mod schema;
mod script;
mod sweep;

pub use self::backend::PostgresBackend;
pub use self::config::PostgresConfig;
pub use self::error::{Cause, PostgresError};
