//! [`Backoff`]: how long to wait before trying again.

use std::time::Duration;

use rand::{Rng, RngExt};

use crate::SetupError;

/// Draws the delays between the attempts of one operation. A [`Retry`](super::Retry) clones a fresh one for each.
///
/// Obligation: no delay is zero, or clients that fail together come back together and at once.
pub trait Backoff {
    /// The delay before a retry, when `retries` of them (from 0, up to [`u32::MAX`]) were made already.
    fn delay(&mut self, retries: u32, rng: &mut dyn Rng) -> Duration;
}

/// 0 < base ≤ cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) base: Duration,
    pub(super) cap: Duration,
}

impl Bounds {
    pub(super) fn new(base: Duration, cap: Duration) -> Result<Self, SetupError> {
        if base.is_zero() {
            return Err(SetupError::Setting { setting: "base", reason: "must be more than zero".to_owned() });
        }
        if base > cap {
            let reason = format!("must be at least the base, {base:?}, not {cap:?}");
            return Err(SetupError::Setting { setting: "cap", reason });
        }
        Ok(Self { base, cap })
    }
}

/// Uniform in the closed range, to the nanosecond. `least` is not above `most`.
pub(super) fn draw(rng: &mut (impl Rng + ?Sized), least: Duration, most: Duration) -> Duration {
    Duration::from_nanos_u128(rng.random_range(least.as_nanos()..=most.as_nanos()))
}

/// Sources of bits at the ends of their range, and seeded ones.
#[cfg(test)]
pub(super) mod test_rng {
    use std::convert::Infallible;

    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{SeedableRng, TryRng};

    /// Returns the same bits for ever.
    pub(in crate::retry) struct Constant(u64);

    /// Draws the least of every range.
    pub(in crate::retry) fn least() -> Constant {
        Constant(0)
    }

    /// Draws the most of every range.
    pub(in crate::retry) fn most() -> Constant {
        Constant(u64::MAX)
    }

    impl TryRng for Constant {
        type Error = Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Infallible> {
            Ok(u32::try_from(self.0 >> 32).unwrap())
        }

        fn try_next_u64(&mut self) -> Result<u64, Infallible> {
            Ok(self.0)
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
            bytes.fill(self.0.to_le_bytes()[0]);
            Ok(())
        }
    }

    pub(in crate::retry) fn seeded(seed: u64) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(seed)
    }
}
