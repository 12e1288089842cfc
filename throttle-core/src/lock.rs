//! Distributed locks: [`Lock`] for programs, [`ResourceLock`] for the business, and what backends make of them.
//!
//! A lock is a name that one owner at a time holds in a store, for a time that it prolongs. That time bounds how long a
//! dead holder is in the way; it is also why no such lock can promise alone that nobody else writes: a holder that is
//! stopped for longer, by its scheduler or the network, does not know it. What is protected can tell: each acquisition has
//! a [`Fence`], which grows, and whoever comes with a lower one than was seen is late.

mod acquire;
mod claim;
mod fence;
mod guard;
mod key;
mod lease;
mod owner;
mod renewal;
mod resource;
mod slot;
mod table;
mod terms;
mod ttl;

pub use self::acquire::Lock;
pub use self::fence::Fence;
pub use self::guard::{LockGuard, Released};
pub use self::key::Segment;
pub use self::lease::{Lease, Loss};
pub use self::owner::Owner;
pub use self::resource::{LockHeld, LockNamespace, ResourceBusy, ResourceError, ResourceLock};
pub use self::slot::{Acquisition, LockSlot};
pub use self::table::LockTable;
pub use self::terms::{LockTerms, ReleaseFailure};
pub use self::ttl::LockTtl;
