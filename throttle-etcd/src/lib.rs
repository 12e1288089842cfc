#![doc = include_str!("../README.md")]

mod backend;
mod config;
mod connection;
mod error;
mod lanes;
mod lease;
mod leases;
mod lock;
mod skew;
mod store;
mod txn;

pub use self::backend::EtcdBackend;
pub use self::config::{EtcdConfig, Tls};
pub use self::error::{Cause, EtcdError};
pub use self::leases::expiry_slack;
pub use self::skew::Skew;
pub use self::store::{EtcdStore, Revision};
