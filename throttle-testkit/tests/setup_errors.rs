//! Cases of the field that cannot even be written down here: they are errors of construction, by id.

use std::time::Duration;

use throttle_core::quota::MAX_PERIOD;
use throttle_core::{Algorithm, Policy, Quota, Rule, SetupError, Timestamp};

#[test]
fn o_05_a_rate_beyond_a_billion_per_second_is_exact() {
    let rule = Rule::gcra("3000000000/s burst 1").unwrap();
    assert_eq!((rule.capacity(), rule.quota().limit()), (1, 3_000_000_000));
}

#[test]
fn o_20_a_period_of_three_hundred_years_is_refused() {
    let period = Duration::from_secs(10_000_000_000);
    for algorithm in Algorithm::ALL {
        let refused = Rule::new(algorithm, Quota::per(1, period));
        assert_eq!(refused, Err(SetupError::PeriodTooLong(period)));
        Rule::new(algorithm, Quota::per(1, MAX_PERIOD)).unwrap();
    }
}

#[test]
fn o_44_o_45_a_limit_of_zero_is_refused() {
    assert_eq!(Quota::per_minute(0).build(), Err(SetupError::ZeroLimit));
    for algorithm in Algorithm::ALL {
        assert_eq!(Rule::new(algorithm, Quota::per_minute(0)), Err(SetupError::ZeroLimit));
    }
    assert_eq!(Rule::token_bucket(Quota::per_second(0).burst(100)), Err(SetupError::ZeroLimit));
    assert!(matches!("0/m".parse::<Quota>(), Err(SetupError::ZeroLimit | SetupError::Parse { .. })));
}

#[test]
fn o_46_a_burst_of_zero_is_refused() {
    assert_eq!(Rule::gcra(Quota::per_second(2).burst(0)), Err(SetupError::ZeroBurst));
}

#[test]
fn o_47_a_period_beyond_every_counter_is_refused() {
    for seconds in [i64::MAX as u64, u64::MAX / 2, u64::MAX] {
        let period = Duration::from_secs(seconds);
        assert_eq!(Quota::per(1, period).build(), Err(SetupError::PeriodTooLong(period)));
    }
}

/// One per day, burst a million: 64-bit nanoseconds would wrap; here it is refused, with the span.
#[test]
fn a_burst_that_takes_too_long_to_fill_is_refused() {
    let refused = Rule::gcra(Quota::per_day(1).burst(1_000_000));
    assert_eq!(refused, Err(SetupError::SpanTooLong { micros: 86_400_000_000_000_000 }));
    let widest = Rule::gcra(Quota::per(u32::MAX, Duration::from_micros(1)).burst(u32::MAX)).unwrap();
    assert_eq!(widest.capacity(), u32::MAX);
}

#[test]
fn what_every_store_can_hold_is_what_can_be_built() {
    Timestamp::from_micros(1 << 52).unwrap_err();
    assert_eq!(Policy::new("p", []), Err(SetupError::NoRules));
    assert_eq!(Rule::sliding_window_log("65537/s"), Err(SetupError::LogTooLong { limit: 65_537 }));
    assert_eq!(
        Rule::sliding_window("5/s burst 10"),
        Err(SetupError::BurstOnWindow { algorithm: Algorithm::SlidingWindow })
    );
}
