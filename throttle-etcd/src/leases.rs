//! Expiry: leases that all values share which expire in the same slot of time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use throttle_core::{Clock, Timestamp};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::{EtcdError, lease};

/// Seconds. The most that etcd takes.
const MAX_TTL: u64 = 9_000_000_000;

/// How many slots one time to live spans, at least.
const SLOTS: u64 = 8;

/// How much longer than `ttl` etcd may keep a value: one slot, which is an eighth of `ttl` or less, and at least 1 s; up
/// to 1 s since leases have whole seconds; and 1 s for the server to notice. It keeps none for less than the lowest time
/// to live of its leases, 1.5 election timeouts: 2 s by default.
///
/// ```
/// use std::time::Duration;
/// use throttle_etcd::expiry_slack;
///
/// assert_eq!(expiry_slack(Duration::from_secs(1)), Duration::from_secs(3));
/// assert_eq!(expiry_slack(Duration::from_secs(3_600)), Duration::from_secs(258));
/// ```
#[must_use]
pub fn expiry_slack(ttl: Duration) -> Duration {
    Duration::from_secs(width(ttl) + 2)
}

/// The width of the slots for values that live so long, in seconds: a power of two.
fn width(ttl: Duration) -> u64 {
    let most = ttl.as_secs().min(MAX_TTL) / SLOTS;
    most.checked_ilog2().map_or(1, |log| 1 << log)
}

/// The leases of one process: one for each slot that is in use.
#[derive(Debug)]
pub(crate) struct Leases {
    age: Age,
    slots: Mutex<Slots>,
}

/// The seconds since the start, by the clock that says more: a monotonic clock stands still while the machine is suspended,
/// and the leases go on; the other one may be set back. So no lease is taken to last longer than it does.
#[derive(Debug)]
struct Age {
    start: Instant,
    clock: Arc<dyn Clock>,
    clock_start: Timestamp,
    /// In microseconds, what has passed by `clock` alone.
    missed: AtomicU64,
}

/// By end and width, in seconds.
type Slots = BTreeMap<(u64, u64), Arc<Slot>>;

/// A span of time, and the lease of all values that are to expire in it. The lease lasts until its end, or a bit longer.
#[derive(Debug)]
struct Slot {
    id: i64,
    end: u64,
    width: u64,
    /// When the value that opened it was to expire; its start, if it was opened ahead.
    opened_for: Duration,
    granted: OnceCell<()>,
}

/// The lease for a value, and one that will be needed soon.
#[derive(Debug)]
pub(crate) struct Lease {
    slot: Arc<Slot>,
    next: Option<Arc<Slot>>,
}

impl Leases {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { age: Age::new(clock), slots: Mutex::new(Slots::new()) }
    }

    /// The lease for a value that is to live for `ttl`, and has the lease `present`. A value that may keep its lease does:
    /// one whose expiry stays where it was, as that of a window, has one lease however often it changes.
    pub(crate) fn choose(&self, ttl: Duration, present: Option<i64>) -> Lease {
        let now = self.age.now();
        let (needed, width) = (now.saturating_add(ttl), width(ttl));
        let mut slots = self.slots.lock();
        let ended = drop_ended(&mut slots, now.as_secs());
        let kept = present.and_then(|id| find(&slots, id, needed));
        let slot = kept.unwrap_or_else(|| open(&mut slots, needed, width));
        let next = slot.has_moved_on(needed).then(|| slot.open_next(&mut slots));
        drop(slots);
        drop(ended);
        Lease { slot, next: next.filter(|next| !next.granted.initialized()) }
    }

    /// Grants those of the leases that are not there yet. Dropped, a lease may be granted or not: whoever asks next asks
    /// for the same one.
    pub(crate) async fn get(&self, leases: &[Lease], connection: &Arc<Connection>) -> Result<(), EtcdError> {
        let missing = leases.iter().map(|lease| &lease.slot).filter(|slot| !slot.granted.initialized());
        try_join_all(missing.map(|slot| self.grant(slot, connection))).await.map(drop)
    }

    /// Grants the leases that will be needed soon, so that nobody has to wait for them then. If one cannot be had, that
    /// is seen when it is needed.
    pub(crate) async fn get_ahead(&self, leases: &[Lease], connection: &Arc<Connection>) {
        let next = leases.iter().filter_map(|lease| lease.next.as_ref());
        join_all(next.map(|slot| self.grant(slot, connection))).await;
    }

    async fn grant(&self, slot: &Slot, connection: &Arc<Connection>) -> Result<(), EtcdError> {
        let grant = || async {
            let left = Duration::from_secs(slot.end).saturating_sub(self.age.now());
            let ttl = i64::try_from(ceil_secs(left).clamp(1, MAX_TTL)).unwrap_or(1);
            lease::grant(connection, slot.id, ttl).await
        };
        slot.granted.get_or_try_init(grant).await.copied()
    }

    /// The server does not know this lease: its slot gets another.
    pub(crate) fn forget(&self, id: i64) {
        let mut slots = self.slots.lock();
        let lost = slots.iter().find(|(_, slot)| slot.id == id).map(|(end, _)| *end);
        let removed = lost.and_then(|end| slots.remove(&end));
        drop(slots);
        drop(removed);
    }
}

