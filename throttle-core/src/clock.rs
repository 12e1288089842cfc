//! The clock seam: who tells the time, and who waits. The only file of this crate that reads a real clock.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Timestamp;

/// A pause, as [`Clock::sleep`] returns it.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Tells the time and waits. Tests pass one that they move by hand (`ManualClock` in `throttle-testkit`).
///
/// Obligations: `now` may step back only if the clock it stands for does; `sleep(d)` completes no earlier than
/// `now() + d`; dropping the pause cancels it.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;

    /// Completes when `span` has passed.
    fn sleep(&self, span: Duration) -> Sleep;
}

/// The clock of async programs: monotonic, anchored to the Unix epoch once per process; waits on the tokio timer.
///
/// A step of the wall clock after the first use is not seen, nor what passes while the machine is suspended: who compares
/// the time with that of other machines takes [`WallClock`].
///
/// # Panics
///
/// `sleep` panics outside a tokio runtime, as [`tokio::time::sleep`] does.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        monotonic_now()
    }

    fn sleep(&self, span: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(span))
    }
}

/// The wall clock, read each time: what machines agree on that decide together, also after one of them was suspended,
/// during which monotonic clocks stand still. Waits on the tokio timer.
///
/// It steps when the clock of the machine is set, and may step back.
///
/// # Panics
///
/// `sleep` panics outside a tokio runtime, as [`tokio::time::sleep`] does.
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        Timestamp::saturating_from_micros(wall_micros())
    }

    fn sleep(&self, span: Duration) -> Sleep {
        SystemClock.sleep(span)
    }
}

/// The clock of blocking programs: the time of [`SystemClock`], but waiting parks the calling thread.
///
/// For use under a `block_on` of one's own; inside an async task it would stall the runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadClock;

impl Clock for ThreadClock {
    fn now(&self) -> Timestamp {
        monotonic_now()
    }

    #[expect(clippy::disallowed_methods, reason = "this clock is the blocking one")]
    fn sleep(&self, span: Duration) -> Sleep {
        Box::pin(async move { std::thread::sleep(span) })
    }
}

fn monotonic_now() -> Timestamp {
    static ANCHOR: OnceLock<(Instant, u64)> = OnceLock::new();
    let (start, epoch_micros) = *ANCHOR.get_or_init(|| (Instant::now(), wall_micros()));
    Timestamp::saturating_from_micros(epoch_micros.saturating_add(crate::time::floor_micros(start.elapsed())))
}

/// The wall clock; a clock set before 1970 reads as the epoch.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
fn wall_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, crate::time::floor_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_read_the_same_time() {
        let (a, b, c) = (SystemClock.now(), ThreadClock.now(), SystemClock.now());
        assert!(a <= b && b <= c);
        assert!(a > Timestamp::from_micros(1_700_000_000_000_000).unwrap(), "anchored to the epoch");
    }

    #[test]
    fn the_wall_clock_reads_what_the_wall_shows() {
        for _ in 0..1_000 {
            let (before, now, after) = (wall_micros(), WallClock.now().as_micros(), wall_micros());
            assert!(before <= now && now <= after, "{before} {now} {after}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn async_clocks_wait_on_the_runtime() {
        let before = tokio::time::Instant::now();
        SystemClock.sleep(Duration::from_secs(3_600)).await;
        WallClock.sleep(Duration::from_secs(3_600)).await;
        assert!(before.elapsed() >= Duration::from_secs(7_200));
    }
}
