//! Many callers at once, on one key: the sum is exact.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use throttle_core::{
    Action, Decision, Policy, RuleDecision, Store, StoreBackend, StoreUnavailableError, Timestamp,
};
use tokio::task::JoinSet;

use super::check::{Checked, ensure, equal};
use super::group::{Case, Group, trials};
use super::lab::{Lab, SECOND, at, told};
use super::scene::admitted;
use super::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    let group = trials!(Group::new(variant, "concurrency");
        one_key_admits_exactly_its_capacity,
        every_algorithm_admits_exactly_its_capacity,
        several_at_once_are_admitted_exactly,
        batches_admit_exactly,
        all_rules_are_charged_or_none,
        a_queue_gives_each_caller_a_place_of_its_own,
        refunds_are_not_lost,
        callers_with_clocks_apart_gain_nothing,
        o_62_hits_at_the_turn_of_a_window_are_not_lost,
        o_74_four_hundred_callers_get_a_thousand_tokens,
        o_78_check_and_write_are_one,
        o_78_a_fresh_key_admits_one,
        o_84_contention_is_no_denial,
    );
    trials!(group.only_if(variant.own_clock, "the backend has no clock of its own");
        own_clock_admits_exactly_its_capacity,
        own_clock_does_not_step_back,
    )
    .into_cases()
}

/// What one of many callers asks for.
#[derive(Clone, Copy)]
struct Ask {
    cost: u32,
    times: u32,
    wait: Duration,
    now: Option<Timestamp>,
}

impl Ask {
    fn one(now: Option<Timestamp>) -> Self {
        Self { cost: 1, times: 1, wait: Duration::ZERO, now }
    }
}

/// Runs `tasks` tasks of `calls` calls each, all at once on one key, and adds up the requests they were granted.
async fn storm<B: StoreBackend>(
    lab: &Lab<B>,
    policy: &Policy,
    (tasks, calls): (u32, u32),
    ask: impl Fn(u32) -> Ask,
) -> Result<u64, Failed> {
    let start = Arc::new(tokio::sync::Barrier::new(usize::try_from(tasks)?));
    let mut callers = JoinSet::new();
    for task in 0..tasks {
        let (store, policy, ask, start) = (lab.store(), policy.clone(), ask(task), Arc::clone(&start));
        callers.spawn(async move {
            start.wait().await;
            let mut granted = 0;
            for _ in 0..calls {
                let action = Action::consume(&policy, "key").with_cost(ask.cost).with_times(ask.times);
                let action = action.with_max_wait(ask.wait).at(ask.now);
                granted += u64::from(store.decide(&action).await?.granted());
            }
            Ok(granted)
        });
    }
    let mut granted = 0;
    while let Some(done) = callers.join_next().await {
        granted += done?.map_err(|error| told(&error))?;
    }
    Ok(granted)
}

/// Obligation 1.
async fn one_key_admits_exactly_its_capacity<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for round in 0..3 {
        let policy = lab.policy("token_bucket 37/h")?;
        let sum = storm(&lab, &policy, (16, 8), |_| Ask::one(Some(at(0)))).await?;
        admitted(&format!("round {round}, 16 callers, 128 calls"), sum, 37)?;
    }
    Ok(())
}

/// Obligation 1, for each way to count.
async fn every_algorithm_admits_exactly_its_capacity<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for algorithm in throttle_core::Algorithm::ALL {
        let burst = if algorithm.is_bucket() { " burst 25" } else { "" };
        let policy = lab.policy(&format!("{algorithm} 25/h{burst}"))?;
        let sum = storm(&lab, &policy, (10, 8), |_| Ask::one(Some(at(0)))).await?;
        admitted(algorithm.name(), sum, 25)?;
    }
    Ok(())
}

/// Obligation 1: callers that ask for up to seven at once share what there is.
async fn several_at_once_are_admitted_exactly<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("gcra 100/h")?;
    let ask = |task: u32| Ask { cost: 1, times: 1 + task % 7, ..Ask::one(Some(at(0))) };
    admitted("1 to 7 at once", storm(&lab, &policy, (14, 10), ask).await?, 100)
}

/// Obligation 1: batches of one key from several callers.
async fn batches_admit_exactly<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("fixed_window 50/h")?;
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (store, policy) = (lab.store(), policy.clone());
        callers.spawn(async move {
            let actions = vec![Action::consume(&policy, "key").at(Some(at(0))); 10];
            let mut granted = 0;
            for outcome in store.decide_many(&actions).await {
                granted += u64::from(outcome?.granted());
            }
            Ok(granted)
        });
    }
    let mut sum = 0;
    while let Some(done) = callers.join_next().await {
        sum += done?.map_err(|error: StoreUnavailableError| told(&error))?;
    }
    admitted("8 batches of 10", sum, 50)
}

/// Law 5 under contention: what the narrow rule denies, the wide one is not charged for.
async fn all_rules_are_charged_or_none<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("gcra 10/h; fixed_window 1000/h; sliding_window_log 500/h")?;
    let sum = storm(&lab, &policy, (12, 10), |_| Ask::one(Some(at(0)))).await?;
    admitted("by the narrowest rule", sum, 10)?;
    let look = Action::peek(&policy, "key").with_cost(0).at(Some(at(0)));
    let left: Vec<u32> = lab.decide(&look).await?.rules().iter().map(RuleDecision::remaining).collect();
    equal("left of each rule", &left, &vec![0, 990, 490])
}

