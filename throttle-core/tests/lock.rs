//! Locks as users hold them: what the clock, a lost reply and a missing runtime make of them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use throttle_core::lock::{
    Acquisition, Lock, LockNamespace, LockTerms, LockTtl, Loss, Owner, ReleaseFailure, Released,
    ResourceError,
};
use throttle_core::{
    BaseErrorSet, CasBackend, CasStore, Clock, Effect, ErrorKind, Guarded, LockBackend, LockStore, Operation,
    SystemClock,
};
use throttle_testkit::{Fault, Faults, FaultyBackend, ManualClock, ReferenceBackend};

use self::support::{StubFault, StubStore};

type Faulty = FaultyBackend<ReferenceBackend>;

const SECOND: Duration = Duration::from_secs(1);

/// A lock with a time to live of a second, on a store of its own.
fn lock() -> (Lock<Guarded<Faulty>>, Faults<std::convert::Infallible>) {
    let faulty = FaultyBackend::new(ReferenceBackend::default());
    let faults = faulty.faults();
    (Lock::new(faulty, "name").with_terms(LockTerms::default().ttl(SECOND).unwrap()), faults)
}

#[tokio::test]
async fn validity_is_counted_from_before_it_was_asked_for_less_a_margin() {
    let clock = ManualClock::new(SystemClock.now());
    let store = ReferenceBackend::with_clock(clock.clone());
    let terms = LockTerms::default().ttl(SECOND).unwrap().clock(clock.clone()).without_renewal();
    let guard = Lock::new(store, "name").with_terms(terms).try_acquire().await.unwrap().unwrap();
    assert_eq!(guard.remaining(), Duration::from_millis(988), "less 10 ms and 2 ms");
    let lost = tokio::spawn(guard.lost());
    clock.until_sleeping(1).await;
    clock.advance(Duration::from_millis(987));
    assert!(guard.is_valid());
    clock.advance(Duration::from_millis(1));
    assert!(!guard.is_valid());
    assert_eq!(lost.await.unwrap(), Loss::Expired);
    clock.step_back(SECOND);
    assert!(!guard.is_valid(), "once over, it stays over");
}

