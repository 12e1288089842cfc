//! States that go by themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use throttle_core::{Action, EXPIRY_MARGIN, EXPIRY_MARGIN_OWN_TIME, Policy, Store, StoreBackend, Timestamp};

use super::check::{Checked, ensure, equal};
use super::group::{Case, Group, trials};
use super::lab::{Lab, MILLI, SECOND, at, told};
use super::scene::after;
use super::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    let group = trials!(Group::new(variant, "expiry");
        o_13_a_window_that_ends_between_two_calls,
        o_14_one_call_per_window_counts_one,
        o_16_a_steady_client_is_never_locked_out,
        o_20_the_longest_period_limits,
        o_29_what_has_expired_is_absent,
    );
    // Other trials bring their time with them, and a store may let nothing expire by its own after that.
    let group = group.each_alone();
    let group = trials!(group.only_if(variant.count.is_some(), "the backend does not count what it stores");
        law_1_what_changes_nothing_stores_nothing,
        law_8_states_go_by_themselves,
        o_19_ten_thousand_keys_are_gone,
    );
    let group = group.only_if(variant.time_to_live.is_some(), "the backend does not tell times to live");
    trials!(group;
        law_8_times_to_live_of_every_algorithm,
        law_8_times_to_live_at_injected_time,
        o_10_a_fast_quota_is_stored_at_all,
        o_11_a_first_cost_above_one_expires,
        o_12_a_sliding_window_expires,
        o_15_milliseconds_are_no_seconds,
        o_17_a_short_time_to_live_is_no_zero,
        o_18_windows_with_a_fraction,
    )
    .into_cases()
}

/// What a store may round up, or take to answer.
const SLACK: Duration = Duration::from_millis(500);

/// O-13: window 1 s, a call exactly every 1.000 s: every window starts at 1.
async fn o_13_a_window_that_ends_between_two_calls<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("fixed_window 5/s")?;
    let calls: Vec<_> =
        (0..1_000).map(|s| Action::consume(&policy, "key").at(Some(at(s * SECOND)))).collect();
    for batch in calls.chunks(250) {
        let answers = lab.store().decide_many(batch).await;
        for (action, outcome) in batch.iter().zip(answers) {
            let outcome = outcome.map_err(|error| told(&error))?;
            let left = throttle_core::Decision::of(action, &outcome, 0).remaining();
            equal(&format!("left at {:?}", action.now()), &left, &4)?;
        }
    }
    Ok(())
}

/// O-14: window 1 s, one call per 1.0 s at any phase: the count is 1 every time, no window is longer than 1 s.
async fn o_14_one_call_per_window_counts_one<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let mut scene = lab.scene("fixed_window 1/s")?;
    for second in 0..60 {
        let now = after(second * SECOND + 700 * MILLI);
        scene.play(&[now.take(1).allowed().remaining(0).reset(300 * MILLI)]).await?;
    }
    Ok(())
}

/// O-16: fixed 5 per 60, one hit every 30 s, for an hour.
async fn o_16_a_steady_client_is_never_locked_out<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let mut scene = lab.scene("fixed_window 5/m")?;
    for hit in 0..120 {
        scene.play(&[after(hit * 30 * SECOND).take(1).allowed()]).await?;
    }
    Ok(())
}

/// O-20: the longest period there is, 2^50 µs: one call is allowed, the next denied. (Longer ones cannot be built.)
async fn o_20_the_longest_period_limits<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for algorithm in throttle_core::Algorithm::ALL {
        let quota = throttle_core::Quota::per(1, throttle_core::quota::MAX_PERIOD);
        let policy = lab.policy_of([throttle_core::Rule::new(algorithm, quota)?])?;
        for (moment, expected) in [(Some(at(0)), true), (Some(at(SECOND)), false)] {
            let decision = lab.decide(&Action::consume(&policy, "injected").at(moment)).await?;
            equal(&format!("{policy:?} at {moment:?}"), &decision.is_allowed(), &expected)?;
        }
        for expected in [true, false] {
            let decision = lab.decide(&Action::consume(&policy, "own clock")).await?;
            equal(&format!("{policy:?} at the store's time"), &decision.is_allowed(), &expected)?;
        }
    }
    Ok(())
}

