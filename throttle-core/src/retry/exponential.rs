//! [`Exponential`]: delays that double, plain or with full or equal jitter.

use std::time::Duration;

use rand::Rng;

use super::backoff::{Backoff, Bounds, draw};
use crate::SetupError;

/// Exponential backoff. The ceiling of the n-th retry, from 0, is min(cap, base × 2ⁿ), for every n up to [`u32::MAX`];
/// the delay is the ceiling itself (plain), or drawn below it (full and equal jitter, as AWS's article "Exponential
/// Backoff And Jitter" names them). No delay is zero, and none is above the cap.
///
/// Plain delays bring back together the clients that failed together; prefer a jitter.
///
/// ```
/// use std::time::Duration;
/// use throttle_core::retry::Exponential;
///
/// let (base, cap) = (Duration::from_millis(100), Duration::from_secs(1));
/// let plain = Exponential::plain(base, cap)?;
/// let delays = [0, 1, 3, 4, u32::MAX].map(|retries| plain.delay_of(retries, &mut rand::rng()).as_millis());
/// assert_eq!(delays, [100, 200, 800, 1_000, 1_000]);
/// let equal = Exponential::equal_jitter(base, cap)?.delay_of(1, &mut rand::rng());
/// assert!(base <= equal && equal <= 2 * base);
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exponential {
    bounds: Bounds,
    jitter: Jitter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Jitter {
    None,
    Full,
    Equal,
}

impl Exponential {
    /// The ceiling itself.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] unless 0 < base ≤ cap.
    pub fn plain(base: Duration, cap: Duration) -> Result<Self, SetupError> {
        Ok(Self { bounds: Bounds::new(base, cap)?, jitter: Jitter::None })
    }

    /// Uniform in (0, ceiling]: the widest spread, and sometimes hardly a wait.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] unless 0 < base ≤ cap.
    pub fn full_jitter(base: Duration, cap: Duration) -> Result<Self, SetupError> {
        Ok(Self { bounds: Bounds::new(base, cap)?, jitter: Jitter::Full })
    }

    /// Uniform in [ceiling / 2, ceiling]: always at least half of the wait.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] unless 0 < base ≤ cap.
    pub fn equal_jitter(base: Duration, cap: Duration) -> Result<Self, SetupError> {
        Ok(Self { bounds: Bounds::new(base, cap)?, jitter: Jitter::Equal })
    }

    /// The delay of a retry, when `retries` of them (from 0) were made already.
    #[must_use]
    pub fn delay_of(&self, retries: u32, rng: &mut (impl Rng + ?Sized)) -> Duration {
        let ceiling = self.ceiling(retries);
        match self.jitter {
            Jitter::None => ceiling,
            Jitter::Full => draw(rng, Duration::from_nanos(1), ceiling),
            // The half is rounded up, so that it is never zero.
            Jitter::Equal => draw(rng, ceiling - ceiling / 2, ceiling),
        }
    }

    fn ceiling(&self, retries: u32) -> Duration {
        let Bounds { base, cap } = self.bounds;
        let doubled = 1_u128.checked_shl(retries).and_then(|factor| base.as_nanos().checked_mul(factor));
        match doubled {
            Some(nanos) if nanos < cap.as_nanos() => Duration::from_nanos_u128(nanos),
            _ => cap,
        }
    }
}

impl Backoff for Exponential {
    fn delay(&mut self, retries: u32, rng: &mut dyn Rng) -> Duration {
        self.delay_of(retries, rng)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::backoff::test_rng::{least, most, seeded};
    use super::*;

    type Constructor = fn(Duration, Duration) -> Result<Exponential, SetupError>;

    const ALL: [Constructor; 3] = [Exponential::plain, Exponential::full_jitter, Exponential::equal_jitter];

    #[test]
    fn o_98_no_exponent_overflows() {
        let (base, cap) = (Duration::from_millis(30), Duration::from_secs(1));
        for constructor in ALL {
            let backoff = constructor(base, cap).unwrap();
            for retries in (0..=1_000).chain([u32::MAX - 1, u32::MAX]) {
                for rng in [&mut least(), &mut most()] {
                    let delay = backoff.delay_of(retries, rng);
                    assert!(Duration::ZERO < delay && delay <= cap, "{backoff:?} after {retries}: {delay:?}");
                }
            }
        }
        let plain = Exponential::plain(base, cap).unwrap();
        let millis = [0, 1, 5, 6, 39, 57].map(|retries| plain.delay_of(retries, &mut seeded(0)).as_millis());
        assert_eq!(millis, [30, 60, 960, 1_000, 1_000, 1_000]);
    }

    #[test]
    fn jitters_reach_both_ends() {
        let (base, cap) = (Duration::from_nanos(101), Duration::MAX);
        let ends = |backoff: Exponential, retries| {
            [least(), most()].map(|mut rng| backoff.delay_of(retries, &mut rng))
        };
        let nanos = |pair: [u64; 2]| pair.map(Duration::from_nanos);
        assert_eq!(ends(Exponential::plain(base, cap).unwrap(), 1), nanos([202, 202]));
        assert_eq!(ends(Exponential::full_jitter(base, cap).unwrap(), 1), nanos([1, 202]));
        assert_eq!(ends(Exponential::equal_jitter(base, cap).unwrap(), 0), nanos([51, 101]));
        let largest = ends(Exponential::full_jitter(base, cap).unwrap(), u32::MAX);
        assert_eq!(largest, [Duration::from_nanos(1), Duration::MAX]);
    }

    #[test]
    fn the_ceiling_doubles_until_the_cap_and_not_to_it_at_once() {
        let plain = Exponential::plain(Duration::from_nanos(1), Duration::from_secs(1_000)).unwrap();
        assert_eq!(plain.ceiling(35), Duration::from_nanos(1 << 35));
        assert_eq!(plain.ceiling(39), Duration::from_nanos(1 << 39));
        assert_eq!(plain.ceiling(40), Duration::from_secs(1_000));
    }

    #[test]
    fn bounds_out_of_order_are_refused() {
        for constructor in ALL {
            constructor(Duration::ZERO, Duration::MAX).unwrap_err();
            constructor(Duration::from_nanos(2), Duration::from_nanos(1)).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn no_delay_is_zero_or_above_the_cap(
            seed: u64, base in 1_u64.., above in 0_u64.., retries: u32, which in 0_usize..3,
        ) {
            let (base, cap) = (Duration::from_nanos(base), Duration::from_nanos(base.saturating_add(above)));
            let delay = ALL[which](base, cap).unwrap().delay_of(retries, &mut seeded(seed));
            prop_assert!(Duration::ZERO < delay && delay <= cap);
        }
    }
}
