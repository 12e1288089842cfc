//! Clocks that differ, and rules that change.

use std::sync::Arc;

use throttle_core::StoreBackend;

use crate::conformance::check::Checked;
use crate::conformance::group::{Case, Group, trials};
use crate::conformance::lab::{Lab, MILLI, SECOND};
use crate::conformance::scene::after;
use crate::conformance::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "cases");
        o_32_a_limit_lowered_below_usage_says_how_long,
        o_48_a_slower_host_mints_no_tokens,
        o_50_an_entry_leaves_exactly_a_period_later,
        o_51_a_new_limit_applies_at_once,
        o_52_the_code_wins_over_what_is_stored,
        o_53_a_lowered_limit_goes_on_for_ever,
        o_54_each_change_is_in_force_at_the_next_call,
        o_55_two_policies_do_not_share_a_counter,
    )
    .into_cases()
}

/// O-32: log 10 per 60, hits at 0…7, then limit 5; at 10: denied for 53, when the fourth oldest leaves.
async fn o_32_a_limit_lowered_below_usage_says_how_long<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let mut scene = lab.scene("sliding_window_log 10/m")?;
    for second in 0..=7 {
        scene.play(&[after(second * SECOND).take(1).allowed()]).await?;
    }
    scene.change("sliding_window_log 5/m")?;
    scene.play(&[after(10 * SECOND).take(1).denied().remaining(0).retry(53 * SECOND)]).await
}

/// O-48: C = 150, 150 per 1; A at T takes 2, B's clock says T − 1: nothing is minted. A bucket that fills in a second
/// owes a whole one when it is seen a second early, so B waits; a deeper one charges B like A.
async fn o_48_a_slower_host_mints_no_tokens<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let (a, b) = (after(9 * SECOND), after(8 * SECOND));
    let rows = [
        a.take(2).allowed().remaining(148),
        b.take(10).denied().remaining(0),
        a.peek(1).allowed().remaining(148),
    ];
    lab.play("token_bucket 150/s", &rows).await?;
    let rows =
        [a.take(2).allowed().remaining(1_498), b.take(10).allowed(), a.peek(1).allowed().remaining(1_488)];
    lab.play("token_bucket 150/s burst 1500", &rows).await?;
    for algorithm in ["fixed_window", "sliding_window", "sliding_window_log"] {
        let rows = [a.take(2).allowed(), b.take(10).allowed(), a.peek(1).allowed().remaining(138)];
        lab.play(&format!("{algorithm} 150/m"), &rows).await?;
    }
    Ok(())
}

/// O-50: log 2 per 10, two hits at 100; allowed at 110.000, not a microsecond before.
async fn o_50_an_entry_leaves_exactly_a_period_later<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [
        after(100 * SECOND).take(1).allowed(),
        after(100 * SECOND).take(1).allowed().remaining(0),
        after(110 * SECOND - 1).take(1).denied().retry(1),
        after(110 * SECOND).take(1).allowed().remaining(1),
    ];
    lab.play("sliding_window_log 2 per 10s", &rows).await
}

/// O-51: 100 per 60, one hit; then limit 10, one hit: limit 10, 8 left.
async fn o_51_a_new_limit_applies_at_once<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for algorithm in ["fixed_window", "sliding_window", "sliding_window_log", "gcra"] {
        let mut scene = lab.scene(&format!("{algorithm} 100/m"))?;
        scene.play(&[after(0).take(1).allowed().limit(100).remaining(99)]).await?;
        scene.change(&format!("{algorithm} 10/m"))?;
        scene.play(&[after(0).take(1).allowed().limit(10).remaining(8)]).await?;
    }
    Ok(())
}

/// O-52: 5 per 1 is stored, the code says 10 per 1: 10 per 1 from the next call on.
async fn o_52_the_code_wins_over_what_is_stored<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let mut scene = lab.scene("token_bucket 5/s")?;
    scene.play(&[after(0).take(5).allowed().remaining(0)]).await?;
    scene.change("token_bucket 10/s")?;
    let rows = [
        after(0).take(1).denied().limit(10).retry(100 * MILLI),
        after(100 * MILLI).take(1).allowed().remaining(0),
        after(100 * MILLI).take(1).denied().retry(100 * MILLI),
        after(1_100 * MILLI).take_up_to(20).granted(10),
    ];
    scene.play(&rows).await
}

/// O-53: limit 5 with 5 free becomes 2: 2 in the next window, and again for ever.
async fn o_53_a_lowered_limit_goes_on_for_ever<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let mut scene = lab.scene("fixed_window 5/s")?;
    scene.play(&[after(0).peek(1).allowed().remaining(5)]).await?;
    scene.change("fixed_window 2/s")?;
    for second in 0..5 {
        scene.play(&[after(second * SECOND).take_up_to(9).granted(2).limit(2).remaining(0)]).await?;
    }
    Ok(())
}

/// O-54: 30, 1, 150 on one key: each in force at the next call.
async fn o_54_each_change_is_in_force_at_the_next_call<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let mut scene = lab.scene("fixed_window 30/m")?;
    scene.play(&[after(0).take(1).allowed().limit(30).remaining(29)]).await?;
    scene.change("fixed_window 1/m")?;
    scene.play(&[after(0).take(1).denied().limit(1).remaining(0)]).await?;
    scene.change("fixed_window 150/m")?;
    scene.play(&[after(0).take(1).allowed().limit(150).remaining(148)]).await
}

/// O-55: 200 per minute and 2 per minute on one client: three calls leave 197 of the wide one.
async fn o_55_two_policies_do_not_share_a_counter<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let (mut wide, mut narrow) = (lab.scene("fixed_window 200/m")?, lab.scene("fixed_window 2/m")?);
    for left in [199, 198, 197] {
        wide.play(&[after(0).take(1).allowed().remaining(left)]).await?;
    }
    narrow.play(&[after(0).take_up_to(3).granted(2).remaining(0)]).await?;
    wide.play(&[after(0).peek(1).allowed().remaining(197)]).await
}
