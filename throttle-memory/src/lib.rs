#![doc = include_str!("../README.md")]

mod backend;
mod clock;
mod config;
#[cfg(feature = "cache")]
mod denial;
#[cfg(feature = "cache")]
mod deny_cache;
mod error;
#[cfg(feature = "cache")]
mod hit;
#[cfg(feature = "cache")]
mod leased;
mod lock;
#[cfg(feature = "cache")]
mod moment;
#[cfg(feature = "cache")]
mod name;
#[cfg(feature = "cache")]
mod pass_on;
mod table;

pub use self::backend::MemoryBackend;
pub use self::config::MemoryConfig;
#[cfg(feature = "cache")]
pub use self::deny_cache::DenyCache;
#[cfg(feature = "cache")]
pub use self::leased::{LeaseConfig, Leased};