#[tokio::test]
async fn a_lock_that_was_taken_is_told_at_the_next_renewal() {
    let terms = LockTerms::default().ttl(Duration::from_millis(300)).unwrap();
    // The store forgets it early: as if it had been removed by hand.
    let ahead = ManualClock::new(SystemClock.now());
    let store = ReferenceBackend::with_clock(ahead.clone());
    let guard = Lock::new(store, "name").with_terms(terms).try_acquire().await.unwrap().unwrap();
    ahead.advance(SECOND);
    let told = tokio::time::timeout(Duration::from_millis(250), guard.lost()).await;
    assert_eq!(told.unwrap(), Loss::Taken);
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_is_asked_again_and_has_freed_it() {
    let (lock, faults) = lock();
    let guard = lock.try_acquire().await.unwrap().unwrap();
    faults.inject(Fault::lose_reply(ErrorKind::Timeout).on(Operation::Release));
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
    assert_eq!(lock.terms().release_failures(), 0);
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_release_that_fails_is_counted_told_and_does_not_undo_the_body() {
    let faulty = FaultyBackend::new(ReferenceBackend::default());
    faulty.faults().inject(Fault::refuse(ErrorKind::Connection).on(Operation::Release).always());
    let told = Arc::new(AtomicU32::new(0));
    let hook = Arc::clone(&told);
    let terms = LockTerms::default().on_release_failure(move |failure| {
        assert!(matches!(failure, ReleaseFailure::Unavailable(_)) && failure.source().is_some());
        hook.fetch_add(1, Ordering::Relaxed);
    });
    let tasks = LockNamespace::new("task", faulty.clone()).with_terms(terms.clone());
    assert_eq!(tasks.resource(1).with(async |_| "done").await.unwrap(), "done");
    assert_eq!((terms.release_failures(), told.load(Ordering::Relaxed)), (1, 1));
    drop(tasks.resource(2).acquire().await.unwrap());
    while terms.release_failures() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((terms.release_failures(), told.load(Ordering::Relaxed)), (2, 2), "a dropped guard tells too");
    assert!(matches!(tasks.resource(1).acquire().await, Err(ResourceError::Busy(_))));
}

#[tokio::test]
async fn a_hook_that_panics_does_not_undo_the_body_either() {
    let faulty = FaultyBackend::new(ReferenceBackend::default());
    faulty.faults().inject(Fault::refuse(ErrorKind::Unauthorized).on(Operation::Release).always());
    let terms = LockTerms::default().on_release_failure(|_| panic!("a defect of the hook"));
    let tasks = LockNamespace::new("task", faulty).with_terms(terms.clone());
    assert_eq!(tasks.resource(1).with(async |_| "done").await.unwrap(), "done");
    drop(tasks.resource(2).acquire().await.unwrap());
    assert_eq!(terms.release_failures(), 2);
}

#[tokio::test]
async fn the_lease_is_over_before_the_store_is_asked_to_free_the_lock() {
    let (lock, faults) = lock();
    faults.inject(Fault::hang().on(Operation::Release).always());
    let guard = lock.try_acquire().await.unwrap().unwrap();
    let lease = guard.lease().clone();
    let released = tokio::spawn(guard.release());
    while faults.hanging() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!lease.is_valid() && lease.remaining().is_zero());
    assert_eq!(lease.lost().await, Loss::Released);
    faults.clear();
    faults.release();
    assert_eq!(released.await.unwrap().unwrap(), Released::Freed);

    let guard = lock.try_acquire().await.unwrap().unwrap();
    let lease = guard.lease().clone();
    drop(guard);
    assert_eq!((lease.is_valid(), lease.lost().await), (false, Loss::Released));
}

#[tokio::test]
async fn a_lease_that_outlives_the_body_is_over() {
    let tasks = LockNamespace::new("task", ReferenceBackend::default());
    let lease = tasks.resource(1).with(async |lease| lease).await.unwrap();
    assert_eq!((lease.is_valid(), lease.lost().await), (false, Loss::Released));
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_does_not_leave_the_lock_for_its_time_to_live() {
    let (lock, faults) = lock();
    for nth in [1, 2] {
        faults.inject(Fault::refuse(ErrorKind::Connection).on(Operation::Release).nth(nth));
    }
    let guard = lock.try_acquire().await.unwrap().unwrap();
    let started = tokio::time::Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(225) && took < Duration::from_millis(470), "{took:?}");
}

#[tokio::test]
async fn what_an_acquisition_may_have_got_goes_back_when_its_reply_is_lost() {
    let (lock, faults) = lock();
    faults.inject(Fault::lose_reply(ErrorKind::Timeout).on(Operation::Acquire));
    assert_eq!(lock.try_acquire().await.unwrap_err().effect(), Effect::Unknown);
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn an_acquisition_that_was_dropped_while_the_store_had_it_goes_back() {
    let (lock, faults) = lock();
    faults.inject(Fault::hang_after_effect().on(Operation::Acquire));
    let dropped = tokio::time::timeout(Duration::from_millis(20), lock.try_acquire()).await;
    assert!(dropped.is_err() && lock.try_acquire().await.unwrap().is_none(), "the store gave it");
    faults.release();
    assert!(lock.acquire_within(SECOND).await.unwrap().is_some(), "and it was given back");
}

#[tokio::test]
async fn a_deadline_is_kept_when_the_store_stops_answering_and_an_outage_is_not_busy() {
    let (lock, faults) = lock();
    let _held = lock.try_acquire().await.unwrap().unwrap();
    faults.inject(Fault::hang().on(Operation::Acquire).nth(2));
    let started = SystemClock.now();
    let error = lock.acquire_within(Duration::from_millis(200)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown));
    let took = SystemClock.now().saturating_since(started);
    assert!(took >= Duration::from_millis(150) && took < Duration::from_millis(600), "{took:?}");
    faults.inject(Fault::refuse(ErrorKind::Connection).on(Operation::Acquire));
    assert_eq!(lock.acquire_within(SECOND).await.unwrap_err().kind(), ErrorKind::Connection);
}

/// Nobody holds it; the store answers later than the time to live.
#[tokio::test]
async fn a_slow_store_is_not_taken_for_another_owner() {
    let faulty = FaultyBackend::new(ReferenceBackend::default());
    let faults = faulty.faults();
    faults.inject(Fault::delay(Duration::from_millis(120)).on(Operation::Acquire).always());
    let terms = LockTerms::default().ttl(Duration::from_millis(100)).unwrap();
    let tasks = LockNamespace::new("task", faulty).with_terms(terms);
    for wait in [Duration::ZERO, Duration::from_millis(50), SECOND] {
        match tasks.resource(1).waiting(wait).acquire().await {
            Err(ResourceError::Unavailable(error)) => assert_eq!(error.kind(), ErrorKind::Timeout),
            other => panic!("{other:?} after {wait:?}"),
        }
    }
}

#[tokio::test]
async fn the_first_question_is_cut_off_too_and_what_it_gets_later_goes_back() {
    let (lock, faults) = lock();
    faults.inject(Fault::hang().on(Operation::Acquire));
    let started = SystemClock.now();
    let error = lock.acquire_within(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Timeout, Operation::Acquire));
    let took = SystemClock.now().saturating_since(started);
    assert!(took >= Duration::from_millis(90) && took < SECOND, "{took:?}");
    faults.release();
    assert!(lock.acquire_within(SECOND).await.unwrap().is_some());
}

