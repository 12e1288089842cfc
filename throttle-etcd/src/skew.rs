//! How far the clocks of several processes are apart, told by what each wrote when it started.
//!
//! etcd tells no time, but it counts how much of a lease is left. A process that starts grants a lease of a known length
//! and writes down what its clock said then. Whoever reads that later knows from the lease how long ago it was, and so
//! what that clock says now.

use std::cmp::Reverse;
use std::time::Duration;

use etcd_client::{Client, GetOptions, PutOptions, SortOrder, SortTarget};
use throttle_core::{CasStore, Timestamp};

use crate::EtcdError;
use crate::connection::Repeat;
use crate::store::EtcdStore;

/// Seconds.
const STAMP_TTL: i64 = 3_600;

/// How many processes are compared with, those that started last.
const MOST: i64 = 16;

/// The server tells what is left of a lease in whole seconds, rounded down.
const RESOLUTION: i64 = 1_000_000;

/// How far the clock of another process is from this one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skew {
    micros: i64,
}

impl Skew {
    /// How far they are apart, at least.
    #[must_use]
    pub const fn at_least(&self) -> Duration {
        Duration::from_micros(self.micros.unsigned_abs())
    }

    /// Whether the other clock is ahead of this one.
    #[must_use]
    pub const fn is_ahead(&self) -> bool {
        self.micros > 0
    }

    /// From the span in which the difference is.
    const fn within(least: i64, most: i64) -> Self {
        let micros = if least > 0 {
            least
        } else if most < 0 {
            most
        } else {
            0
        };
        Self { micros }
    }
}

/// What a process wrote: what its clock said, and who was leader. A new leader starts all leases anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    clock: i64,
    /// How far `clock` may be off from the start of the lease.
    error: i64,
    term: u64,
}

/// Compares clocks, warns if they differ by more than `tolerance`, and announces this one's. If that fails, it says so, and
/// no more: decisions do not need it.
pub(crate) async fn warn(store: &EtcdStore, tolerance: Duration) {
    if let Err(error) = try_warn(store, tolerance).await {
        let error: &(dyn std::error::Error + 'static) = &error;
        tracing::warn!(error, "the clock could not be compared with those of other processes");
    }
}

async fn try_warn(store: &EtcdStore, tolerance: Duration) -> Result<(), EtcdError> {
    if let Some(skew) = measure(store).await?
        && skew.at_least() > tolerance
    {
        tracing::warn!(
            at_least = ?skew.at_least(),
            ahead = skew.is_ahead(),
            "the clock of another process that limits through this etcd differs from this one's"
        );
    }
    announce(store).await
}

/// The largest difference to any of the others.
pub(crate) async fn measure(store: &EtcdStore) -> Result<Option<Skew>, EtcdError> {
    let prefix = format!("{}:clock:", store.prefix());
    let request = |client: Client| {
        let options = GetOptions::new().with_prefix().with_limit(MOST);
        let options = options.with_sort(SortTarget::Mod, SortOrder::Descend);
        let prefix = prefix.clone();
        async move { client.kv_client().get(prefix, Some(options)).await }
    };
    let stamps = store.connection().send(Repeat::Freely, request).await?;
    let mut skews = Vec::new();
    for pair in stamps.kvs() {
        if let Some(stamp) = Stamp::from_bytes(pair.value()) {
            skews.extend(compare(store, stamp, pair.lease()).await?);
        }
    }
    Ok(skews.into_iter().min_by_key(|skew| Reverse(skew.at_least())))
}

/// With one other; none if its lease cannot tell.
async fn compare(store: &EtcdStore, stamp: Stamp, lease: i64) -> Result<Option<Skew>, EtcdError> {
    let before = micros(store.now());
    let request = |client: Client| async move { client.lease_client().time_to_live(lease, None).await };
    let left = store.connection().send(Repeat::Freely, request).await?;
    let after = micros(store.now());
    let term = left.header().map(etcd_client::ResponseHeader::raft_term);
    if left.ttl() < 0 || term != Some(stamp.term) {
        return Ok(None);
    }
    let age = (left.granted_ttl() - left.ttl()).saturating_mul(1_000_000);
    let theirs = stamp.clock.saturating_add(age);
    Ok(Some(Skew::within(theirs - RESOLUTION - stamp.error - after, theirs + stamp.error - before)))
}

async fn announce(store: &EtcdStore) -> Result<(), EtcdError> {
    let before = micros(store.now());
    let grant = |client: Client| async move { client.lease_client().grant(STAMP_TTL, None).await };
    let lease = store.connection().send(Repeat::Never, grant).await?;
    let error = (micros(store.now()) - before) / 2;
    let term = lease.header().map_or(0, etcd_client::ResponseHeader::raft_term);
    let stamp = Stamp { clock: before + error, error, term };
    let key = format!("{}:clock:{:016x}", store.prefix(), rand::random::<u64>());
    let put = |client: Client| {
        let key = key.clone();
        let options = PutOptions::new().with_lease(lease.id());
        async move { client.kv_client().put(key, stamp.to_bytes(), Some(options)).await }
    };
    store.connection().send(Repeat::Freely, put).await.map(drop)
}

impl Stamp {
    fn to_bytes(self) -> Vec<u8> {
        [self.clock.to_be_bytes(), self.error.to_be_bytes(), self.term.to_be_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let [clock, error, term] = *words.first_chunk::<3>()?;
        if words.len() != 3 {
            return None;
        }
        let (clock, error) = (i64::from_be_bytes(clock), i64::from_be_bytes(error));
        let is_sane = (0..=1 << 60).contains(&clock) && (0..=1 << 60).contains(&error);
        is_sane.then_some(Self { clock, error, term: u64::from_be_bytes(term) })
    }
}

fn micros(time: Timestamp) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_certain_counts() {
        let skew = |least, most| {
            let skew = Skew::within(least, most);
            (skew.at_least().as_micros(), skew.is_ahead())
        };
        assert_eq!(skew(-5, 5), (0, false));
        assert_eq!(skew(2, 5), (2, true));
        assert_eq!(skew(-5, -2), (2, false));
    }

    #[test]
    fn stamps_are_read_back_and_nothing_else_is() {
        let stamp = Stamp { clock: 1_700_000_000_000_000, error: 250, term: 7 };
        assert_eq!(Stamp::from_bytes(&stamp.to_bytes()), Some(stamp));
        for bytes in [&b""[..], b"1234567", &[0; 16], &[0; 25], &[0; 32], &[255; 24]] {
            assert_eq!(Stamp::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
