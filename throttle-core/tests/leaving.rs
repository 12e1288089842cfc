//! What callers that leave, or whose store fails badly, get back and do not break.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use throttle_core::{Action, Outcome, Policy, PolicyName, RateLimiter, Reserve, Rule, StoreBackend};
use throttle_testkit::ReferenceBackend;

/// Waits a turn of the runtime before it decides, or panics then.
#[derive(Debug, Clone, Default)]
struct Slow {
    inner: ReferenceBackend,
    panics: bool,
}

impl StoreBackend for Slow {
    type BaseError = Infallible;

    fn name(&self) -> &'static str {
        "slow"
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Infallible> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!self.panics, "a defect of the backend");
        self.inner.decide(action).await
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Infallible> {
        self.inner.reset(policy, key).await
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Infallible> {
        self.inner.reset_policy(policy).await
    }

    async fn ping(&self) -> Result<(), Infallible> {
        self.inner.ping().await
    }
}

fn policy(rule: &str) -> Policy {
    Policy::new("leaving", [rule.parse::<Rule>().unwrap()]).unwrap()
}

#[test]
fn a_panic_of_the_backend_ends_the_call_and_nothing_else() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let slow = Slow { panics: true, ..Slow::default() };
    let limiter = RateLimiter::new(policy("gcra 9/h"), slow);
    let reserve = || runtime.block_on(limiter.reserve("k", 1));
    catch_unwind(AssertUnwindSafe(reserve)).unwrap_err();
    let acquire = || runtime.block_on(limiter.acquire("k", Duration::from_secs(1)));
    catch_unwind(AssertUnwindSafe(acquire)).unwrap_err();
}

#[test]
fn a_reservation_dropped_on_a_thread_of_ones_own_is_given_back() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let limiter = RateLimiter::new(policy("gcra 100/h"), Slow::default());
    let blocking = limiter.blocking().with_runtime(runtime.handle().clone());
    let Reserve::Held(reservation) = blocking.reserve("k", 50).unwrap() else { panic!("100 were free") };
    drop(reservation);
    let free = || blocking.peek("k").unwrap().remaining() == 100;
    assert!((0..1_000).any(|_| free()), "it goes back in the background");
}

#[test]
fn a_cost_far_above_the_estimate_is_charged_in_full() {
    let limiter = RateLimiter::new(policy("gcra 10000000/h"), ReferenceBackend::default()).blocking();
    let Reserve::Held(reservation) = limiter.reserve("k", 1).unwrap() else { panic!("all were free") };
    assert!(limiter.commit(reservation, 5_000_000).unwrap().is_allowed());
    assert!((5_000_000..5_100_000).contains(&limiter.peek("k").unwrap().remaining()));

    let Reserve::Held(reservation) = limiter.reserve("k", 1).unwrap() else { panic!("half were free") };
    let denied = limiter.commit(reservation, u32::MAX).unwrap();
    assert!(!denied.is_allowed() && denied.retry_after().is_some_and(|wait| !wait.is_zero()));
    assert_eq!(limiter.peek("k").unwrap().remaining(), 0, "as far as there were any");
}

#[test]
fn an_estimate_that_was_right_writes_nothing_more() {
    let store = ReferenceBackend::default();
    let limiter = RateLimiter::new(policy("gcra 10/h"), store).blocking();
    let Reserve::Held(reservation) = limiter.reserve("k", 4).unwrap() else { panic!("10 were free") };
    assert_eq!(limiter.commit(reservation, 4).unwrap().remaining(), 6);
}
