#![doc = include_str!("../README.md")]

mod connect;

pub use throttle_core::*;

pub use self::connect::{connect, connect_with_locks};

/// PostgreSQL as a store.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use throttle_postgres::*;
}

/// Redis as a store.
#[cfg(feature = "redis")]
pub mod redis {
    pub use throttle_redis::*;
}

/// The embedded store.
#[cfg(feature = "memory")]
pub mod memory {
    pub use throttle_memory::*;
}

/// etcd.
#[cfg(feature = "etcd")]
pub mod etcd {
    pub use throttle_etcd::*;
}
