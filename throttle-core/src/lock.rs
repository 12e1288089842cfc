//! Distributed locks: the words of the seam, and what a lock is.

mod fence;
mod owner;
mod slot;
mod table;
mod ttl;

pub use self::fence::Fence;
pub use self::owner::Owner;
pub use self::slot::{Acquisition, LockSlot};
pub use self::table::LockTable;
pub use self::ttl::LockTtl;
