//! Stores that answer at once are attended as those that take their time.

use std::convert::Infallible;
use std::sync::Arc;

use throttle_core::kernel::PolicyState;
use throttle_core::{
    Action, KeyList, Outcome, PolicyName, RateLimiter, Source, StoreBackend, Take, TakeOutcome, Timestamp,
};

use super::{Journal, policy};

/// One state for all keys, which is only ever asked at once.
#[derive(Debug)]
struct AtOnce(parking_lot::Mutex<PolicyState>);

impl StoreBackend for AtOnce {
    type BaseError = Infallible;

    fn name(&self) -> &'static str {
        "at-once"
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Infallible> {
        panic!("{action:?} can be answered at once")
    }

    async fn reset(&self, _: &PolicyName, _: &str) -> Result<bool, Infallible> {
        Ok(false)
    }

    async fn reset_policy(&self, _: &PolicyName) -> Result<u64, Infallible> {
        Ok(0)
    }

    async fn ping(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn decide_now(&self, take: &Take<'_>) -> Option<TakeOutcome> {
        take.decide(Timestamp::EPOCH, &mut self.0.lock())
    }
}

#[test]
fn lists_shadow_mode_and_observers_see_them_too() {
    let (policy, journal) = (policy("gcra 2/h"), Arc::new(Journal::default()));
    let now = Timestamp::EPOCH;
    let mut state = PolicyState::fresh(&policy);
    let _ = throttle_core::kernel::decide(&Action::consume(&policy, "key"), now, &mut state);
    let limiter = RateLimiter::new(policy, AtOnce(parking_lot::Mutex::new(state)))
        .allow(KeyList::new().keys(["health"]))
        .block(KeyList::new().keys(["mallory"]))
        .breaker(super::breaker(1))
        .shadow()
        .observe(Arc::clone(&journal));
    let blocking = limiter.blocking();
    assert_eq!(blocking.check("key").unwrap().remaining(), 0);
    assert!(blocking.check("key").unwrap().would_deny());
    assert_eq!(blocking.check("health").unwrap().source(), Source::AllowList);
    assert!(blocking.check("mallory").unwrap().would_deny());
    let counts = limiter.counts();
    assert_eq!((counts.allow_listed, counts.block_listed, counts.would_deny), (1, 1, 2));
    let expected = [
        "check 1 allowed by store",
        "check 1 would deny by store",
        "check 1 allowed by allow_list",
        "check 1 would deny by block_list",
    ];
    assert_eq!(journal.take(), expected);
}
