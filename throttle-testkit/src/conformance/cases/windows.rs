//! Windows, shaping, and several limits at once.

use std::sync::Arc;

use throttle_core::StoreBackend;

use crate::conformance::check::Checked;
use crate::conformance::group::{Case, Group, trials};
use crate::conformance::lab::{Lab, MILLI, SECOND};
use crate::conformance::scene::after;
use crate::conformance::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "cases");
        o_56_twice_the_limit_around_a_boundary,
        o_57_the_leak_goes_on_while_hits_arrive,
        o_58_a_window_long_gone_does_not_count,
        o_59_denied_hits_do_not_prolong_the_wait,
        o_60_a_calendar_minute_lasts_a_minute,
        o_61_idling_saves_up_no_more_than_the_burst,
        o_63_losers_of_one_limit_do_not_pay_the_other,
    )
    .into_cases()
}

const MINUTE: u64 = 60 * SECOND;

/// O-56: 10 per 60; 10 at 59.9 and 10 at 60.1: fixed admits 20 (as documented), log 10, sliding window at most 11.
async fn o_56_twice_the_limit_around_a_boundary<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for (algorithm, second) in [("fixed_window", 10), ("sliding_window_log", 0), ("sliding_window", 0)] {
        let rows = [
            after(59_900 * MILLI).take_up_to(10).granted(10),
            after(60_100 * MILLI).take_up_to(10).granted(second),
        ];
        lab.play(&format!("{algorithm} 10/m"), &rows).await?;
    }
    Ok(())
}

/// O-57: leaky 10 per 30, one hit per second from 0 to 10.
async fn o_57_the_leak_goes_on_while_hits_arrive<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let mut scene = lab.scene("leaky_bucket 10 per 30s burst 10")?;
    for (second, left) in (0..).zip([9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2]) {
        scene.play(&[after(second * SECOND).take(1).allowed().remaining(left)]).await?;
    }
    Ok(())
}

/// O-58: 10 per 1; a hit at 0, 11 hits at 3,600: 10 allowed.
async fn o_58_a_window_long_gone_does_not_count<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["sliding_window 10/s", "fixed_window 10/s", "sliding_window_log 10/s"] {
        let rows = [after(0).take(1).allowed(), after(3_600 * SECOND).take_up_to(11).granted(10)];
        lab.play(text, &rows).await?;
    }
    Ok(())
}

/// O-59: sliding 10 per 60; 10 allowed, then denials until 66.0 s, and the announced end never moves. The weight of
/// the past window fades in units of 58 µs, so 66.0 s is 66.000042 s.
async fn o_59_denied_hits_do_not_prolong_the_wait<B: StoreBackend>(lab: Lab<B>) -> Checked {
    const FREE: u64 = 66_000_042;
    let mut scene = lab.scene("sliding_window 10/m")?;
    scene.play(&[after(0).take_up_to(10).granted(10)]).await?;
    for second in 0..66 {
        scene.repeat(3, after(second * SECOND).take(1).denied().retry(FREE - second * SECOND)).await?;
    }
    scene.play(&[after(FREE - 1).take(1).denied().retry(1), after(FREE).take(1).allowed().remaining(0)]).await
}

/// O-60: 100 per calendar minute; 12:00:10.000, 12:00:10.005, 12:01:00.000: 99, 98, 99.
async fn o_60_a_calendar_minute_lasts_a_minute<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let noon = 12 * 60 * MINUTE;
    let rows = [
        after(noon + 10 * SECOND).take(1).remaining(99).reset(50 * SECOND),
        after(noon + 10_005 * MILLI).take(1).remaining(98).reset(49_995 * MILLI),
        after(noon + MINUTE).take(1).remaining(99).reset(MINUTE),
    ];
    lab.play("fixed_window 100/m", &rows).await
}

/// O-61: 1 per 1, burst 2; take, idle for 2 s, then 24 takes: 2 at once, then one per second.
async fn o_61_idling_saves_up_no_more_than_the_burst<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let mut scene = lab.scene("token_bucket 1/s burst 2")?;
    scene.play(&[after(0).take(1).allowed(), after(9 * SECOND).take_up_to(24).granted(2)]).await?;
    for second in 10..32 {
        scene.play(&[after(second * SECOND).take_up_to(24).granted(1).retry(SECOND)]).await?;
    }
    Ok(())
}

/// O-63: 10 per 60 and 30 per 1,800; 16 calls in minute 0, 15 in minute 1: 20 allowed, 20 of the long limit used.
async fn o_63_losers_of_one_limit_do_not_pay_the_other<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let mut scene = lab.scene("fixed_window 10/m; fixed_window 30 per 30m")?;
    for (minute, calls) in [(0, 16), (1, 15)] {
        let now = after(minute * MINUTE);
        scene.repeat(10, now.take(1).allowed()).await?;
        scene.repeat(calls - 10, now.take(1).denied().retry(MINUTE)).await?;
    }
    let last = after(2 * MINUTE);
    scene.play(&[last.peek(1).allowed().limit(10), last.take(10).allowed().remaining(0)]).await?;
    scene.play(&[after(3 * MINUTE).take(1).denied().retry(27 * MINUTE).limit(30)]).await
}