/// Its last question has less time than the others took: that is no fault of the store.
#[tokio::test]
async fn a_busy_lock_on_a_slow_store_is_busy() {
    let clock = ManualClock::new(SystemClock.now());
    let store = ReferenceBackend::with_clock(clock.clone());
    let faulty = FaultyBackend::new(store).with_clock(clock.clone());
    let faults = faulty.faults();
    let terms = LockTerms::default().clock(clock.clone()).without_renewal();
    let lock = Lock::new(faulty, "name").with_terms(terms);
    let _held = lock.try_acquire().await.unwrap().unwrap();
    faults.inject(Fault::delay(Duration::from_millis(400)).on(Operation::Acquire).always());
    let started = clock.now();
    let waiting = tokio::spawn(async move { lock.acquire_within(SECOND).await.unwrap().is_none() });
    while !waiting.is_finished() {
        clock.advance(clock.until_next().unwrap_or_default());
        tokio::task::yield_now().await;
    }
    assert!(waiting.await.unwrap());
    assert_eq!(clock.now().saturating_since(started), SECOND);
}

#[test]
fn without_a_runtime_a_free_lock_is_taken_and_waiting_terms_are_checked() {
    let (lock, _) = lock();
    let guard = pollster::block_on(lock.acquire_within(SECOND)).unwrap();
    assert!(guard.is_some_and(|guard| guard.is_valid()), "no timer is needed for what is there at once");
    let (short, long) = (Duration::from_nanos(999_999), Duration::from_secs(366 * 24 * 3_600));
    for wrong in [Duration::ZERO, short, long, Duration::MAX] {
        LockTerms::default().poll(wrong).unwrap_err();
        LockTerms::default().max_hold(wrong).unwrap_err();
        LockTerms::default().ttl(wrong).unwrap_err();
    }
    let hour = Duration::from_secs(3_600);
    let terms = LockTerms::default().poll(hour).unwrap().max_hold(Duration::from_millis(20)).unwrap();
    assert!(pollster::block_on(lock.with_terms(terms).try_acquire()).unwrap().is_some());
}

