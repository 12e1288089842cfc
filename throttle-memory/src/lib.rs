#![doc = include_str!("../README.md")]

mod backend;
mod clock;
mod config;
mod error;
mod lock;
mod table;

pub use self::backend::MemoryBackend;
pub use self::config::MemoryConfig;
