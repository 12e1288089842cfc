//! A shared limiter as the admission of a retry.

use std::cell::Cell;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use throttle_core::retry::{Retry, RetryBudget, RetryError};
use throttle_core::{Clock, ErrorKind, Guarded, Policy, RateLimiter, Rule, StoreUnavailableError};
use throttle_testkit::{Fault, FaultyBackend, ReferenceBackend};

use super::support::{Failed, Steady, StepClock, retryable};

type Limiter = RateLimiter<Guarded<FaultyBackend<ReferenceBackend>>>;

fn limiter(clock: &StepClock, rule: &str) -> Limiter {
    let policy = Policy::new("outbound", [rule.parse::<Rule>().unwrap()]).unwrap();
    RateLimiter::new(policy, FaultyBackend::new(ReferenceBackend::default())).with_clock(clock.clone())
}

#[test]
fn each_attempt_takes_a_unit_of_the_limiter() {
    let (clock, calls) = (StepClock::default(), Cell::new(0));
    let limiter = limiter(&clock, "gcra 3/h");
    let retry = Retry::builder(Steady(Duration::from_secs(1)))
        .clock(clock.clone())
        .admission(limiter.admission("api"))
        .build()
        .unwrap();
    let fails_twice = || if calls.replace(calls.get() + 1) < 2 { Err(Failed(503)) } else { Ok(()) };
    retry.run_blocking(fails_twice, retryable).unwrap();
    let denied = limiter.blocking().check("api").unwrap();
    assert!(!denied.is_allowed(), "three attempts took all three");
    assert!(limiter.blocking().check("other").unwrap().is_allowed());

    let end = retry.run_blocking(|| Ok::<_, Failed>(()), retryable);
    let Err(RetryError::RateLimited { retry_after, last: None }) = end else { panic!("{end:?}") };
    assert_eq!(retry_after, denied.retry_after());
}

#[test]
fn a_refused_admission_gives_the_budget_back() {
    let clock = StepClock::default();
    let budget = Arc::new(RetryBudget::builder().initial(100).build().unwrap());
    let retry = Retry::builder(Steady(Duration::from_secs(1)))
        .clock(clock.clone())
        .admission(limiter(&clock, "gcra 1/h").admission("api"))
        .budget(Arc::clone(&budget))
        .build()
        .unwrap();
    let end = retry.run_blocking(|| Err::<(), _>(Failed(503)), retryable);
    assert!(matches!(end, Err(RetryError::RateLimited { last: Some(Failed(503)), .. })), "{end:?}");
    assert_eq!(budget.balance(clock.now()), 100);
}

#[test]
fn a_store_that_does_not_answer_is_no_refusal() {
    let clock = StepClock::default();
    let limiter = limiter(&clock, "gcra 1/h");
    limiter.store().get_ref().faults().inject(Fault::refuse(ErrorKind::Connection).always());
    let retry = Retry::builder(Steady(Duration::from_secs(1)))
        .clock(clock)
        .admission(limiter.admission("api"))
        .build()
        .unwrap();
    let end = retry.run_blocking(|| Ok::<_, Failed>(()), retryable);
    let Err(unavailable @ RetryError::AdmissionUnavailable { last: None, .. }) = end else {
        panic!("{end:?}")
    };
    let source = unavailable.source().and_then(|source| source.downcast_ref::<StoreUnavailableError>());
    assert_eq!(source.map(StoreUnavailableError::kind), Some(ErrorKind::Connection));
}
