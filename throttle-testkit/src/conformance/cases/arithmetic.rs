//! Precision: what a float, a short integer or a rounded interval would get wrong.

use std::sync::Arc;
use std::time::Duration;

use throttle_core::{Action, Decision, Store, StoreBackend};

use crate::conformance::check::{Checked, ensure, equal};
use crate::conformance::group::{Case, Group, trials};
use crate::conformance::lab::{Lab, MICRO, MILLI, SECOND, at, told};
use crate::conformance::scene::after;
use crate::conformance::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "cases");
        o_01_the_first_answer_is_not_one_short,
        o_02_times_keep_every_digit,
        o_03_long_idling_overflows_nothing,
        o_04_intervals_below_a_millisecond,
        o_05_intervals_below_a_nanosecond,
        o_06_slow_polling_loses_no_fraction,
        o_07_a_limit_times_its_period_beyond_32_bits,
        o_08_the_announced_wait_is_enough_and_not_too_much,
        o_09_a_log_takes_ten_thousand_at_once,
        a_billion_requests_do_not_drift,
    )
    .into_cases()
}

/// O-01: after 2025-07-04T21:24:16Z; 10 per 1, 100 per 60, 7 per 60.
async fn o_01_the_first_answer_is_not_one_short<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let date = 51_657_856 * SECOND;
    for late in [0, 1, 86_400 * SECOND + 123_457, 40_000_000 * SECOND] {
        let first = after(date + late).take(1).allowed();
        lab.play("gcra 10/s", &[first.remaining(9).reset(100 * MILLI)]).await?;
        lab.play("gcra 100/m", &[first.remaining(99).reset(600 * MILLI)]).await?;
        lab.play("gcra 7/m", &[first.remaining(6).reset(8_571_429)]).await?;
    }
    Ok(())
}

/// O-02: 1893456000123456 µs, stored and read back.
async fn o_02_times_keep_every_digit<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let date = 193_449_600_123_456;
    ensure(at(date).as_micros() == 1_893_456_000_123_456, || "the date".to_owned())?;
    for text in ["gcra 1/s", "sliding_window_log 1/s"] {
        let rows = [
            after(date).take(1).allowed().reset(SECOND),
            after(date + SECOND - MICRO).take(1).denied().retry(MICRO),
            after(date + SECOND).take(1).allowed(),
        ];
        lab.play(text, &rows).await?;
    }
    let policy = lab.policy("gcra 1/s")?;
    let outcome = lab.outcome(&Action::consume(&policy, "key").at(Some(at(date)))).await?;
    equal("the time of the decision", &outcome.now(), &at(date))
}

/// O-03: 300,000 per 60, drained; idle for 12 h: full.
async fn o_03_long_idling_overflows_nothing<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(300_000).allowed().remaining(0),
        after(43_200 * SECOND).peek(1).allowed().remaining(300_000),
        after(43_200 * SECOND).take(300_000).allowed().remaining(0),
    ];
    lab.play("token_bucket 300000/m", &rows).await
}

/// O-04: C = 1, 2,000 per 1, two calls at the same µs: the second waits 500 µs.
async fn o_04_intervals_below_a_millisecond<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [after(0).allowed(), after(0).denied().retry(500), after(500).allowed()];
    lab.play("gcra 2000/s burst 1", &rows).await
}

/// O-05: 1,000,000,001 per 1 and 3·10⁹ per 1, C = 1: never two at once.
async fn o_05_intervals_below_a_nanosecond<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["gcra 1000000001/s burst 1", "gcra 3000000000/s burst 1"] {
        let rows = [after(0).allowed(), after(0).denied().retry(1), after(1).allowed(), after(1).denied()];
        lab.play(text, &rows).await?;
    }
    Ok(())
}

