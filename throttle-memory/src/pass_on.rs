//! Locks go through what stands in front of a store as if it were not there.

use throttle_core::LockBackend;
use throttle_core::lock::{Acquisition, LockTtl, Owner};

use crate::{DenyCache, Leased};

macro_rules! pass_on_locks {
    ($($decorator:ident),*) => {$(
        impl<B: LockBackend> LockBackend for $decorator<B> {
            async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition, B::BaseError> {
                self.get_ref().acquire(name, owner, ttl).await
            }

            async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool, B::BaseError> {
                self.get_ref().extend(name, owner, ttl).await
            }

            async fn release(&self, name: &str, owner: Owner) -> Result<bool, B::BaseError> {
                self.get_ref().release(name, owner).await
            }
        }
    )*};
}

pass_on_locks!(DenyCache, Leased);
