//! How operations end, and what each end costs.

use std::cell::Cell;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use throttle_core::retry::{
    Admission, DecorrelatedJitter, ErrorClass, Exponential, Refusal, Retry, RetryBudget, RetryError,
    TokenBucket,
};
use throttle_core::{Clock, SetupError, Timestamp};

use super::support::{Failed, Steady, StepClock, retryable};

const SECOND: Duration = Duration::from_secs(1);

fn budget(initial: u32) -> Arc<RetryBudget> {
    Arc::new(RetryBudget::builder().initial(initial).build().unwrap())
}

#[test]
fn only_a_success_at_once_deposits() {
    let (clock, budget) = (StepClock::default(), budget(50));
    let retry =
        Retry::builder(Steady(SECOND)).clock(clock.clone()).budget(Arc::clone(&budget)).build().unwrap();
    assert_eq!(retry.run_blocking(|| Ok::<_, Failed>(7), retryable).unwrap(), 7);
    assert_eq!(budget.balance(clock.now()), 51);

    let calls = Cell::new(0);
    let fails_once = || if calls.replace(calls.get() + 1) == 0 { Err(Failed(503)) } else { Ok(8) };
    assert_eq!(retry.run_blocking(fails_once, retryable).unwrap(), 8);
    assert_eq!(budget.balance(clock.now()), 41, "a retry withdraws 10, and its success deposits nothing");
    assert_eq!(clock.waits(), [SECOND]);
}

#[test]
fn what_the_caller_calls_permanent_is_not_tried_again() {
    let (clock, budget) = (StepClock::default(), budget(100));
    let retry =
        Retry::builder(Steady(SECOND)).clock(clock.clone()).budget(Arc::clone(&budget)).build().unwrap();
    let end = retry.run_blocking(|| Err::<(), _>(Failed(404)), |_| ErrorClass::Permanent);
    assert!(matches!(end, Err(RetryError::Permanent(Failed(404)))), "{end:?}");
    assert_eq!((budget.balance(clock.now()), clock.waits().len()), (100, 0));
}

#[test]
fn the_attempt_limit_holds_the_last_error_and_is_not_paid_for() {
    let (clock, budget, calls) = (StepClock::default(), budget(100), Cell::new(500));
    let retry = Retry::builder(Steady(SECOND))
        .clock(clock.clone())
        .budget(Arc::clone(&budget))
        .max_attempts(3)
        .build()
        .unwrap();
    let end = retry.run_blocking(|| Err::<(), _>(Failed(calls.replace(calls.get() + 1))), retryable);
    assert!(matches!(end, Err(RetryError::AttemptsExhausted { attempts: 3, last: Failed(502) })), "{end:?}");
    assert_eq!(budget.balance(clock.now()), 80, "two retries");
    assert_eq!(clock.waits(), [SECOND; 2]);
}

/// 8 operations per second, all of whose attempts fail, for a minute.
fn retries_in_a_total_outage(initial: u32) -> u32 {
    let (clock, budget, attempts) = (StepClock::default(), budget(initial), Cell::new(0));
    let retry = Retry::builder(Steady(Duration::from_micros(1)))
        .clock(clock.clone())
        .budget(budget)
        .max_attempts(5)
        .build()
        .unwrap();
    for _ in 0..480 {
        clock.advance(Duration::from_millis(125));
        let fail = || {
            attempts.set(attempts.get() + 1);
            Err::<(), _>(Failed(503))
        };
        retry.run_blocking(fail, retryable).unwrap_err();
    }
    attempts.get() - 480
}

#[test]
fn a_total_outage_spends_the_balance_and_no_more() {
    assert_eq!([0, 100, 1_000].map(retries_in_a_total_outage), [0, 10, 100]);
}

#[test]
fn an_empty_budget_ends_at_once_with_the_last_error() {
    let clock = StepClock::default();
    let retry = Retry::builder(Steady(SECOND)).clock(clock.clone()).budget(budget(9)).build().unwrap();
    let end = retry.run_blocking(|| Err::<(), _>(Failed(503)), retryable);
    assert!(matches!(end, Err(RetryError::RetryBudgetExhausted { last: Failed(503) })), "{end:?}");
    assert!(clock.waits().is_empty());
}

#[test]
fn o_100_a_request_that_waits_does_not_block_its_own_retry() {
    let clock = StepClock::default();
    let whole = RetryBudget::builder().initial(1).retry_cost(1).build().unwrap();
    let retry = Retry::builder(Steady(50 * SECOND)).clock(clock.clone()).budget(whole).build().unwrap();
    let end = retry.run_blocking(|| Err::<(), _>(Failed(503)), retryable);
    assert!(matches!(end, Err(RetryError::RetryBudgetExhausted { .. })), "{end:?}");
    assert_eq!(clock.waits(), [50 * SECOND], "one retry");
}

