//! What a limiter does while its store does not answer, and what those who watch are told.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod at_once;
mod breaker;
mod deadline;
mod fallback;
mod lists;
mod observers;
mod policies;
mod same;
mod shadow;
mod stall;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use throttle_core::observe::{BreakerEvent, DecisionEvent, Observer, UnavailableEvent};
use throttle_core::{Breaker, Guarded, Policy, RateLimiter, Rule, Timestamp};
use throttle_testkit::{Faults, FaultyBackend, ManualClock, ReferenceBackend};

type Store = Guarded<FaultyBackend<ReferenceBackend>>;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// A limiter on a store under control, its clock, and what an observer saw.
struct Bench {
    limiter: RateLimiter<Store>,
    clock: ManualClock,
    faults: Faults<Infallible>,
    journal: Arc<Journal>,
}

impl Bench {
    /// `rule` for the store, with what `options` add.
    fn of(rule: &str, options: impl FnOnce(RateLimiter<Store>) -> RateLimiter<Store>) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(1_700_006_400_000_000).unwrap());
        let store = FaultyBackend::new(ReferenceBackend::default()).with_clock(clock.clone());
        let (faults, journal) = (store.faults(), Arc::new(Journal::default()));
        let limiter = RateLimiter::new(policy(rule), store).with_clock(clock.clone());
        let limiter = options(limiter).observe(Arc::clone(&journal));
        Self { limiter, clock, faults, journal }
    }

    /// How often the store was asked.
    fn asked(&self) -> usize {
        self.faults.seen().len()
    }

    /// What the store has left for a key, past everything that is set.
    async fn left(&self, key: &str) -> u32 {
        let plain = RateLimiter::on(self.limiter.policy().clone(), self.limiter.store().clone());
        plain.with_clock(self.clock.clone()).peek_n(key, 0).await.unwrap().remaining()
    }

    /// Lets time pass by `step` whenever somebody waits for it, until `future` is done.
    async fn passing<F: Future>(&self, step: Duration, future: F) -> F::Output {
        let clock = self.clock.clone();
        let passing = tokio::spawn(async move {
            loop {
                clock.until_sleeping(1).await;
                clock.advance(step);
                tokio::task::yield_now().await;
            }
        });
        let output = soon(future).await;
        passing.abort();
        output
    }
}

fn policy(rule: &str) -> Policy {
    Policy::new("guarded", [rule.parse::<Rule>().unwrap()]).unwrap()
}

/// A limiter in memory, to fall back on.
fn local(rule: &str, clock: &ManualClock) -> RateLimiter<Guarded<ReferenceBackend>> {
    RateLimiter::new(policy(rule), ReferenceBackend::default()).with_clock(clock.clone())
}

/// Opens after so many failures; the pause before each probe is exactly a second.
fn breaker(failures: u32) -> Breaker {
    Breaker::builder().failures(failures).pauses(SECOND, SECOND).build().unwrap()
}

/// One line for each event.
#[derive(Default)]
struct Journal(Mutex<Vec<String>>);

impl Journal {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Observer for Journal {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        let decision = event.decision;
        let result = match (decision.is_allowed(), decision.would_deny()) {
            (true, false) => "allowed",
            (true, true) => "would deny",
            (false, _) => "denied",
        };
        let line = format!("{} {} {result} by {}", event.call.name(), event.cost, decision.source().name());
        self.0.lock().push(line);
    }

    fn on_unavailable(&self, event: &UnavailableEvent<'_>) {
        let asked = if event.was_asked { "asked" } else { "not asked" };
        let told = if event.is_propagated { "propagated" } else { "answered" };
        let (call, kind) = (event.call.name(), event.error.kind().name());
        self.0.lock().push(format!("{call} unavailable: {kind}, {asked}, {told}"));
    }

    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        self.0.lock().push(format!("{}: {} to {}", event.breaker, event.from.name(), event.to.name()));
    }
}

/// What is right is quick, on a clock that is moved by hand; what hangs has failed.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(20 * SECOND, future).await.unwrap_or_else(|_| panic!("it hangs"))
}

/// Lets other tasks run until none of them can go on.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
