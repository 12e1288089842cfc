//! Locks by one script, in one round trip.

use redis::{Cmd, Value};
use throttle_core::lock::{Acquisition, Fence, LockTtl, Owner};
use throttle_core::{DataError, LockBackend, lock_key};

use crate::script::{self, Source};
use crate::{RedisBackend, RedisError};

static LOCK: Source = script::source!("scripts/lock.lua");

/// Over how many slots of a cluster locks are spread. The locks of one slot share their number, so that nothing is kept
/// of one that is free.
const SPACES: u32 = 256;

/// On one primary, by its clock. Replication is asynchronous: when a replica is promoted, a lock that it had not heard of
/// is free, and two may hold it. The number of the later one is higher, unless the clock of the new primary is behind.
impl LockBackend for RedisBackend {
    async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition, RedisError> {
        acquisition(self.lock("acquire", name, owner, Some(ttl)).await?)
    }

    async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool, RedisError> {
        is_holder(&self.lock("extend", name, owner, Some(ttl)).await?)
    }

    async fn release(&self, name: &str, owner: Owner) -> Result<bool, RedisError> {
        is_holder(&self.lock("release", name, owner, None).await?)
    }
}

impl RedisBackend {
    async fn lock(
        &self,
        operation: &str,
        name: &str,
        owner: Owner,
        ttl: Option<LockTtl>,
    ) -> Result<Value, RedisError> {
        let owner = format!("{:032x}", owner.as_u128());
        let ttl = ttl.map_or(0, LockTtl::as_millis);
        let fill = |command: &mut Cmd| {
            command.arg(operation).arg(&owner).arg(ttl);
        };
        let value = self.run(&LOCK, &keys(self.prefix(), name), fill).await?;
        match value {
            Value::BulkString(bytes) if bytes.is_empty() => {
                Err(RedisError::Corrupt(DataError::Corrupt { reason: "the value is no lock" }))
            }
            value => Ok(value),
        }
    }
}

/// Of the lock itself, and of the last number of its slot. The braces put both into one.
fn keys(prefix: &str, name: &str) -> [String; 2] {
    let space = format!("lock-{}", space_of(name));
    [lock_key(prefix, &space, name), format!("{prefix}:1:{{{space}}}")]
}

/// By the hash FNV-1a: the same for all processes, for ever.
fn space_of(name: &str) -> u32 {
    let step = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, step) % SPACES
}

fn acquisition(value: Value) -> Result<Acquisition, RedisError> {
    let not_understood = || RedisError::answer("the reply is no acquisition");
    let Value::Array(values) = value else { return Err(not_understood()) };
    match values.as_slice() {
        [Value::Int(1), Value::Int(number)] => {
            Ok(Acquisition::Held(Fence::new(u64::try_from(*number).map_err(|_| not_understood())?)))
        }
        [Value::Int(0), Value::Int(millis)] => {
            let millis = u64::try_from(*millis).ok();
            Ok(Acquisition::Busy { expires_in: millis.map(std::time::Duration::from_millis) })
        }
        _ => Err(not_understood()),
    }
}

fn is_holder(value: &Value) -> Result<bool, RedisError> {
    match value {
        Value::Int(is_holder @ (0 | 1)) => Ok(*is_holder == 1),
        _ => Err(RedisError::answer("the reply does not say who holds the lock")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_spread_and_stay_where_they_are() {
        let spaces: HashSet<_> = (0..10_000).map(|name| space_of(&name.to_string())).collect();
        assert_eq!(spaces.len(), 256);
        assert_eq!((space_of(""), space_of("foobar")), (0xc5, 0x68), "the published vectors of FNV-1a");
    }

    #[test]
    fn a_lock_is_no_other_key() {
        let [lock, number] = keys("throttle", "lock:task:7");
        assert_eq!(lock, format!("throttle:1:{{lock-{}}}:lock:task:7", space_of("lock:task:7")));
        assert_ne!(number, keys("throttle", "")[0]);
        assert!(lock.starts_with(&number), "in the same slot");
    }

    #[test]
    fn no_reply_panics() {
        let int = |numbers: &[i64]| Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect());
        assert_eq!(acquisition(int(&[1, 7])).unwrap(), Acquisition::Held(Fence::new(7)));
        assert_eq!(acquisition(int(&[0, -1])).unwrap(), Acquisition::Busy { expires_in: None });
        for wrong in
            [int(&[]), int(&[1]), int(&[1, -7]), int(&[2, 7]), int(&[1, 7, 7]), Value::Nil, Value::Okay]
        {
            assert!(matches!(acquisition(wrong.clone()), Err(RedisError::Answer(_))), "{wrong:?}");
            assert!(matches!(is_holder(&wrong), Err(RedisError::Answer(_))));
        }
        assert!(is_holder(&Value::Int(1)).unwrap() && !is_holder(&Value::Int(0)).unwrap());
    }
}
