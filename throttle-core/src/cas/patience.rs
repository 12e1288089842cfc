//! How long, and how often, one call tries again when others were first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The longest wait before the second retry; it doubles from wait to wait.
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// The longest wait of all. Kept low, for a call that has waited long already should not fall behind newer ones.
const LONGEST_WAIT: Duration = Duration::from_millis(16);

/// The deadline of calls, and their source of randomness.
#[derive(Debug)]
pub(super) struct Patience {
    pub(super) deadline: Duration,
    seed: u64,
    waits: AtomicU64,
}

impl Patience {
    pub(super) fn new(deadline: Duration, seed: u64) -> Self {
        Self { deadline, seed, waits: AtomicU64::new(0) }
    }

    pub(super) fn start(&self) -> Tries<'_> {
        Tries { patience: self, started: Instant::now(), conflicts: 0 }
    }

    /// A wait between nothing and `longest`, so that those who met do not meet again.
    fn jitter(&self, longest: Duration) -> Duration {
        let nth = self.waits.fetch_add(1, Ordering::Relaxed);
        let mut random = StdRng::seed_from_u64(self.seed.wrapping_add(nth));
        random.random_range(Duration::ZERO..=longest)
    }
}

/// The tries of one call.
pub(super) struct Tries<'p> {
    patience: &'p Patience,
    started: Instant,
    conflicts: u32,
}

impl Tries<'_> {
    /// After a conflict: waits for the right time to try again. False if the deadline has passed.
    ///
    /// Every other retry comes at once, the first one too: most conflicts are with one other writer, and after a wait
    /// the value that a conflict showed is out of date, so the next try mostly serves to see a new one. Waits are on
    /// the tokio timer; without a runtime, the caller's executor gets its turn instead.
    pub(super) async fn again(&mut self) -> bool {
        self.conflicts = self.conflicts.saturating_add(1);
        let left = self.patience.deadline.saturating_sub(self.started.elapsed());
        if left.is_zero() {
            return false;
        }
        let wait = self.patience.jitter(longest_wait(self.conflicts)).min(left);
        if wait.is_zero() {
            return true;
        }
        match Handle::try_current() {
            Ok(_) => tokio::time::sleep(wait).await,
            Err(_) => tokio::task::yield_now().await,
        }
        true
    }
}

fn longest_wait(conflicts: u32) -> Duration {
    match conflicts {
        0 => Duration::ZERO,
        _ if conflicts % 2 == 1 => Duration::ZERO,
        _ => FIRST_WAIT.saturating_mul(2_u32.saturating_pow(conflicts / 2 - 1)).min(LONGEST_WAIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o_98_waits_grow_to_a_bound_and_never_overflow() {
        let millis = |conflicts| longest_wait(conflicts).as_millis();
        assert_eq!([0, 1, 2, 3, 4, 6, 8, 10, 12].map(millis), [0, 0, 1, 0, 2, 4, 8, 16, 16]);
        assert_eq!([40, 41, u32::MAX - 1, u32::MAX].map(millis), [16, 0, 16, 0]);
    }

    #[test]
    fn waits_are_spread_and_repeat_with_the_seed() {
        let waits = |seed| {
            let patience = Patience::new(Duration::from_secs(1), seed);
            (0..100).map(|_| patience.jitter(LONGEST_WAIT)).collect::<Vec<_>>()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
        let low = waits(1).into_iter().filter(|wait| *wait < LONGEST_WAIT / 2).count();
        assert!((25..75).contains(&low), "{low} of 100 in the lower half");
        assert!(waits(1).into_iter().all(|wait| wait <= LONGEST_WAIT));
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_ends_it_and_nothing_else() {
        let patience = Patience::new(Duration::from_secs(1), 7);
        let mut tries = patience.start();
        let mut retries = 0;
        while tries.again().await {
            retries += 1;
        }
        assert!(retries > 120, "{retries} retries, half of them after waits of at most 16 ms in one second");
        let took = tries.started.elapsed();
        assert!(took >= patience.deadline && took < patience.deadline + Duration::from_millis(2), "{took:?}");
    }

    #[test]
    fn without_a_runtime_nothing_panics() {
        let patience = Patience::new(Duration::from_millis(5), 7);
        let mut tries = patience.start();
        pollster::block_on(async { while tries.again().await {} });
        assert!(tries.started.elapsed() >= patience.deadline);
    }
}
