//! The blocking face, on threads of its own, without any runtime.

use std::time::{Duration, Instant};

use throttle_core::{Policy, RateLimiter, Reserve, Rule};
use throttle_testkit::ReferenceBackend;

use super::{Bench, SECOND};

#[test]
fn the_names_and_the_answers_are_those_of_the_limiter() {
    let bench = Bench::of("gcra 10/h");
    let limiter = bench.limiter.blocking();
    assert_eq!(limiter.check("key").unwrap().remaining(), 9);
    assert_eq!(limiter.check_n("key", 2).unwrap().remaining(), 7);
    assert_eq!(limiter.peek("key").unwrap().remaining(), 7);
    assert_eq!(limiter.peek_n("key", 0).unwrap().remaining(), 7);
    assert_eq!(limiter.take_up_to("key", 20).unwrap().units(), 7);
    assert_eq!(limiter.refund("key", 3).unwrap().remaining(), 3);
    let Reserve::Held(held) = limiter.reserve("key", 3).unwrap() else { panic!("denied") };
    assert_eq!(limiter.commit(held, 1).unwrap().remaining(), 2);
    let Reserve::Held(held) = limiter.reserve("key", 2).unwrap() else { panic!("denied") };
    assert_eq!(limiter.release(held).unwrap().remaining(), 2);
    drop(limiter.reserve("key", 2).unwrap());
    assert_eq!(limiter.peek_n("key", 0).unwrap().remaining(), 2, "a drop needs no runtime either");
    assert!(limiter.reset("key").unwrap());
    assert_eq!((limiter.reset_all().unwrap(), limiter.peek_n("key", 0).unwrap().remaining()), (0, 10));
}

#[test]
fn acquire_waits_on_the_clock_that_was_given() {
    let bench = Bench::of("gcra 1/s burst 1");
    let limiter = bench.limiter.blocking();
    let _ = limiter.check("key").unwrap();
    let waiter = std::thread::spawn(move || limiter.acquire("key", 10 * SECOND).unwrap().is_allowed());
    let start = Instant::now();
    while bench.clock.sleeping() == 0 {
        assert!(start.elapsed() < 10 * SECOND, "it does not wait");
        std::thread::yield_now();
    }
    assert_eq!(bench.clock.until_next(), Some(SECOND));
    bench.clock.advance(SECOND);
    assert!(waiter.join().unwrap());
}

#[test]
fn acquire_waits_on_the_thread_without_a_clock() {
    let policy = Policy::new("blocking", [Rule::gcra("1 per 40ms burst 1").unwrap()]).unwrap();
    let limiter = RateLimiter::new(policy, ReferenceBackend::default()).blocking();
    let start = Instant::now();
    for _ in 0..3 {
        assert!(limiter.acquire("key", 10 * SECOND).unwrap().is_allowed());
    }
    assert!(start.elapsed() >= Duration::from_millis(80), "{:?}", start.elapsed());
    let denied = limiter.acquire("key", Duration::from_millis(1)).unwrap();
    assert!(!denied.is_allowed());
}

#[test]
fn o_37_a_call_above_the_capacity_returns_at_once() {
    let bench = Bench::of("gcra 1/s burst 1");
    for _ in 0..5 {
        assert!(bench.limiter.blocking().acquire_n("key", 5, 3_600 * SECOND).unwrap().is_never());
    }
    assert!(bench.limiter.blocking().check("key").unwrap().is_allowed(), "nothing was taken");
}
