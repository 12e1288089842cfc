//! [`DecorrelatedJitter`]: each delay is drawn from a range that the one before it opened.

use std::time::Duration;

use rand::Rng;

use super::backoff::{Backoff, Bounds, draw};
use crate::SetupError;

/// Decorrelated jitter: uniform in the **closed** range from `base` to max(base, min(3 × previous, cap)), where the
/// draw becomes the previous one, and the first previous one is `base`.
///
/// The cap limits the range, not the draw: also where the range ends at the cap, the delays are spread over all of it.
/// (The variant that caps the draw returns exactly the cap in about one run of six by the tenth retry, and clients
/// come back together.) Delays wander between base and cap; they need not grow. The formula is the one of AWS's article
/// "Exponential Backoff And Jitter", with the cap moved into the range. The default is 250 ms to 30 s.
///
/// ```
/// use std::time::Duration;
/// use throttle_core::retry::DecorrelatedJitter;
///
/// let (base, cap) = (Duration::from_millis(250), Duration::from_secs(30));
/// let mut jitter = DecorrelatedJitter::new(base, cap)?;
/// let first = jitter.next_delay(&mut rand::rng());
/// assert!(base <= first && first <= 3 * base);
/// let second = jitter.next_delay(&mut rand::rng());
/// assert!(base <= second && second <= 3 * first);
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecorrelatedJitter {
    bounds: Bounds,
    previous: Duration,
}

impl DecorrelatedJitter {
    /// Delays from `base` to `cap`, both included.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] unless 0 < base ≤ cap.
    pub fn new(base: Duration, cap: Duration) -> Result<Self, SetupError> {
        Ok(Self { bounds: Bounds::new(base, cap)?, previous: base })
    }

    /// The next delay.
    pub fn next_delay(&mut self, rng: &mut (impl Rng + ?Sized)) -> Duration {
        let Bounds { base, cap } = self.bounds;
        let most = base.max(cap.min(self.previous.saturating_mul(3)));
        self.previous = draw(rng, base, most);
        self.previous
    }

    /// Starts over: for after a success, where one jitter outlives an operation.
    pub fn reset(&mut self) {
        self.previous = self.bounds.base;
    }
}

impl Default for DecorrelatedJitter {
    fn default() -> Self {
        let (base, cap) = (Duration::from_millis(250), Duration::from_secs(30));
        Self { bounds: Bounds { base, cap }, previous: base }
    }
}

impl Backoff for DecorrelatedJitter {
    fn delay(&mut self, _retries: u32, rng: &mut dyn Rng) -> Duration {
        self.next_delay(rng)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::backoff::test_rng::{least, most, seeded};
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_upper_bound_is_reached() {
        let mut jitter = DecorrelatedJitter::default();
        let delays = [(); 8].map(|()| jitter.next_delay(&mut most()));
        assert_eq!(delays, [750, 2_250, 6_750, 20_250, 30_000, 30_000, 30_000, 30_000].map(millis));
        jitter.reset();
        assert_eq!(jitter.next_delay(&mut most()), millis(750), "reset starts over");
    }

    #[test]
    fn the_lower_bound_is_reached() {
        let mut jitter = DecorrelatedJitter::default();
        assert_eq!([(); 3].map(|()| jitter.next_delay(&mut least())), [millis(250); 3]);
    }

    #[test]
    fn base_equal_to_cap_is_a_constant() {
        let mut jitter = DecorrelatedJitter::new(millis(5), millis(5)).unwrap();
        assert_eq!([(); 3].map(|()| jitter.next_delay(&mut seeded(1))), [millis(5); 3]);
    }

    #[test]
    fn bounds_out_of_order_are_refused() {
        let refused = |base, cap| match DecorrelatedJitter::new(base, cap) {
            Err(SetupError::Setting { setting, .. }) => setting,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(Duration::ZERO, millis(1)), "base");
        assert_eq!(refused(Duration::ZERO, Duration::ZERO), "base");
        assert_eq!(refused(millis(2), millis(1)), "cap");
    }

    #[test]
    fn the_extremes_overflow_nothing() {
        let mut widest = DecorrelatedJitter::new(Duration::from_nanos(1), Duration::MAX).unwrap();
        let last = (0..100).map(|_| widest.next_delay(&mut most())).last();
        assert_eq!(last, Some(Duration::MAX));
        let mut largest = DecorrelatedJitter::new(Duration::MAX, Duration::MAX).unwrap();
        assert_eq!(largest.next_delay(&mut seeded(1)), Duration::MAX);
    }

    /// Computed outside this crate, from the formula and the definition of xoshiro256++.
    #[test]
    fn cap_still_jitters_seeded_vectors() {
        let vectors = [
            (
                1,
                [
                    623_552, 1_459_361, 2_687_546, 4_339_268, 1_964_636, 2_188_688, 2_742_196, 1_497_115,
                    2_255_747,
                ],
            ),
            (
                2,
                [
                    518_581, 633_536, 1_523_915, 3_453_126, 8_981_914, 18_667_691, 26_426_420, 13_761_444,
                    11_215_172,
                ],
            ),
            (3, [573_958, 1_493_474, 720_401, 1_443_579, 353_727, 411_660, 702_378, 1_172_906, 2_740_277]),
        ];
        for (seed, micros) in vectors {
            let (mut jitter, mut rng) = (DecorrelatedJitter::default(), seeded(seed));
            assert_eq!([(); 9].map(|()| jitter.next_delay(&mut rng).as_micros()), micros, "seed {seed}");
        }
    }

    /// After a draw of at least 10 s the range is [250 ms, 30 s]: the next one must be spread over all of it.
    #[test]
    fn cap_still_jitters() {
        let (mut jitter, mut rng) = (DecorrelatedJitter::default(), seeded(2));
        let (mut previous, mut at_the_cap) = (Duration::ZERO, Vec::new());
        for _ in 0..10_000 {
            let delay = jitter.next_delay(&mut rng);
            if previous >= Duration::from_secs(10) {
                at_the_cap.push(delay);
            }
            previous = delay;
        }
        assert!(at_the_cap.len() > 1_000, "{} draws", at_the_cap.len());
        assert!(at_the_cap.iter().all(|&delay| delay < Duration::from_secs(30)), "none sits at the cap");
        let share = |from, to| {
            let (from, to) = (Duration::from_secs(from), Duration::from_secs(to));
            at_the_cap.iter().filter(|&&delay| from <= delay && delay < to).count() * 100 / at_the_cap.len()
        };
        let thirds = [share(0, 10), share(10, 20), share(20, 30)];
        assert!(thirds.iter().all(|percent| (30..=36).contains(percent)), "{thirds:?}");
    }

    proptest! {
        #[test]
        fn each_delay_is_within_the_range_that_the_one_before_opened(
            seed: u64, base in 1_u64..1_000_000_000, above in 0_u64..100_000_000_000,
        ) {
            let (base, cap) = (Duration::from_nanos(base), Duration::from_nanos(base + above));
            let (mut jitter, mut rng) = (DecorrelatedJitter::new(base, cap).unwrap(), seeded(seed));
            let mut previous = base;
            for _ in 0..50 {
                let delay = jitter.next_delay(&mut rng);
                prop_assert!(base <= delay && delay <= cap && delay <= 3 * previous);
                previous = delay;
            }
        }
    }
}