#[test]
fn a_refused_admission_gives_the_budget_back() {
    let (clock, budget) = (StepClock::default(), budget(100));
    let retry = Retry::builder(Steady(SECOND))
        .clock(clock.clone())
        .budget(Arc::clone(&budget))
        .admission(TokenBucket::new("1 per 10s").unwrap())
        .build()
        .unwrap();
    let end = retry.run_blocking(|| Err::<(), _>(Failed(503)), retryable);
    let Err(RetryError::RateLimited { retry_after, last: Some(Failed(503)) }) = end else {
        panic!("{end:?}")
    };
    assert_eq!(retry_after, Some(9 * SECOND));
    assert_eq!(budget.balance(clock.now()), 100);

    let end = retry.run_blocking(|| -> Result<(), Failed> { panic!("not admitted") }, retryable);
    assert!(matches!(end, Err(RetryError::RateLimited { last: None, .. })), "{end:?}");
    clock.advance(9 * SECOND);
    retry.run_blocking(|| Ok::<_, Failed>(()), retryable).unwrap();
}

#[test]
fn an_admission_that_cannot_say_ends_with_its_error() {
    struct Down;
    impl Admission for Down {
        async fn try_admit(&self, _now: Timestamp) -> Result<(), Refusal> {
            Err(Refusal::Unavailable("no store".into()))
        }
    }
    let retry = Retry::builder(Steady(SECOND)).admission(&Down).build().unwrap();
    let end = retry.run_blocking(|| Ok::<_, Failed>(()), retryable);
    let Err(RetryError::AdmissionUnavailable { source, last: None }) = end else { panic!("{end:?}") };
    assert_eq!(source.to_string(), "no store");
}

#[test]
fn blocking_waits_for_an_admission_that_takes_time() {
    struct AnswersLater;
    impl Admission for AnswersLater {
        async fn try_admit(&self, _now: Timestamp) -> Result<(), Refusal> {
            let mut asked = false;
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut asked, true) { Poll::Ready(Ok(())) } else { Poll::Pending }
            })
            .await
        }
    }
    let clock = StepClock::default();
    let retry = Retry::builder(Steady(SECOND)).clock(clock.clone()).admission(AnswersLater).build().unwrap();
    assert_eq!(retry.run_blocking(|| Ok::<_, Failed>("admitted"), retryable).unwrap(), "admitted");
    assert!(clock.waits().is_empty());
}

#[test]
fn a_servers_wait_is_the_least_delay_and_capped() {
    let clock = StepClock::default();
    let retry = Retry::builder(Steady(2 * SECOND))
        .clock(clock.clone())
        .max_attempts(4)
        .retry_after_cap(Duration::from_secs(7))
        .build()
        .unwrap();
    let waits = [Duration::ZERO, 5 * SECOND, Duration::from_secs(u64::MAX)].map(Some);
    let calls = Cell::new(0);
    let end = retry.run_blocking(
        || Err::<(), _>(Failed(429)),
        |_| ErrorClass::retry_after(waits.get(calls.replace(calls.get() + 1)).copied().flatten()),
    );
    assert!(matches!(end, Err(RetryError::AttemptsExhausted { .. })), "{end:?}");
    assert_eq!(clock.waits(), [2 * SECOND, 5 * SECOND, 7 * SECOND]);
}

#[test]
fn a_delay_beyond_the_deadline_is_not_waited_for() {
    for (deadline, waits) in
        [(Duration::from_micros(5_000_001), vec![5 * SECOND]), (5 * SECOND, vec![]), (SECOND, vec![])]
    {
        let (clock, budget) = (StepClock::default(), budget(100));
        let retry = Retry::builder(Steady(5 * SECOND))
            .clock(clock.clone())
            .budget(Arc::clone(&budget))
            .deadline(deadline)
            .build()
            .unwrap();
        let end = retry.run_blocking(|| Err::<(), _>(Failed(503)), retryable);
        assert!(matches!(end, Err(RetryError::DeadlineExceeded { last: Some(Failed(503)) })), "{end:?}");
        let balance = if waits.is_empty() { 100 } else { 90 };
        assert_eq!(budget.balance(clock.now()), balance, "what was not used is given back");
        assert_eq!(clock.waits(), waits, "deadline {deadline:?}");
    }
}

#[test]
fn a_blocking_operation_that_overruns_the_deadline_is_the_last() {
    let clock = StepClock::default();
    let retry = Retry::builder(Steady(SECOND)).clock(clock.clone()).deadline(3 * SECOND).build().unwrap();
    let slow = || {
        clock.advance(10 * SECOND);
        Err::<(), _>(Failed(504))
    };
    let end = retry.run_blocking(slow, retryable);
    assert!(matches!(end, Err(RetryError::DeadlineExceeded { last: Some(Failed(504)) })), "{end:?}");
    assert!(clock.waits().is_empty());
    let late = || {
        clock.advance(10 * SECOND);
        Ok::<_, Failed>("late, but there")
    };
    assert_eq!(retry.run_blocking(late, retryable).unwrap(), "late, but there");
}

