//! Costs: none, too much, given back.

use std::sync::Arc;

use throttle_core::{Store, StoreBackend};

use crate::conformance::check::{Checked, equal};
use crate::conformance::group::{Case, Group, trials};
use crate::conformance::lab::{Lab, MILLI, SECOND, told};
use crate::conformance::scene::after;
use crate::conformance::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "cases");
        o_36_more_than_the_capacity_has_no_wait,
        o_38_an_oversized_call_leaves_no_trace,
        o_39_a_refund_works_on_an_empty_key,
        o_40_a_refund_and_the_flow_do_not_add_up,
        o_41_taking_from_a_debt_takes_nothing,
        o_42_a_cost_of_zero_writes_nothing,
        o_43_a_cost_of_zero_is_stable,
    )
    .into_cases()
}

/// O-36: C = 3, 3 per 2, cost 4: never, not 0.667 s.
async fn o_36_more_than_the_capacity_has_no_wait<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in
        ["gcra 3 per 2s", "fixed_window 3 per 2s", "sliding_window 3 per 2s", "sliding_window_log 3 per 2s"]
    {
        let rows = [after(0).take(4).never().remaining(0), after(9 * SECOND).take(4).never()];
        lab.play(text, &rows).await?;
    }
    Ok(())
}

/// O-38: C = 300, cost 301, then cost 1: 299 left.
async fn o_38_an_oversized_call_leaves_no_trace<B: StoreBackend>(lab: Lab<B>) -> Checked {
    lab.play("gcra 300/m", &[after(0).take(301).never(), after(0).take(1).allowed().remaining(299)]).await
}

/// O-39: limit 10, none left, one given back: 1.
async fn o_39_a_refund_works_on_an_empty_key<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["gcra 10/m", "fixed_window 10/m", "sliding_window 10/m", "sliding_window_log 10/m"] {
        let rows = [
            after(0).take(10).allowed().remaining(0),
            after(0).refund(1).remaining(1),
            after(0).take(2).denied(),
            after(0).take(1).allowed().remaining(0),
        ];
        lab.play(text, &rows).await?;
    }
    Ok(())
}

/// O-40: 10 per 1; one taken, given back, 1.1 s later: 10, never 11.
async fn o_40_a_refund_and_the_flow_do_not_add_up<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["gcra 10/s", "fixed_window 10/s", "sliding_window 10/s", "sliding_window_log 10/s"] {
        let rows = [
            after(0).take(1).allowed().remaining(9),
            after(0).refund(1).remaining(10),
            after(1_100 * MILLI).take_up_to(20).granted(10).remaining(0),
        ];
        lab.play(text, &rows).await?;
    }
    Ok(())
}

/// O-41: C = 50, 50 per 1, 10 units in debt through the queue; up to 20 more at once: none, and nothing changes.
async fn o_41_taking_from_a_debt_takes_nothing<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(0).take(50).allowed().remaining(0),
        after(0).take(10).waiting(SECOND).allowed().delay(200 * MILLI).remaining(0).reset(1_200 * MILLI),
        after(0).take_up_to(20).granted(0).remaining(0).reset(1_200 * MILLI).retry(220 * MILLI),
        after(200 * MILLI).peek(1).denied().remaining(0).retry(20 * MILLI),
        after(220 * MILLI).take(1).allowed().remaining(0),
    ];
    lab.play("token_bucket 50/s queue 1s", &rows).await
}

/// O-42: a cost of 0 is a probe: allowed, and nothing is stored. (Costs below 0 cannot be written.)
async fn o_42_a_cost_of_zero_writes_nothing<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let mut scene = lab.scene("gcra 5/h; fixed_window 5/h; sliding_window 5/h; sliding_window_log 5/h")?;
    scene.play(&[after(0).take(0).allowed().remaining(5).reset(0), after(0).peek(0).allowed()]).await?;
    let stored = lab.store().reset(scene.policy().name(), "key").await.map_err(|error| told(&error))?;
    equal("something was stored", &stored, &false)
}

/// O-43: on a key that is used up, a cost of 0 is always allowed and a cost of 1 always denied.
async fn o_43_a_cost_of_zero_is_stable<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["gcra 1/h", "sliding_window 1/h"] {
        let mut scene = lab.scene(text)?;
        scene.play(&[after(0).take(1).allowed().remaining(0)]).await?;
        for _ in 0..50 {
            scene.play(&[after(0).take(0).allowed().remaining(0), after(0).take(1).denied()]).await?;
        }
    }
    Ok(())
}
