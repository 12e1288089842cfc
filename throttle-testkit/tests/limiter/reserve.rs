//! Reservations.

use throttle_core::{ErrorKind, Reservation, Reserve};
use throttle_testkit::Fault;

use super::{Bench, SECOND, Store, settle};

async fn held(bench: &Bench, estimate: u32) -> Reservation<Store> {
    bench.limiter.reserve("key", estimate).await.unwrap().into_result().unwrap()
}

#[tokio::test]
async fn takes_the_estimate_and_settles_for_the_actual_cost() {
    for (actual, left) in [(0, 10), (1, 9), (4, 6), (5, 5), (10, 0)] {
        let bench = Bench::of("gcra 10/h");
        let held = held(&bench, 4).await;
        assert_eq!((held.units(), held.decision().remaining(), bench.remaining().await), (4, 6, 6));
        let settled = held.commit(actual).await.unwrap();
        assert!(settled.is_allowed());
        assert_eq!((settled.remaining(), bench.remaining().await), (left, left), "actual {actual}");
    }
}

#[tokio::test]
async fn what_is_missing_is_charged_as_far_as_there_is_any() {
    let bench = Bench::of("gcra 10/h");
    let settled = held(&bench, 4).await.commit(25).await.unwrap();
    assert!(!settled.is_allowed(), "15 units were not there");
    assert_eq!((settled.remaining(), bench.remaining().await), (0, 0));
}

#[tokio::test]
async fn release_and_drop_give_everything_back() {
    let bench = Bench::of("gcra 10/h; sliding_window_log 10/h");
    let released = held(&bench, 7).await.release().await.unwrap();
    assert_eq!((released.remaining(), bench.remaining().await), (10, 10));
    drop(held(&bench, 7).await);
    settle().await;
    assert_eq!(bench.remaining().await, 10);
}

#[tokio::test]
async fn a_refund_never_lifts_a_key_above_full() {
    let bench = Bench::of("gcra 10 per 10s");
    let held = held(&bench, 4).await;
    bench.clock.advance(100 * SECOND);
    assert_eq!(held.release().await.unwrap().remaining(), 10);
}

#[tokio::test]
async fn a_denial_holds_nothing() {
    let bench = Bench::of("gcra 10/h");
    let first = held(&bench, 7).await;
    let Reserve::Denied(denial) = bench.limiter.reserve("key", 4).await.unwrap() else { panic!("held") };
    assert_eq!(denial.remaining(), 3);
    assert!(denial.retry_after().is_some());
    let never = bench.limiter.reserve("key", 11).await.unwrap().into_result().unwrap_err();
    assert!(never.decision().is_never());
    let _ = first.commit(7).await.unwrap();
    assert_eq!(bench.remaining().await, 3);
}

#[tokio::test]
async fn a_store_that_fails_on_commit_leaves_the_estimate_charged() {
    let bench = Bench::of("gcra 10/h");
    let held = held(&bench, 4).await;
    bench.faults.inject(Fault::refuse(ErrorKind::Connection));
    assert_eq!(held.commit(1).await.unwrap_err().kind(), ErrorKind::Connection);
    settle().await;
    assert_eq!(bench.remaining().await, 6);
}

#[tokio::test]
async fn a_store_that_fails_on_reserve_holds_nothing() {
    let bench = Bench::of("gcra 10/h");
    bench.faults.inject(Fault::refuse(ErrorKind::Overloaded));
    assert_eq!(bench.limiter.reserve("key", 4).await.unwrap_err().kind(), ErrorKind::Overloaded);
    assert_eq!(bench.remaining().await, 10);
}

#[tokio::test]
async fn a_dropped_reservation_whose_refund_fails_is_left_to_time() {
    let bench = Bench::of("gcra 10 per 10s");
    let held = held(&bench, 4).await;
    bench.faults.inject(Fault::refuse(ErrorKind::Connection));
    drop(held);
    settle().await;
    assert_eq!(bench.remaining().await, 6);
    bench.clock.advance(4 * SECOND);
    assert_eq!(bench.remaining().await, 10);
}
