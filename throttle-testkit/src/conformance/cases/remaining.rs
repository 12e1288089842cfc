//! What the first request, the last unit and a denial are told.

use std::sync::Arc;

use throttle_core::StoreBackend;

use crate::conformance::check::Checked;
use crate::conformance::group::{Case, Group, trials};
use crate::conformance::lab::{Lab, MILLI, SECOND};
use crate::conformance::scene::after;
use crate::conformance::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "cases");
        o_21_the_first_request_may_not_exceed_the_capacity,
        o_22_the_first_hit_counts_once,
        o_24_rounding_up_is_not_adding_one,
        o_25_a_denial_waits_and_an_admission_does_not,
        o_26_the_oldest_entry_frees_the_next_unit,
        o_27_a_partly_grown_token_counts,
        o_28_the_last_token_is_an_admission,
        o_30_a_peek_after_expiry,
        o_31_remaining_sees_the_previous_window,
        o_33_reset_is_the_time_to_full,
        o_34_remaining_never_exceeds_the_limit,
        o_35_a_stale_entry_makes_no_negative_wait,
    )
    .into_cases()
}

const MINUTE: u64 = 60 * SECOND;

/// O-21: C = 3, fresh, cost 5.
async fn o_21_the_first_request_may_not_exceed_the_capacity<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["gcra 3/s", "fixed_window 3/s", "sliding_window 3/s", "sliding_window_log 3/s"] {
        lab.play(text, &[after(0).take(5).never(), after(0).take(3).allowed().remaining(0)]).await?;
    }
    Ok(())
}

/// O-22: limit 5, one hit: 4 left.
async fn o_22_the_first_hit_counts_once<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["gcra 5/m", "fixed_window 5/m", "sliding_window 5/m", "sliding_window_log 5/m"] {
        lab.play(text, &[after(0).take(1).allowed().remaining(4).limit(5)]).await?;
    }
    Ok(())
}

/// O-24: C = 16, 30 per 60, one hit: reset 2 s, not 3.
async fn o_24_rounding_up_is_not_adding_one<B: StoreBackend>(lab: Lab<B>) -> Checked {
    lab.play("gcra 30/m burst 16", &[after(0).take(1).allowed().remaining(15).reset(2 * SECOND)]).await
}

/// O-25: fixed 1 per 2; denied at 1.999, allowed at 2.0.
async fn o_25_a_denial_waits_and_an_admission_does_not<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(1).allowed(),
        after(1_999 * MILLI).take(1).denied().retry(MILLI),
        after(2 * SECOND).take(1).allowed().reset(2 * SECOND),
    ];
    lab.play("fixed_window 1 per 2s", &rows).await
}

/// O-26: log 2 per 60; hits at 0 and 10; denied at 20 with 40, not 50.
async fn o_26_the_oldest_entry_frees_the_next_unit<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(1).allowed(),
        after(10 * SECOND).take(1).allowed(),
        after(20 * SECOND).take(1).denied().retry(40 * SECOND).reset(50 * SECOND),
    ];
    lab.play("sliding_window_log 2/m", &rows).await
}

/// O-27: C = 1, 1 per 1; take at 0, ask at 0.2: 0.8.
async fn o_27_a_partly_grown_token_counts<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [after(0).take(1).allowed(), after(200 * MILLI).take(1).denied().retry(800 * MILLI)];
    lab.play("token_bucket 1/s", &rows).await
}

/// O-28: 10 per 60, cost 10 at 0: allowed, none left; the next unit in 60 s (fixed) or 6 s (bucket).
async fn o_28_the_last_token_is_an_admission<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for (text, wait) in [("fixed_window 10/m", 60 * SECOND), ("token_bucket 10/m", 6 * SECOND)] {
        let rows = [after(0).take(10).allowed().remaining(0), after(0).take(1).denied().retry(wait)];
        lab.play(text, &rows).await?;
    }
    Ok(())
}

/// O-30: 5 per 1, take 1, wait 3, peek: 5.
async fn o_30_a_peek_after_expiry<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["gcra 5/s", "fixed_window 5/s", "sliding_window 5/s", "sliding_window_log 5/s"] {
        let rows = [after(0).take(1).allowed(), after(3 * SECOND).peek(1).allowed().remaining(5).reset(0)];
        lab.play(text, &rows).await?;
    }
    Ok(())
}

/// O-31: limit 100, 10 % into the window, 50 in the previous one and 10 in this: 45, not 90.
async fn o_31_remaining_sees_the_previous_window<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(500 * MILLI).take(50).allowed().remaining(50),
        after(1_100 * MILLI).take(10).allowed().remaining(45),
    ];
    lab.play("sliding_window 100/s", &rows).await
}

/// O-33: 2 per 60, two hits: reset 30, then 60.
async fn o_33_reset_is_the_time_to_full<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(1).allowed().reset(30 * SECOND),
        after(0).take(1).allowed().remaining(0).reset(MINUTE),
    ];
    lab.play("gcra 2/m", &rows).await
}

/// O-34: C = 10, 10 per 30, 3 hits, idle for 60: 10.
async fn o_34_remaining_never_exceeds_the_limit<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take_up_to(3).granted(3).remaining(7),
        after(MINUTE).peek(1).remaining(10),
        after(MINUTE).take_up_to(20).granted(10).remaining(0),
    ];
    lab.play("token_bucket 10 per 30s", &rows).await
}

/// O-35: entries older than the window do not count, and make no wait negative.
async fn o_35_a_stale_entry_makes_no_negative_wait<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(1).allowed(),
        after(9 * SECOND).take(2).allowed().remaining(0),
        after(15 * SECOND).take(2).denied().retry(4 * SECOND),
        after(100 * SECOND).take(3).allowed().remaining(0),
    ];
    lab.play("sliding_window_log 3 per 10s", &rows).await
}
