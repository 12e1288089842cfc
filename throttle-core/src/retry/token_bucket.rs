//! [`TokenBucket`]: admission for one process, without a store.

use parking_lot::Mutex;

use super::error::RateLimited;
use super::tank::Tank;
use crate::{Quota, SetupError, Timestamp};

/// Admits the requests of one process: each takes one token, and tokens flow in at the rate of a [`Quota`].
///
/// It starts full, with `burst` tokens (default: the limit). Tokens are whole, and minted when somebody asks; the
/// fraction of the next one is carried, so the rate is exact however often that is. It never waits and has no queue.
/// Time that steps back mints nothing. To limit several processes together, use a limiter on a shared store.
///
/// ```
/// use std::time::Duration;
/// use throttle_core::{Timestamp, retry::{RateLimited, TokenBucket}};
///
/// let bucket = TokenBucket::new("8/s burst 2")?;
/// let now = Timestamp::from_micros(1_700_000_000_000_000)?;
/// bucket.try_acquire(now)?;
/// bucket.try_acquire(now)?;
/// let refused = RateLimited { retry_after: Duration::from_millis(125) };
/// assert_eq!(bucket.try_acquire(now), Err(refused));
/// assert_eq!(bucket.try_acquire(now.saturating_add(refused.retry_after)), Ok(()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TokenBucket {
    tank: Mutex<Tank>,
}

impl TokenBucket {
    /// A full bucket of a [`Quota`], its builder or its text.
    ///
    /// # Errors
    ///
    /// Those of the quota.
    pub fn new<Q>(quota: Q) -> Result<Self, SetupError>
    where
        Q: TryInto<Quota>,
        SetupError: From<Q::Error>,
    {
        let quota = quota.try_into()?;
        let capacity = quota.burst().unwrap_or(quota.limit());
        let tank = Tank::new(capacity, quota.limit(), quota.period_micros(), capacity);
        Ok(Self { tank: Mutex::new(tank) })
    }

    /// Takes one token, if there is one at `now`.
    ///
    /// # Errors
    ///
    /// [`RateLimited`] if there is none. With no other caller, there is one after its `retry_after`, and not a
    /// microsecond before.
    pub fn try_acquire(&self, now: Timestamp) -> Result<(), RateLimited> {
        let mut tank = self.tank.lock();
        if tank.try_take(1, now) {
            return Ok(());
        }
        Err(RateLimited { retry_after: tank.time_to_next(now) })
    }

    /// Tokens in it at `now`.
    #[must_use]
    pub fn available(&self, now: Timestamp) -> u32 {
        self.tank.lock().level_at(now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000 + micros).unwrap()
    }

    fn at_millis(millis: u64) -> Timestamp {
        at(millis * 1_000)
    }

    fn drained(quota: &str, now: Timestamp) -> TokenBucket {
        let bucket = TokenBucket::new(quota).unwrap();
        while bucket.try_acquire(now).is_ok() {}
        bucket
    }

    #[test]
    fn burst_at_t0() {
        let bucket = TokenBucket::new("8/s burst 40").unwrap();
        let admitted: Vec<bool> = (0..45).map(|_| bucket.try_acquire(at(0)).is_ok()).collect();
        assert!(admitted[..40].iter().all(|&ok| ok), "the first 40 are admitted");
        assert!(admitted[40..].iter().all(|&ok| !ok), "the other 5 are refused");
    }

    #[test]
    fn it_starts_with_the_burst_or_else_the_limit() {
        let tokens = |quota| TokenBucket::new(quota).unwrap().available(at(0));
        assert_eq!(["5/s", "5/s burst 1", "5/s burst 40"].map(tokens), [5, 1, 40]);
    }

    #[test]
    fn a_slow_drip_is_exact_at_any_polling_period() {
        for period in [20, 124, 125, 249, 1_000] {
            let bucket = drained("8/s burst 40", at(0));
            let mut minted = 0;
            for millis in (period..=600_000).step_by(period) {
                let now = at_millis(millis as u64);
                while bucket.try_acquire(now).is_ok() {
                    minted += 1;
                }
                assert_eq!(minted, millis * 8 / 1_000, "every {period} ms, at {millis} ms");
            }
        }
    }

    #[test]
    fn polled_every_20_ms_a_token_comes_every_125_ms() {
        let bucket = drained("8/s burst 40", at(0));
        let minted_at: Vec<u64> = (1..=50)
            .map(|i| i * 20)
            .filter(|&millis| bucket.try_acquire(at_millis(millis)).is_ok())
            .collect();
        assert_eq!(
            minted_at,
            [140, 260, 380, 500, 640, 760, 880, 1_000],
            "the first poll at or after k x 125"
        );
    }

