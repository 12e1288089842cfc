#![doc = include_str!("../README.md")]

mod connect;

pub use throttle_core::*;

pub use self::connect::connect;

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