impl Age {
    fn new(clock: Arc<dyn Clock>) -> Self {
        let clock_start = clock.now();
        Self { start: Instant::now(), clock, clock_start, missed: AtomicU64::new(0) }
    }

    fn now(&self) -> Duration {
        let by_clock = self.clock.now().saturating_since(self.clock_start);
        let counted = self.start.elapsed();
        let missed = u64::try_from(by_clock.saturating_sub(counted).as_micros()).unwrap_or(u64::MAX);
        let missed = self.missed.fetch_max(missed, Ordering::Relaxed).max(missed);
        counted.saturating_add(Duration::from_micros(missed))
    }
}

impl Lease {
    pub(crate) fn id(&self) -> i64 {
        self.slot.id
    }
}

impl Slot {
    fn new(end: u64, width: u64, opened_for: Duration) -> Self {
        Self { id: lease::new_id(), end, width, opened_for, granted: OnceCell::new() }
    }

    /// Whether values that are rewritten with a time to live wander through this slot, and are in its second half.
    fn has_moved_on(&self, needed: Duration) -> bool {
        let half = Duration::from_secs(self.end).saturating_sub(Duration::from_secs(self.width) / 2);
        needed >= half && needed.saturating_sub(self.opened_for) >= Duration::from_secs(self.width) / 4
    }

    /// The slot after this one.
    fn open_next(&self, slots: &mut Slots) -> Arc<Self> {
        let next = || Arc::new(Self::new(self.end + self.width, self.width, Duration::from_secs(self.end)));
        Arc::clone(slots.entry((self.end + self.width, self.width)).or_insert_with(next))
    }
}

/// The slot of a lease of ours, if a value that is to expire at `needed` can stay in it.
fn find(slots: &Slots, id: i64, needed: Duration) -> Option<Arc<Slot>> {
    let from = ceil_secs(needed);
    let slot = slots.range((from, 0)..).map(|(_, slot)| slot).find(|slot| slot.id == id)?;
    (slot.end - from < slot.width).then(|| Arc::clone(slot))
}

/// The slot of this width that `needed` is in.
fn open(slots: &mut Slots, needed: Duration, width: u64) -> Arc<Slot> {
    let end = ceil_secs(needed).next_multiple_of(width);
    Arc::clone(slots.entry((end, width)).or_insert_with(|| Arc::new(Slot::new(end, width, needed))))
}

/// Takes the slots out that have ended; their leases go by themselves. They are dropped outside the lock.
fn drop_ended(slots: &mut Slots, now: u64) -> Slots {
    if slots.first_key_value().is_none_or(|((end, _), _)| *end >= now) {
        return Slots::new();
    }
    let live = slots.split_off(&(now, 0));
    std::mem::replace(slots, live)
}

