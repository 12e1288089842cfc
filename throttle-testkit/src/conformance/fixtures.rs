//! Tables for people to read: what each algorithm answers to a few calls.

use std::sync::Arc;

use throttle_core::{Action, StoreBackend};

use super::check::{Checked, equal};
use super::group::{Case, Group, trials};
use super::lab::{Lab, MICRO, MILLI, SECOND, at, told};
use super::scene::{admitted, after};
use super::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "fixtures");
        token_bucket,
        leaky_bucket,
        gcra,
        fixed_window,
        sliding_window,
        sliding_window_log,
        leaky_bucket_with_a_queue,
        two_rules,
        refunds,
        ninety_per_minute_do_not_drift,
    )
    .into_cases()
}

const MINUTE: u64 = 60 * SECOND;

/// 60 per minute, burst 10: a unit per second.
async fn token_bucket<B: StoreBackend>(lab: Lab<B>) -> Checked {
    bucket(lab, "token_bucket 60/m burst 10").await
}

async fn leaky_bucket<B: StoreBackend>(lab: Lab<B>) -> Checked {
    bucket(lab, "leaky_bucket 60/m burst 10").await
}

async fn bucket<B: StoreBackend>(lab: Lab<B>, text: &str) -> Checked {
    let rows = [
        after(0).take(0).allowed().remaining(10).reset(0),
        after(0).take(1).allowed().remaining(9).reset(SECOND),
        after(0).take(10).denied().remaining(9).retry(SECOND),
        after(SECOND).take(5).allowed().remaining(5).reset(5 * SECOND),
        after(SECOND).take(8).denied().remaining(5).retry(3 * SECOND),
        after(SECOND).take(5).allowed().remaining(0).reset(10 * SECOND),
        after(SECOND).take(1).denied().remaining(0).retry(SECOND),
        after(SECOND).take(0).allowed().remaining(0),
        after(SECOND).take(11).never(),
        after(2 * SECOND - MICRO).take(1).denied().retry(MICRO),
        after(2 * SECOND).take(1).allowed().remaining(0),
        after(MINUTE).peek(1).allowed().remaining(10).reset(0),
    ];
    lab.play(text, &rows).await
}

async fn gcra<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(0).allowed().remaining(10),
        after(0).take(1).allowed().remaining(9),
        after(SECOND).take(5).allowed().remaining(5),
        after(SECOND).take(5).allowed().remaining(0).limit(10),
        after(SECOND).take(1).denied().remaining(0).retry(SECOND),
        after(SECOND).take(0).allowed().remaining(0),
    ];
    lab.play("gcra 60/m burst 10", &rows).await
}

/// 5 per minute; what is denied does not count.
async fn fixed_window<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(20 * SECOND).take(0).allowed().remaining(5).reset(0),
        after(20 * SECOND).take(1).allowed().remaining(4).reset(40 * SECOND),
        after(30 * SECOND).take(3).allowed().remaining(1).reset(30 * SECOND),
        after(30 * SECOND).take(2).denied().remaining(1).retry(30 * SECOND),
        after(30 * SECOND).take(1).allowed().remaining(0).reset(30 * SECOND),
        after(30 * SECOND).take(4).denied().remaining(0).retry(30 * SECOND),
        after(30 * SECOND).take(0).allowed().remaining(0),
        after(MINUTE - MICRO).take(1).denied().retry(MICRO),
        after(MINUTE).take(5).allowed().remaining(0),
        after(MINUTE).take(6).never(),
    ];
    lab.play("fixed_window 5/m", &rows).await
}

/// 5 per second, so that a unit of weight is a microsecond.
async fn sliding_window<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(0).allowed().remaining(5).reset(0),
        after(0).take(1).allowed().remaining(4).reset(2 * SECOND),
        after(0).take(4).allowed().remaining(0).reset(2 * SECOND),
        after(0).take(4).denied().remaining(0).retry(SECOND + 800 * MILLI),
        after(0).take(1).denied().remaining(0).retry(SECOND + 200 * MILLI),
        after(SECOND + 200 * MILLI).take(1).allowed().remaining(0).reset(SECOND + 800 * MILLI),
        after(SECOND + 400 * MILLI).take(1).allowed().remaining(0),
        after(2 * SECOND).peek(1).allowed().remaining(3).reset(SECOND),
        after(3 * SECOND).peek(5).allowed().remaining(5).reset(0),
    ];
    lab.play("sliding_window 5/s", &rows).await
}

