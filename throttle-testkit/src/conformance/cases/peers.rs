//! Faults that were reproduced in other Rust limiters.

use std::sync::Arc;

use throttle_core::StoreBackend;

use crate::conformance::check::Checked;
use crate::conformance::group::{Case, Group, trials};
use crate::conformance::lab::{Lab, SECOND};
use crate::conformance::scene::after;
use crate::conformance::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "peers");
        a_huge_burst_is_admitted_exactly,
        six_hundred_million_per_second_are_exact,
        three_billion_per_second_are_a_limit,
        idling_beyond_full_saves_up_nothing,
        a_cost_above_the_burst_is_never,
        a_first_request_above_the_limit_is_never,
        asking_at_once_and_waiting_agree,
    )
    .into_cases()
}

/// A bucket of a million that fills in 31 years (a nanosecond counter of 64 bits would still hold it; one day for each
/// unit would not fit here and cannot be built).
async fn a_huge_burst_is_admitted_exactly<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take_up_to(600_000).granted(600_000).remaining(400_000),
        after(0).take_up_to(1 << 20).granted(400_000).remaining(0),
        after(0).denied().retry(1_000 * SECOND).reset(1_000_000_000 * SECOND),
    ];
    lab.play("gcra 1 per 1000s burst 1000000", &rows).await
}

/// 600,000,000 per second: 600 per microsecond, not 1,000.
async fn six_hundred_million_per_second_are_exact<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(600_000_000).allowed().remaining(0),
        after(1).take_up_to(10_000).granted(600),
        after(3).take_up_to(10_000).granted(1_200).retry(1),
        after(SECOND).peek(1).allowed().remaining(599_998_200),
    ];
    lab.play("gcra 600000000/s", &rows).await
}

/// 3·10⁹ per second, burst 3: three, and 3,000 a microsecond later make three again.
async fn three_billion_per_second_are_a_limit<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [after(0).take_up_to(100).granted(3).retry(1), after(1).take_up_to(100).granted(3).retry(1)];
    lab.play("token_bucket 3000000000/s burst 3", &rows).await
}

/// Burst 10, 1 per 1; all used, 10 s to fill again and 5 s more: 10, not 15.
async fn idling_beyond_full_saves_up_nothing<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take_up_to(10).granted(10).remaining(0),
        after(15 * SECOND).peek(1).allowed().remaining(10),
        after(15 * SECOND).take_up_to(100).granted(10).remaining(0),
    ];
    lab.play("gcra 1/s burst 10", &rows).await
}

/// Cost 5, burst 3: never, not "in 667 ms" for ever.
async fn a_cost_above_the_burst_is_never<B: StoreBackend>(lab: Lab<B>) -> Checked {
    lab.play("gcra 3/s", &[after(0).take(5).never(), after(SECOND).take(5).never()]).await
}

/// Limit 10, a first request of 25: never.
async fn a_first_request_above_the_limit_is_never<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["sliding_window 10/s", "sliding_window_log 10/s", "fixed_window 10/s"] {
        lab.play(text, &[after(0).take(25).never(), after(0).take(10).allowed().remaining(0)]).await?;
    }
    Ok(())
}

/// 6 units of at most 5: never, whether the caller would wait or not.
async fn asking_at_once_and_waiting_agree<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(6).never(),
        after(0).take(6).waiting(100 * SECOND).never(),
        after(0).take(5).waiting(100 * SECOND).allowed().delay(0),
    ];
    lab.play("leaky_bucket 5/s burst 5 queue 10s", &rows).await
}