/// O-29: 20 per 5, read 2 s after it has expired.
async fn o_29_what_has_expired_is_absent<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["fixed_window 20 per 5s", "sliding_window_log 20 per 5s", "gcra 20 per 5s"] {
        let rows = [
            after(0).take(20).allowed().remaining(0).reset(5 * SECOND),
            after(7 * SECOND).peek(1).allowed().remaining(20).reset(0),
            after(7 * SECOND).take(1).allowed().remaining(19),
        ];
        lab.play(text, &rows).await?;
    }
    Ok(())
}

async fn take<B: StoreBackend>(lab: &Lab<B>, policy: &Policy, cost: u32, now: Option<Timestamp>) -> Checked {
    let decision = lab.decide(&Action::consume(policy, "key").with_cost(cost).at(now)).await?;
    ensure(decision.is_allowed(), || format!("a fresh key of {policy:?} was denied {cost}"))
}

/// Law 1: probes, peeks, denials and hopeless costs on a fresh key leave nothing behind.
async fn law_1_what_changes_nothing_stores_nothing<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("gcra 5/h; fixed_window 5/h; sliding_window 5/h; sliding_window_log 5/h")?;
    let now = Some(at(0));
    for action in [
        Action::consume(&policy, "probe").with_cost(0).at(now),
        Action::peek(&policy, "peek").at(now),
        Action::consume(&policy, "hopeless").with_cost(6).at(now),
    ] {
        lab.outcome(&action).await?;
    }
    equal("keys stored", &lab.count(&policy).await?, &0)?;
    take(&lab, &policy, 1, now).await?;
    equal("keys stored", &lab.count(&policy).await?, &1)
}

/// Law 8, obligation 5: stored until it is as good as new, gone a margin later, without being asked for again.
async fn law_8_states_go_by_themselves<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let texts = [
        "gcra 1 per 900ms",
        "fixed_window 1 per 900ms",
        "sliding_window 1 per 900ms",
        "sliding_window_log 1 per 900ms",
        "gcra 1 per 900ms; fixed_window 9 per 700ms; sliding_window_log 5 per 800ms",
    ];
    let policies = texts.map(|text| lab.policy(text)).into_iter().collect::<Result<Vec<_>, _>>()?;
    for policy in &policies {
        take(&lab, policy, 1, None).await?;
        equal(&format!("{policy:?}: keys stored"), &lab.count(policy).await?, &1)?;
    }
    lab.pass(lab.at_most_stored(Duration::from_millis(1_800) + EXPIRY_MARGIN) + SLACK).await;
    for policy in &policies {
        equal(&format!("{policy:?}: keys left"), &lab.count(policy).await?, &0)?;
    }
    Ok(())
}

/// O-19: 10,000 keys of one hit each, window 1 s: none is left.
async fn o_19_ten_thousand_keys_are_gone<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("fixed_window 5/s")?;
    let keys: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
    for batch in keys.chunks(500) {
        let actions: Vec<_> = batch.iter().map(|key| Action::consume(&policy, key)).collect();
        for outcome in lab.store().decide_many(&actions).await {
            outcome.map_err(|error| told(&error))?;
        }
    }
    lab.pass(lab.at_most_stored(Duration::from_secs(1) + EXPIRY_MARGIN) + 4 * SLACK).await;
    equal("keys left", &lab.count(&policy).await?, &0)
}

/// How long the key of a fresh policy is stored after `cost` units at once, at the backend's own time; it must be
/// between `least` and the margin above `most`, both in microseconds.
async fn stored_for<B: StoreBackend>(
    lab: &Lab<B>,
    text: &str,
    cost: u32,
    (least, most): (u64, u64),
) -> Checked {
    let policy = lab.policy(text)?;
    let (least, most) = (Duration::from_micros(least), Duration::from_micros(most) + EXPIRY_MARGIN);
    lives_for(lab, &policy, cost, None, (least, most)).await
}

async fn lives_for<B: StoreBackend>(
    lab: &Lab<B>,
    policy: &Policy,
    cost: u32,
    now: Option<Timestamp>,
    (least, most): (Duration, Duration),
) -> Checked {
    let started = Instant::now();
    take(lab, policy, cost, now).await?;
    let left: Option<Duration> = lab.time_to_live(policy, "key").await?;
    let left =
        left.ok_or_else(|| Failed::from(format!("{policy:?}: nothing is stored, or it never expires")))?;
    let (passed, most) = (started.elapsed(), lab.at_most_stored(most));
    ensure(left + passed >= least, || format!("{policy:?}: stored for {left:?}, less than {least:?}"))?;
    ensure(left <= most + SLACK, || format!("{policy:?}: stored for {left:?}, more than {most:?}"))
}

