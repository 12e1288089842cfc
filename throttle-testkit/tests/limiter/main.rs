//! The limiter over a store that can be made to fail, on a clock that is moved by hand.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::convert::Infallible;
use std::time::Duration;

use throttle_core::{Decision, Guarded, Policy, RateLimiter, Rule, Timestamp};
use throttle_testkit::{Faults, FaultyBackend, ManualClock, ReferenceBackend};

mod acquire;
mod blocking;
mod cancellation;
mod faces;
mod reserve;

type Store = Guarded<FaultyBackend<ReferenceBackend>>;

/// A limiter, its clock, and the control of its store.
struct Bench {
    limiter: RateLimiter<Store>,
    clock: ManualClock,
    faults: Faults<Infallible>,
}

const SECOND: Duration = Duration::from_secs(1);
const MICRO: Duration = Duration::from_micros(1);

impl Bench {
    fn of(rules: &str) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(1_700_006_400_000_000).unwrap());
        let rules = rules.split(';').map(|rule| rule.parse::<Rule>().unwrap());
        let policy = Policy::new("limiter", rules).unwrap();
        let store = FaultyBackend::new(ReferenceBackend::default()).with_clock(clock.clone());
        let faults = store.faults();
        let limiter = RateLimiter::new(policy, store).with_clock(clock.clone());
        Self { limiter, clock, faults }
    }

    /// Starts to wait for one unit, and says when it was granted: how long after the start.
    fn spawn_acquire(&self, within: Duration) -> tokio::task::JoinHandle<Option<Duration>> {
        let (limiter, clock) = (self.limiter.clone(), self.clock.clone());
        let start = throttle_core::Clock::now(&clock);
        tokio::spawn(async move {
            let decision: Decision = soon(limiter.acquire("key", within)).await.unwrap();
            let waited = throttle_core::Clock::now(&clock).saturating_since(start);
            decision.is_allowed().then_some(waited)
        })
    }

    /// Completes when `count` wait on the clock.
    async fn until_sleeping(&self, count: usize) {
        soon(self.clock.until_sleeping(count)).await;
    }

    async fn remaining(&self) -> u32 {
        self.limiter.peek_n("key", 0).await.unwrap().remaining()
    }

    /// How often the store was asked to decide.
    fn asked(&self) -> usize {
        self.faults.seen().len()
    }
}

/// What is right is quick, on a clock that is moved by hand; what hangs has failed.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(10 * SECOND, future).await.expect("it hangs")
}

/// Lets other tasks run until none of them can go on.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
