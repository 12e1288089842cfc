#![doc = include_str!("../README.md")]

mod backend;
mod config;
mod connection;
mod error;
mod lock;
mod script;

pub use self::backend::RedisBackend;
pub use self::config::RedisConfig;
pub use self::error::{Cause, RedisError};