fn ceil_secs(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use throttle_testkit::ManualClock;

    use super::*;

    /// A clock that stands still, so that the paused one counts.
    fn still() -> ManualClock {
        ManualClock::new(Timestamp::saturating_from_micros(1_700_000_000_000_000))
    }

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn slots_are_an_eighth_of_the_time_to_live_or_less() {
        let widths = [0, 1, 15, 16, 31, 32, 60, 3_600, 1 << 40].map(|ttl| width(secs(ttl)));
        assert_eq!(widths, [1, 1, 1, 2, 2, 4, 4, 256, 1 << 30]);
        for ttl in (8..100_000).step_by(7) {
            assert!(width(secs(ttl)) * 8 <= ttl);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn values_share_the_lease_of_their_slot() {
        let leases = Leases::new(Arc::new(still()));
        let (a, b) = (leases.choose(secs(60), None), leases.choose(secs(59), None));
        assert_eq!(a.id(), b.id());
        assert_ne!(leases.choose(secs(61), None).id(), a.id());
        assert_eq!(leases.slots.lock().keys().copied().collect::<Vec<_>>(), [(60, 4), (64, 4)]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_lease_ends_before_its_values_or_more_than_a_slot_later() {
        let leases = Leases::new(Arc::new(still()));
        for millis in (1..100_000).step_by(37) {
            let ttl = Duration::from_millis(millis);
            let needed = leases.age.now() + ttl;
            let end = secs(leases.choose(ttl, None).slot.end);
            assert!(end >= needed && end < needed + secs(width(ttl) + 1), "{ttl:?} {end:?}");
            tokio::time::advance(Duration::from_millis(millis % 13)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_whose_expiry_stays_keeps_its_lease() {
        let leases = Leases::new(Arc::new(still()));
        let first = leases.choose(secs(61), None);
        for second in 0..61 {
            let kept = leases.choose(secs(61 - second), Some(first.id()));
            assert_eq!(kept.id(), first.id(), "after {second} s");
            assert!(kept.next.is_none(), "nothing is granted ahead for it");
            tokio::time::advance(secs(1)).await;
        }
        assert_eq!(leases.slots.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_is_to_go_sooner_leaves_its_slot() {
        let leases = Leases::new(Arc::new(still()));
        let long = leases.choose(secs(3_600), None);
        let short = leases.choose(secs(10), Some(long.id()));
        assert_ne!(short.id(), long.id());
        assert_eq!(short.slot.end, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn leases_are_granted_ahead_and_slots_that_ended_are_dropped() {
        let leases = Leases::new(Arc::new(still()));
        let mut present = None;
        let mut ahead = 0;
        for _ in 0..10_000 {
            let lease = leases.choose(secs(60), present);
            lease.slot.granted.set(()).ok();
            if let Some(next) = &lease.next {
                ahead += 1;
                next.granted.set(()).ok();
            }
            present = Some(lease.id());
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        let live = leases.slots.lock().len();
        assert!((249..=251).contains(&ahead), "one for each 4 of 1,000 seconds: {ahead}");
        assert!(live <= 18, "{live} slots are live");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_gone_is_replaced() {
        let leases = Leases::new(Arc::new(still()));
        let first = leases.choose(secs(60), None);
        leases.forget(first.id());
        leases.forget(42);
        assert_ne!(leases.choose(secs(60), Some(first.id())).id(), first.id());
    }

    /// The machine is suspended for 50 s: its leases are that much older.
    #[tokio::test(start_paused = true)]
    async fn no_lease_is_taken_to_last_longer_than_it_does() {
        let clock = still();
        let leases = Leases::new(Arc::new(clock.clone()));
        let old = leases.choose(secs(60), None);
        clock.advance(secs(50));
        assert_ne!(leases.choose(secs(30), Some(old.id())).id(), old.id(), "it ends in 10 s");
        assert_eq!(leases.age.now(), secs(50));
        clock.step_back(secs(3_600));
        tokio::time::advance(secs(7)).await;
        assert_eq!(leases.age.now(), secs(57), "set back, it takes nothing back");
    }
}
