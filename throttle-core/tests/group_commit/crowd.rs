//! A crowd of callers in random order: some leave, some are never polled again, and every answer must be one that some
//! order of arrival explains.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use throttle_core::kernel::{PolicyState, decide};
use throttle_core::{Action, GroupCommit, Outcome, Policy, StoreBackend, Timestamp};

use crate::gate::{Caller, Fate, Gate, Refused, assert_empty, settle};
use crate::{now, policy};

const KEYS: [&str; 3] = ["a", "b", "c"];
const RULES: [&str; 4] = [
    "gcra 7/h",
    "sliding_window_log 9/h, gcra 12/h",
    "fixed_window 6/h, sliding_window 8/h",
    "gcra 3/h queue 1h",
];

fn random_action<'a>(policy: &'a Policy, random: &mut StdRng) -> Action<'a> {
    let key = KEYS.choose(random).unwrap();
    let action = match random.random_range(0..10) {
        0 => Action::peek(policy, key),
        1 => Action::refund(policy, key),
        _ => Action::consume(policy, key),
    };
    let wait = std::time::Duration::from_secs(if random.random_bool(0.2) { 900 } else { 0 });
    action
        .with_cost(*[1, 1, 1, 1, 2, 0].choose(random).unwrap())
        .with_times(*[1, 1, 1, 3].choose(random).unwrap())
        .with_max_wait(wait)
        .at(now())
}

/// What became of the callers, in order of arrival.
type Story<'a> = Vec<(Action<'a>, Option<Result<Outcome, Refused>>)>;

/// Each answer is what the kernel gives for some state that the callers before may have left: those without an answer
/// were charged, or were not. At the end, one of these states is what is stored.
fn assert_explained(policy: &Policy, story: &Story<'_>, gate: &Gate) {
    let mut possible: HashMap<&str, Vec<PolicyState>> =
        KEYS.map(|key| (key, vec![PolicyState::fresh(policy)])).into();
    let at: Timestamp = now().unwrap();
    for (nth, (action, answer)) in story.iter().enumerate() {
        let states = possible.get_mut(action.key()).unwrap();
        let mut after = Vec::new();
        for state in states.iter() {
            let mut next = state.clone();
            let outcome = decide(action, at, &mut next);
            match answer {
                Some(Ok(answer)) if *answer == outcome => after.push(next),
                Some(_) => {}
                None => after.extend([state.clone(), next]),
            }
        }
        let mut unique: Vec<PolicyState> = Vec::new();
        after.into_iter().for_each(|state| {
            if !unique.contains(&state) {
                unique.push(state);
            }
        });
        assert!(!unique.is_empty(), "nothing explains answer {nth}: {action:?} {answer:?}");
        *states = unique;
    }
    for (key, states) in possible {
        let stored = gate.reference().state(policy.name(), key).unwrap_or_else(|| PolicyState::fresh(policy));
        assert!(states.contains(&stored), "nothing explains what is stored for {key}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn a_crowd_is_served_in_order(seed: u64, rules in 0..RULES.len(), most in 1..5_usize, unruly in 0..4_u32) {
        let mut random = StdRng::seed_from_u64(seed);
        let policy = policy(RULES[rules]);
        let group = GroupCommit::new(Gate::default()).with_max_batch(most);
        let actions: Vec<_> = (0..40).map(|_| random_action(&policy, &mut random)).collect();
        let arrivals = AtomicU32::new(0);
        let mut arrived: Vec<Option<u32>> = vec![None; actions.len()];
        let mut callers: Vec<_> = actions.iter().map(|action| Caller::new(group.decide(action))).collect();
        let mut stuck = vec![false; actions.len()];
        for _ in 0..250 {
            let at = random.random_range(0..callers.len());
            match random.random_range(0..10) {
                0 | 1 => { group.get_ref().release(Fate::Through); }
                2 if random.random_ratio(unruly, 8) => callers[at].leave(),
                3 if random.random_ratio(unruly, 8) => stuck[at] = true,
                _ if stuck[at] => {}
                _ => {
                    arrived[at].get_or_insert_with(|| arrivals.fetch_add(1, Ordering::Relaxed));
                    callers[at].poll();
                }
            }
        }
        // From here on only those are polled that are woken. Nobody may be forgotten.
        let mut order: Vec<usize> = (0..callers.len()).filter(|at| arrived[*at].is_some()).collect();
        order.sort_by_key(|at| arrived[*at]);
        let (mut seen, mut frozen): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
        let mut owners = Vec::new();
        for (at, caller) in callers.into_iter().enumerate() {
            match arrived[at] {
                Some(_) if stuck[at] => frozen.push((at, caller)),
                Some(_) => { owners.push(at); seen.push(caller); }
                None => {}
            }
        }
        group.get_ref().open();
        settle(&mut seen);
        let mut answers: HashMap<usize, _> = HashMap::new();
        for (at, caller) in owners.into_iter().zip(seen) {
            prop_assert!(caller.is_gone(), "caller {at} was forgotten");
            answers.insert(at, caller.answer);
        }
        for (at, caller) in frozen {
            answers.insert(at, caller.answer);
        }
        let story: Story<'_> =
            order.iter().map(|at| (actions[*at], answers.remove(at).flatten())).collect();
        assert_explained(&policy, &story, group.get_ref());
        assert_empty(&group);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_that_come_and_go_get_exactly_what_there_is() {
    let gate = Gate::default();
    let group = std::sync::Arc::new(GroupCommit::new(gate.clone()).with_max_batch(8));
    let porter = tokio::spawn({
        let gate = gate.clone();
        async move {
            loop {
                gate.release(Fate::Through);
                tokio::task::yield_now().await;
            }
        }
    });
    let policy = policy("gcra 1000/h");
    let granted = std::sync::Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (0..400_u64)
        .map(|seed| {
            let (group, policy, granted) = (group.clone(), policy.clone(), granted.clone());
            tokio::spawn(async move {
                let mut random = StdRng::seed_from_u64(seed);
                for _ in 0..10 {
                    let key = KEYS.choose(&mut random).unwrap();
                    let action = Action::consume(&policy, key).at(now());
                    let patience = std::time::Duration::from_micros(random.random_range(0..3_000));
                    let asked = group.decide(&action);
                    let answer = match random.random_bool(0.3) {
                        true => tokio::time::timeout(patience, asked).await.ok(),
                        false => Some(asked.await),
                    };
                    if let Some(answer) = answer {
                        granted.fetch_add(answer.unwrap().granted(), Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    porter.abort();
    let _ = porter.await;
    gate.open();
    let mut left = 0;
    for key in KEYS {
        let rest = Action::consume(&policy, key).with_times(2_000).at(now());
        left += group.decide(&rest).await.unwrap().granted();
    }
    let granted = granted.load(Ordering::Relaxed);
    let charged: u32 = gate.calls().iter().flatten().map(|asked| asked.times).sum::<u32>() - 6_000;
    assert!(granted + left <= 3_000, "{granted} granted, {left} left");
    assert!(charged >= granted && charged <= 4_000, "{charged} charged, {granted} granted");
    assert_empty(&group);
}