#[test]
fn without_a_runtime_memory_gives_it_back_at_once_and_nothing_panics() {
    let (lock, faults) = lock();
    let guard = pollster::block_on(lock.try_acquire()).unwrap().unwrap();
    assert!(guard.is_valid() && pollster::block_on(lock.try_acquire()).unwrap().is_none());
    drop(guard);
    let guard = pollster::block_on(lock.try_acquire()).unwrap().unwrap();
    faults.inject(Fault::hang().on(Operation::Release));
    drop(guard);
    assert!(pollster::block_on(lock.try_acquire()).unwrap().is_none(), "held until its time has passed");
}

#[tokio::test]
async fn a_body_that_panics_frees_the_lock() {
    let tasks = LockNamespace::new("task", ReferenceBackend::default());
    let run = tasks.resource("run");
    let panics = tokio::spawn({
        let run = run.clone();
        async move { run.with(async |_| panic!("a defect of the body")).await }
    });
    assert!(panics.await.unwrap_err().is_panic());
    drop(run.acquire().await.unwrap());
}

#[tokio::test]
async fn compare_and_swap_takes_four_trips_for_a_free_lock_and_one_for_a_busy_one() {
    let store = StubStore::default();
    let backend = CasBackend::new(store.clone());
    let (owner, ttl) = (Owner::random(), LockTtl::new(SECOND).unwrap());
    assert!(backend.acquire("name", owner, ttl).await.unwrap().fence().is_some());
    assert_eq!(store.trips(), 4);
    assert_eq!(backend.acquire("name", Owner::random(), ttl).await.unwrap().fence(), None);
    assert_eq!(store.trips(), 5);
    assert!(backend.release("name", owner).await.unwrap());
    assert_eq!(store.trips(), 7);
}

#[tokio::test]
async fn compare_and_swap_numbers_by_the_clock_of_its_store() {
    let store = StubStore::default();
    let backend = CasBackend::new(store.clone());
    store.pass(3_600 * SECOND);
    let now = store.now();
    let (owner, ttl) = (Owner::random(), LockTtl::new(SECOND).unwrap());
    let fence = backend.acquire("name", owner, ttl).await.unwrap().fence().unwrap();
    assert!((now.as_micros()..=store.now().as_micros()).contains(&fence.get()), "{fence:?}");
}

#[tokio::test]
async fn compare_and_swap_says_when_it_stopped_half_way() {
    for (before, fault) in [(1, StubFault::Refused), (1, StubFault::ReplyLost), (2, StubFault::Refused)] {
        let store = StubStore::default();
        let backend = CasBackend::new(store.clone());
        let (owner, ttl) = (Owner::random(), LockTtl::new(SECOND).unwrap());
        // The stub takes one fault for each exchange.
        store.pass_exchanges(before);
        store.fail_next([fault]);
        let error = backend.acquire("name", owner, ttl).await.unwrap_err();
        assert_eq!(error.effect(), Effect::Unknown, "the lock itself was taken");
        assert_eq!(backend.acquire("name", Owner::random(), ttl).await.unwrap().fence(), None);
        let Acquisition::Held(fence) = backend.acquire("name", owner, ttl).await.unwrap() else {
            panic!("who asks again goes on from there");
        };
        assert_eq!(backend.acquire("name", owner, ttl).await.unwrap(), Acquisition::Held(fence));
        assert!(backend.release("name", owner).await.unwrap());
    }
}

#[tokio::test]
async fn what_is_no_lock_is_left_alone() {
    let store = StubStore::default();
    store.put("throttle:1:{lock}:name", b"somebody else's");
    let backend = Guarded::new(CasBackend::new(store.clone()));
    let (owner, ttl) = (Owner::random(), LockTtl::new(SECOND).unwrap());
    assert_eq!(backend.acquire("name", owner, ttl).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(backend.release("name", owner).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.value("throttle:1:{lock}:name").unwrap(), b"somebody else's");
}