    #[test]
    fn a_full_bucket_drops_the_remainder() {
        let bucket = TokenBucket::new("8/s burst 1").unwrap();
        assert_eq!(bucket.try_acquire(at_millis(0)), Ok(()));
        assert_eq!(bucket.available(at_millis(100)), 0);
        assert_eq!(bucket.available(at_millis(249)), 1);
        assert_eq!(bucket.try_acquire(at_millis(249)), Ok(()));
        let refused = bucket.try_acquire(at_millis(249));
        assert_eq!(refused, Err(RateLimited { retry_after: Duration::from_millis(125) }), "not 1 ms");
    }

    #[test]
    fn a_clock_stepping_back_5_s_mints_nothing_and_loses_nothing() {
        let bucket = TokenBucket::new("8/s burst 40").unwrap();
        (0..38).for_each(|_| bucket.try_acquire(at_millis(10_000)).unwrap());
        assert_eq!(bucket.available(at_millis(5_000)), 2);
        (0..2).for_each(|_| bucket.try_acquire(at_millis(5_000)).unwrap());
        let wait = bucket.try_acquire(at_millis(5_000)).unwrap_err().retry_after;
        assert_eq!(wait, Duration::from_millis(5_125), "until the clock is back, and one interval");
        assert_eq!(bucket.available(at_millis(10_124)), 0);
        assert_eq!(bucket.available(at_millis(10_125)), 1);
    }

    #[test]
    fn a_clock_stepping_back_for_ever_delays_by_no_more_than_the_time_to_fill() {
        let bucket = drained("8/s burst 40", at_millis(3_600_000));
        let wait = bucket.try_acquire(at(0)).unwrap_err().retry_after;
        assert_eq!(wait, Duration::from_millis(5_125));
        assert_eq!(bucket.try_acquire(at(0).saturating_add(wait)), Ok(()));
    }

    #[test]
    fn threads_together_take_what_is_there() {
        let (bucket, taken) = (TokenBucket::new("1/h burst 1000").unwrap(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mine = (0..500).filter(|_| bucket.try_acquire(at(0)).is_ok()).count();
                    taken.fetch_add(u32::try_from(mine).unwrap(), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(taken.into_inner(), 1_000);
    }

    proptest! {
        #[test]
        fn retry_after_is_exact_from_both_sides(
            limit in 1_u32..5_000, period in 1_u64..10_000_000, burst in 1_u32..20,
            gaps in prop::collection::vec(0_u64..5_000_000, 1..20),
        ) {
            let quota = Quota::per(limit, Duration::from_micros(period)).burst(burst);
            let bucket = TokenBucket::new(quota).unwrap();
            let mut now = at(0);
            for gap in gaps {
                now = now.saturating_add(Duration::from_micros(gap));
                while let Ok(()) = bucket.try_acquire(now) {}
                let wait = bucket.try_acquire(now).unwrap_err().retry_after;
                prop_assert!(wait >= MICRO);
                let due = now.saturating_add(wait);
                prop_assert!(bucket.try_acquire(due.saturating_sub(MICRO)).is_err());
                prop_assert!(bucket.try_acquire(due).is_ok());
                now = due;
            }
        }

        #[test]
        fn no_course_of_time_admits_more_than_burst_and_inflow(
            limit in 1_u32..50, burst in 1_u32..20, steps in prop::collection::vec((-2_000_i64..1_000, 0_u32..30), 1..60),
        ) {
            let bucket = TokenBucket::new(Quota::per_second(limit).burst(burst)).unwrap();
            prop_assert_eq!(bucket.available(at_millis(1_000_000)), burst);
            let (mut millis, mut latest, mut forward, mut admitted) = (1_000_000_i64, 1_000_000_i64, 0, 0_u64);
            let mut furthest_back = 0;
            for (step, tries) in steps {
                millis += step;
                (latest, forward) = (latest.max(millis), forward + step.max(0));
                furthest_back = furthest_back.max(latest - millis);
                let now = at_millis(millis.unsigned_abs());
                admitted += (0..tries).filter(|_| bucket.try_acquire(now).is_ok()).count() as u64;
                // A clock that went back by less than the time to fill brings nothing when it returns.
                let small_steps = furthest_back * i64::from(limit) <= i64::from(burst) * 1_000;
                let passed = if small_steps { latest - 1_000_000 } else { forward };
                prop_assert!(admitted <= u64::from(burst) + passed.unsigned_abs() * u64::from(limit) / 1_000);
            }
        }
    }
}