/// Law 8: no earlier than `reset_after`, no later than a margin after.
async fn law_8_times_to_live_of_every_algorithm<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for bucket in ["token_bucket", "leaky_bucket", "gcra"] {
        stored_for(&lab, &format!("{bucket} 10 per 100s burst 10"), 3, (30 * SECOND, 30 * SECOND)).await?;
    }
    stored_for(&lab, "gcra 10 per 100s; gcra 1 per 50s", 1, (50 * SECOND, 50 * SECOND)).await?;
    stored_for(&lab, "sliding_window_log 10 per 100s", 3, (100 * SECOND, 100 * SECOND)).await?;
    stored_for(&lab, "fixed_window 10 per 100s", 3, (0, 100 * SECOND)).await?;
    stored_for(&lab, "sliding_window 10 per 100s", 3, (100 * SECOND, 200 * SECOND)).await
}

/// Law 8, where the action brings its time: the margin is longer, so that a clock that steps back finds the state.
async fn law_8_times_to_live_at_injected_time<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let expected = [
        ("gcra 10 per 100s", 10 * SECOND),
        ("fixed_window 10 per 100s", 100 * SECOND),
        ("sliding_window 10 per 100s", 200 * SECOND),
        ("sliding_window_log 10 per 100s", 100 * SECOND),
    ];
    for (text, micros) in expected {
        let (policy, reset) = (lab.policy(text)?, Duration::from_micros(micros));
        // Midnight is no multiple of 100 s.
        let now = Timestamp::saturating_from_micros(1_700_000_000_000_000);
        lives_for(&lab, &policy, 1, Some(now), (reset, reset + EXPIRY_MARGIN_OWN_TIME)).await?;
    }
    Ok(())
}

/// O-10: C = 1, 3 per 1, three calls at once: allow, deny, deny; the key exists, for a few seconds at most.
async fn o_10_a_fast_quota_is_stored_at_all<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [after(0).allowed(), after(0).denied(), after(0).denied()];
    lab.play("gcra 3/s burst 1", &rows).await?;
    stored_for(&lab, "gcra 3/s burst 1", 1, (1_000, SECOND / 3 + 1)).await
}

/// O-11: window 60 s, first cost 37.
async fn o_11_a_first_cost_above_one_expires<B: StoreBackend>(lab: Lab<B>) -> Checked {
    stored_for(&lab, "fixed_window 100/m", 37, (0, 60 * SECOND)).await
}

/// O-12: sliding window of 900 s, one hit: between 900 s and 1,801 s.
async fn o_12_a_sliding_window_expires<B: StoreBackend>(lab: Lab<B>) -> Checked {
    stored_for(&lab, "sliding_window 10 per 900s", 1, (900 * SECOND, 1_800 * SECOND)).await
}

/// O-15: 6 per 60,000 ms, one hit: 10 s, not 10,000 s.
async fn o_15_milliseconds_are_no_seconds<B: StoreBackend>(lab: Lab<B>) -> Checked {
    stored_for(&lab, "gcra 6 per 60000ms", 1, (10 * SECOND, 10 * SECOND)).await
}

/// O-17: C = 1,001, 1,000 per 60, three calls at once: 1,000, 999, 998; stored for 60 ms at least.
async fn o_17_a_short_time_to_live_is_no_zero<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let rows = [after(0).remaining(1_000), after(0).remaining(999), after(0).remaining(998)];
    lab.play("gcra 1000/m burst 1001", &rows).await?;
    stored_for(&lab, "gcra 1000/m burst 1001", 1, (60 * MILLI, 60 * MILLI)).await
}

/// O-18: windows of 600.001 s and of 1.5 s.
async fn o_18_windows_with_a_fraction<B: StoreBackend>(lab: Lab<B>) -> Checked {
    stored_for(&lab, "sliding_window_log 5 per 600001ms", 1, (600_001 * MILLI, 600_001 * MILLI)).await?;
    stored_for(&lab, "sliding_window_log 5 per 1500ms", 1, (1_500 * MILLI, 1_500 * MILLI)).await
}