/// O-06: C = 10, 10 per 1, empty at 0; a poll of cost 1 every 1 ms up to 1.000: 10 allowed, at 0.1, 0.2 … 1.0.
async fn o_06_slow_polling_loses_no_fraction<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("token_bucket 10/s")?;
    lab.outcome(&Action::consume(&policy, "key").with_cost(10).at(Some(at(0)))).await?;
    let polls = (1..=1_000).map(|ms| Action::consume(&policy, "key").at(Some(at(ms * MILLI))));
    let polls: Vec<_> = polls.collect();
    let mut allowed = Vec::new();
    for batch in polls.chunks(250) {
        for (action, outcome) in batch.iter().zip(lab.store().decide_many(batch).await) {
            if outcome.map_err(|error| told(&error))?.granted() > 0 {
                allowed.extend(action.now());
            }
        }
    }
    equal("allowed at", &allowed, &(1..=10).map(|tenth| at(tenth * 100 * MILLI)).collect())
}

/// O-07: 24,856 per 86,400 (product 2,147,558,400).
async fn o_07_a_limit_times_its_period_beyond_32_bits<B: StoreBackend>(lab: Lab<B>) -> Checked {
    lab.play("gcra 24856/d", &[after(0).take(1).allowed().remaining(24_855)]).await
}

/// O-08: C = 1, 1 per 3,600; at each of 1,000 moments, the announced wait is enough, and a microsecond less is not.
async fn o_08_the_announced_wait_is_enough_and_not_too_much<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("gcra 1/h")?;
    lab.outcome(&Action::consume(&policy, "key").at(Some(at(0)))).await?;
    let peek = |moment| Action::peek(&policy, "key").at(Some(moment));
    for hundred in 0..10 {
        let moments = (0..100).map(|n| at((hundred * 100 + n) * 7_919 * 453 % (3_600 * SECOND)));
        let asks: Vec<_> = moments.map(peek).collect();
        let mut due = Vec::new();
        for (action, outcome) in asks.iter().zip(lab.store().decide_many(&asks).await) {
            let decision = Decision::of(action, &outcome.map_err(|error| told(&error))?, 0);
            let (now, retry) = (outcome_time(action)?, decision.retry_after().ok_or("allowed too early")?);
            due.push(now.saturating_add(retry));
        }
        let late: Vec<_> = due.iter().map(|moment| peek(*moment)).collect();
        let early: Vec<_> =
            due.iter().map(|moment| peek(moment.saturating_sub(Duration::from_micros(1)))).collect();
        for (asks, expected) in [(late, 1), (early, 0)] {
            for outcome in lab.store().decide_many(&asks).await {
                equal("granted", &outcome.map_err(|error| told(&error))?.granted(), &expected)?;
            }
        }
    }
    Ok(())
}

fn outcome_time(action: &Action<'_>) -> Result<throttle_core::Timestamp, libtest_mimic::Failed> {
    action.now().ok_or_else(|| "no time was given".into())
}

/// O-09: log, limit 20,000, cost 10,000: allowed in one call.
async fn o_09_a_log_takes_ten_thousand_at_once<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(10_000).allowed().remaining(10_000),
        after(1).take_up_to(10_001).granted(10_000).remaining(0),
        after(1).denied().retry(60 * SECOND - MICRO),
    ];
    lab.play("sliding_window_log 20000/m", &rows).await
}

/// Law 4: 10⁹ requests at a rate whose interval is no whole number of microseconds, and not one too many or too few.
async fn a_billion_requests_do_not_drift<B: StoreBackend>(lab: Lab<B>) -> Checked {
    const RATE: u64 = 7_000_003;
    let policy = lab.policy("gcra 7000003/s burst 1000000")?;
    let calls = (0..1_000_u64)
        .map(|call| Action::consume(&policy, "key").with_times(1 << 20).at(Some(at(call * 142_850))));
    let calls: Vec<_> = calls.collect();
    let (mut sum, mut last) = (0_u64, 0);
    for batch in calls.chunks(100) {
        for (action, outcome) in batch.iter().zip(lab.store().decide_many(batch).await) {
            sum += u64::from(outcome.map_err(|error| told(&error))?.granted());
            last = outcome_time(action)?.as_micros() - at(0).as_micros();
        }
    }
    ensure(sum > 999_000_000, || format!("only {sum} requests"))?;
    equal("admitted in all", &sum, &(1_000_000 + last * RATE / SECOND))
}