/// Callers who would wait are given places in the queue, an interval apart, no two the same.
async fn a_queue_gives_each_caller_a_place_of_its_own<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("leaky_bucket 1/s queue 9s")?;
    let mut callers = JoinSet::new();
    for _ in 0..15 {
        let (lab_store, policy) = (lab.store(), policy.clone());
        callers.spawn(async move {
            let action =
                Action::consume(&policy, "key").with_max_wait(Duration::from_secs(60)).at(Some(at(0)));
            let outcome = lab_store.decide(&action).await?;
            let decision = Decision::of(&action, &outcome, 0);
            Ok(decision.is_allowed().then(|| decision.delay().as_secs()))
        });
    }
    let mut places = Vec::new();
    while let Some(done) = callers.join_next().await {
        places.extend(done?.map_err(|error: StoreUnavailableError| told(&error))?);
    }
    places.sort_unstable();
    equal("seconds to wait", &places, &(0..10).collect())
}

/// Obligation 1: nothing that is given back is lost, whoever takes meanwhile. First nobody does, so that no loss makes up
/// for another.
async fn refunds_are_not_lost<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("sliding_window_log 1000/h")?;
    let spent = Action::consume(&policy, "key").with_cost(500).at(Some(at(0)));
    lab.outcome(&spent).await?;
    for (takers, left) in [(0, 620), (6, 620)] {
        give_and_take(&lab, &policy, 12, takers).await?;
        let look = Action::peek(&policy, "key").with_cost(0).at(Some(at(0)));
        equal(&format!("remaining, {takers} of 12 take"), &lab.decide(&look).await?.remaining(), &left)?;
    }
    Ok(())
}

/// Each of `callers` gives back one unit ten times, or takes one if it is among the first `takers`.
async fn give_and_take<B: StoreBackend>(
    lab: &Lab<B>,
    policy: &Policy,
    callers: u32,
    takers: u32,
) -> Result<(), Failed> {
    let mut all = JoinSet::new();
    for caller in 0..callers {
        let (store, policy) = (lab.store(), policy.clone());
        all.spawn(async move {
            let ask = if caller < takers { Action::consume } else { Action::refund };
            for _ in 0..10 {
                store.decide(&ask(&policy, "key").at(Some(at(0)))).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = all.join_next().await {
        done?.map_err(|error: StoreUnavailableError| told(&error))?;
    }
    Ok(())
}

/// Law 7 under contention: callers whose clocks are up to five seconds apart get no more than the rate allows between
/// the earliest and the latest of them.
async fn callers_with_clocks_apart_gain_nothing<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("token_bucket 20 per 20s burst 40")?;
    let ask = |task: u32| Ask::one(Some(at(u64::from(task % 6) * SECOND)));
    let sum = storm(&lab, &policy, (12, 20), ask).await?;
    ensure((40..=45).contains(&sum), || format!("expected 40 to 45 admitted, got {sum}"))
}

/// O-62: 16 callers while a window turns; each window admits its limit, and no hit of a live window is dropped.
async fn o_62_hits_at_the_turn_of_a_window_are_not_lost<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("fixed_window 5 per 10s")?;
    for window in 0..6 {
        let ask = |_| Ask::one(Some(at(window * 10 * SECOND)));
        admitted(&format!("window {window}"), storm(&lab, &policy, (16, 2), ask).await?, 5)?;
    }
    Ok(())
}

/// O-74: 400 callers, one key, 1,000 tokens: exactly 1,000 are admitted.
async fn o_74_four_hundred_callers_get_a_thousand_tokens<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("token_bucket 1000/h")?;
    let ask = |_| Ask { times: 3, ..Ask::one(Some(at(0))) };
    admitted("400 callers of up to 3", storm(&lab, &policy, (400, 1), ask).await?, 1_000)
}

/// O-78: 8 callers of 25 calls, limit 10.
async fn o_78_check_and_write_are_one<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["fixed_window 10 per 60s", "sliding_window_log 10 per 60s"] {
        let policy = lab.policy(text)?;
        admitted(text, storm(&lab, &policy, (8, 25), |_| Ask::one(Some(at(0)))).await?, 10)?;
    }
    Ok(())
}

/// O-78: two calls at once on a key that nobody has used, many times over.
async fn o_78_a_fresh_key_admits_one<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for round in 0..100 {
        let policy = lab.policy("gcra 1/h")?;
        let sum = storm(&lab, &policy, (2, 1), |_| Ask::one(Some(at(0)))).await?;
        admitted(&format!("round {round}"), sum, 1)?;
    }
    Ok(())
}

/// O-84: contention must not look like a denial.
async fn o_84_contention_is_no_denial<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("gcra 1000/h")?;
    admitted("20 callers", storm(&lab, &policy, (20, 1), |_| Ask::one(Some(at(0)))).await?, 20)
}

/// Obligations 1 and 3, at the time of the backend itself: a quota so slow that nothing comes back meanwhile.
async fn own_clock_admits_exactly_its_capacity<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for text in ["token_bucket 30/d", "sliding_window_log 30/d"] {
        let policy = lab.policy(text)?;
        admitted(text, storm(&lab, &policy, (10, 10), |_| Ask::one(None)).await?, 30)?;
    }
    Ok(())
}

/// Obligation 3: one caller that asks again and again sees time go on; and it is about the time of day.
async fn own_clock_does_not_step_back<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("gcra 1000/s")?;
    let mut last = Timestamp::EPOCH;
    for _ in 0..200 {
        let now = lab.outcome(&Action::consume(&policy, "key")).await?.now();
        // The readings of two processor cores may be a hair apart.
        let back = last.saturating_since(now);
        ensure(back < Duration::from_millis(1), || format!("time stepped back by {back:?}"))?;
        last = now;
    }
    ensure(last > at(0), || format!("{last:?} is long ago"))
}