#[test]
fn a_clock_that_oversleeps_ends_without_an_attempt() {
    let (clock, budget, calls) = (StepClock::oversleeping(60 * SECOND), budget(100), Cell::new(0));
    let retry =
        Retry::builder(Steady(SECOND)).clock(clock.clone()).budget(Arc::clone(&budget)).build().unwrap();
    let count = || {
        calls.set(calls.get() + 1);
        Err::<(), _>(Failed(503))
    };
    let end = retry.run_blocking(count, retryable);
    assert!(matches!(end, Err(RetryError::DeadlineExceeded { last: Some(Failed(503)) })), "{end:?}");
    assert_eq!((calls.get(), budget.balance(clock.now())), (1, 100));
}

#[test]
fn a_clock_stepping_back_does_not_prolong_the_deadline_beyond_the_whole() {
    let clock = StepClock::default();
    let retry = Retry::builder(Steady(4 * SECOND)).clock(clock.clone()).deadline(3 * SECOND).build().unwrap();
    let stepping = || {
        clock.step_back(3_600 * SECOND);
        Err::<(), _>(Failed(503))
    };
    let end = retry.run_blocking(stepping, retryable);
    assert!(matches!(end, Err(RetryError::DeadlineExceeded { .. })), "{end:?}");
    assert!(clock.waits().is_empty());
}

#[test]
fn the_same_seed_waits_the_same() {
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;
    let waits = |seed| {
        let clock = StepClock::default();
        let retry = Retry::builder(DecorrelatedJitter::default())
            .clock(clock.clone())
            .rng(Xoshiro256PlusPlus::seed_from_u64(seed))
            .build()
            .unwrap();
        retry.run_blocking(|| Err::<(), _>(Failed(503)), retryable).unwrap_err();
        clock.waits().iter().map(Duration::as_micros).collect::<Vec<_>>()
    };
    assert_eq!(waits(2), [518_581, 633_536, 1_523_915]);
    assert_eq!(waits(3), [573_958, 1_493_474, 720_401]);
}

#[test]
fn each_operation_has_a_backoff_of_its_own() {
    let clock = StepClock::default();
    let doubling = Exponential::plain(SECOND, 60 * SECOND).unwrap();
    let retry = Retry::builder(doubling).clock(clock.clone()).max_attempts(3).build().unwrap();
    for _ in 0..2 {
        retry.run_blocking(|| Err::<(), _>(Failed(503)), retryable).unwrap_err();
    }
    assert_eq!(clock.waits(), [1, 2, 1, 2].map(Duration::from_secs));
}

#[test]
fn settings_out_of_range_say_so() {
    let refused = |built: Result<Retry<Steady>, SetupError>| match built {
        Err(SetupError::Setting { setting, .. }) => setting,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Retry::builder(Steady(SECOND)).max_attempts(0).build()), "max_attempts");
    assert_eq!(refused(Retry::builder(Steady(SECOND)).deadline(Duration::ZERO).build()), "deadline");
}

#[test]
fn blocking_needs_neither_clock_nor_runtime() {
    let shortest = Exponential::plain(Duration::from_nanos(1), Duration::from_nanos(1)).unwrap();
    let retry = Retry::builder(shortest).max_attempts(3).build().unwrap();
    let end = retry.run_blocking(|| Err::<(), _>(Failed(503)), retryable);
    assert!(matches!(end, Err(RetryError::AttemptsExhausted { attempts: 3, .. })), "{end:?}");
}

proptest! {
    /// Operations whose attempts succeed or fail as drawn: what was retried was paid for.
    #[test]
    fn retries_are_paid_for_by_first_successes(
        initial in 0_u32..=200, outcomes in prop::collection::vec(prop::bool::weighted(0.8), 1..400),
        max_attempts in 1_u32..6,
    ) {
        let (clock, attempts) = (StepClock::default(), Cell::new(0));
        let retry = Retry::builder(Steady(SECOND))
            .clock(clock)
            .budget(budget(initial))
            .max_attempts(max_attempts)
            .build()
            .unwrap();
        let mut outcomes = outcomes.into_iter();
        let (mut operations, mut successes) = (0, 0);
        while outcomes.len() > 0 {
            let before = attempts.get();
            let attempt = || {
                attempts.set(attempts.get() + 1);
                if outcomes.next().unwrap_or(true) { Ok(()) } else { Err(Failed(503)) }
            };
            let succeeded = retry.run_blocking(attempt, retryable).is_ok();
            operations += 1;
            successes += u32::from(succeeded && attempts.get() - before == 1);
            prop_assert!(attempts.get() - before <= max_attempts);
            prop_assert!(attempts.get() - operations <= (initial + successes) / 10);
        }
    }
}