async fn sliding_window_log<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(0).allowed().remaining(5).reset(0),
        after(0).take(1).allowed().remaining(4).reset(MINUTE),
        after(10 * SECOND).take(4).allowed().remaining(0).reset(MINUTE),
        after(20 * SECOND).take(1).denied().remaining(0).retry(40 * SECOND),
        after(20 * SECOND).take(2).denied().remaining(0).retry(50 * SECOND),
        after(MINUTE - MICRO).take(1).denied().retry(MICRO),
        after(MINUTE).take(1).allowed().remaining(0).reset(MINUTE),
        after(70 * SECOND).take(4).allowed().remaining(0),
    ];
    lab.play("sliding_window_log 5/m", &rows).await
}

/// One per second, and up to three seconds ahead.
async fn leaky_bucket_with_a_queue<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let patient = after(0).waiting(MINUTE);
    let rows = [
        patient.take(1).allowed().delay(0),
        after(0).take(1).denied().retry(SECOND),
        patient.take(1).allowed().delay(SECOND),
        patient.take(1).allowed().delay(2 * SECOND),
        after(0).waiting(2 * SECOND).take(1).denied().retry(SECOND),
        patient.take(1).allowed().delay(3 * SECOND).remaining(0).reset(4 * SECOND),
        patient.take(1).denied().retry(SECOND),
        after(500 * MILLI).waiting(3 * SECOND).take(1).denied().retry(500 * MILLI),
        after(SECOND).waiting(3 * SECOND).take(1).allowed().delay(3 * SECOND),
    ];
    lab.play("leaky_bucket 1/s queue 3s", &rows).await
}

/// All or nothing: the tighter rule speaks, and the other is not charged for what it denies.
async fn two_rules<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(2).allowed().remaining(0).limit(2).reset(MINUTE),
        after(0).take(1).denied().retry(500 * MILLI).remaining(0),
        after(SECOND).take(2).allowed().remaining(0).limit(2),
        after(2 * SECOND).take(1).allowed().remaining(0).limit(5),
        after(2 * SECOND).take(1).denied().retry(58 * SECOND),
        after(2 * SECOND).take(3).never(),
        after(MINUTE).take(2).allowed().remaining(0),
    ];
    lab.play("gcra 2/s; fixed_window 5/m", &rows).await
}

/// Units that are given back can be used at once, and never more than there were.
async fn refunds<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for (text, left) in [("gcra 4/m", 4), ("fixed_window 4/m", 4), ("sliding_window_log 4/m", 4)] {
        let rows = [
            after(0).take(4).allowed().remaining(0),
            after(0).refund(3).remaining(3),
            after(0).take(4).denied(),
            after(0).take(3).allowed().remaining(0),
            after(0).refund(100).remaining(left),
            after(0).take(4).allowed().remaining(0),
        ];
        lab.play(text, &rows).await?;
    }
    Ok(())
}

/// 90 per minute, burst 10, a call every half second for ten minutes: 10 + 900 admitted, not one less.
async fn ninety_per_minute_do_not_drift<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("token_bucket 90/m burst 10")?;
    let calls = (0..=1_200).map(|call| Action::consume(&policy, "key").at(Some(at(call * 500 * MILLI))));
    let calls: Vec<_> = calls.collect();
    let mut sum = 0;
    for batch in calls.chunks(200) {
        for outcome in throttle_core::Store::decide_many(&lab.store(), batch).await {
            sum += u64::from(outcome.map_err(|error| told(&error))?.granted());
        }
    }
    admitted("in ten minutes", sum, 910)?;
    equal("calls", &calls.len(), &1_201)
}
