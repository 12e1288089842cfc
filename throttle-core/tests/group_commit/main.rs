//! `GroupCommit`, with callers polled by hand.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod busy;
mod crowd;
mod gate;
mod leaving;

use throttle_core::{Action, GroupCommit, Operand, Policy, StoreBackend, Timestamp};

use self::gate::{Asked, Caller, Fate, Gate, Refused, assert_empty, settle};

pub(crate) fn policy(rules: &str) -> Policy {
    Policy::new("p", rules.split(", ").map(|rule| rule.parse().unwrap())).unwrap()
}

pub(crate) fn now() -> Option<Timestamp> {
    Some(Timestamp::from_micros(1_700_000_000_000_000).unwrap())
}

fn consumed(key: &str, cost: u32, times: u32) -> Asked {
    Asked { key: key.to_owned(), operand: Operand::Consume, cost, times }
}

#[test]
fn a_lone_caller_waits_for_nobody() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 3/h");
    let action = Action::consume(&policy, "k").at(now());
    let mut caller = Caller::new(group.decide(&action));
    assert!(!caller.poll());
    assert_eq!(group.get_ref().calls(), [[consumed("k", 1, 1)]], "sent at its first poll");
    group.get_ref().release(Fate::Through);
    assert!(caller.is_woken() && caller.poll());
    assert_eq!(caller.answer.unwrap().unwrap().granted(), 1);
    assert_empty(&group);
}

#[test]
fn those_alike_become_one_and_each_gets_its_own_answer() {
    let group = GroupCommit::new(Gate::default());
    let alone = Gate::default();
    alone.open();
    let policy = policy("sliding_window_log 40/h, gcra 50/h");
    let actions: Vec<_> =
        (0..64).map(|nth| Action::consume(&policy, "k").with_times(1 + nth % 2).at(now())).collect();
    let mut callers: Vec<_> = actions.iter().map(|action| Caller::new(group.decide(action))).collect();
    settle(&mut callers);
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    assert_eq!(group.get_ref().calls(), [[consumed("k", 1, 1)], [consumed("k", 1, 95)]]);
    for (caller, action) in callers.iter().zip(&actions) {
        assert_eq!(caller.answer, Some(pollster::block_on(alone.decide(action))), "in order of arrival");
    }
    assert_empty(&group);
}

#[test]
fn nothing_overtakes_on_its_key() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 9/h");
    let (one, peek, refund) =
        (Action::consume(&policy, "k"), Action::peek(&policy, "k"), Action::refund(&policy, "k"));
    let other = Action::consume(&policy, "l");
    let sent = [one, one, other, one, peek, peek, one, refund, refund, other, one, one.with_cost(2), one];
    let mut callers: Vec<_> = sent.iter().map(|action| Caller::new(group.decide(action))).collect();
    settle(&mut callers);
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    let asked = |operand, times| Asked { operand, ..consumed("k", 1, times) };
    let expected = [
        consumed("k", 1, 2),
        consumed("l", 1, 2),
        asked(Operand::Peek, 1),
        consumed("k", 1, 1),
        asked(Operand::Refund, 1),
        asked(Operand::Refund, 1),
        consumed("k", 1, 1),
        consumed("k", 2, 1),
        consumed("k", 1, 1),
    ];
    assert_eq!(group.get_ref().calls()[1], expected);
}

#[test]
fn what_differs_is_not_merged() {
    let group = GroupCommit::new(Gate::default());
    let (policy, same_name) = (policy("gcra 9/h"), policy("gcra 8/h"));
    let one = Action::consume(&policy, "k");
    let later = Some(now().unwrap().saturating_add(std::time::Duration::from_micros(1)));
    let sent = [
        one,
        one,
        one.at(now()),
        one.at(later),
        one.with_max_wait(std::time::Duration::from_secs(1)),
        Action::consume(&same_name, "k"),
        one.with_times(throttle_core::MAX_TIMES),
        one,
    ];
    let mut callers: Vec<_> = sent.iter().map(|action| Caller::new(group.decide(action))).collect();
    settle(&mut callers);
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    assert_eq!(group.get_ref().calls()[1].len(), sent.len() - 1);
}

#[test]
fn batches_have_a_size_and_an_order() {
    let group = GroupCommit::new(Gate::default()).with_max_batch(4);
    let policy = policy("gcra 9/h");
    let keys: Vec<String> = (0..10).map(|nth| format!("{nth}")).collect();
    let actions: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key).at(now())).collect();
    let mut callers: Vec<_> = actions.iter().map(|action| Caller::new(group.decide(action))).collect();
    settle(&mut callers);
    for _ in 0..4 {
        assert_eq!(group.get_ref().waiting(), 1, "one at a time");
        group.get_ref().release(Fate::Through);
        settle(&mut callers);
    }
    let calls = group.get_ref().calls();
    assert_eq!(calls.iter().map(Vec::len).collect::<Vec<_>>(), [1, 4, 4, 1]);
    assert!(calls.concat().iter().map(|asked| &asked.key).eq(&keys));
    assert!(callers.iter().all(|caller| caller.answer.is_some()));
    assert_empty(&group);
}

#[test]
fn a_batch_of_ones_own_is_sent_whole() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 2/h");
    let actions = ["a", "b", "a", "a"].map(|key| Action::consume(&policy, key).at(now()));
    let mut caller = Caller::new(group.decide_many(&actions));
    assert!(!caller.poll());
    assert_eq!(group.get_ref().calls(), [[consumed("a", 1, 3), consumed("b", 1, 1)]]);
    group.get_ref().release(Fate::Through);
    assert!(caller.is_woken() && caller.poll());
    let granted: Vec<_> =
        caller.answer.unwrap().into_iter().map(|answer| answer.unwrap().granted()).collect();
    assert_eq!(granted, [1, 1, 1, 0]);
    assert_empty(&group);
}

#[test]
fn an_error_goes_to_all_who_were_in_it() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 9/h");
    let action = Action::consume(&policy, "k");
    let mut callers: Vec<_> = (0..5).map(|_| Caller::new(group.decide(&action))).collect();
    settle(&mut callers);
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    group.get_ref().release(Fate::Refused);
    settle(&mut callers);
    assert_eq!(callers[0].answer.as_ref().unwrap().as_ref().unwrap().granted(), 1);
    assert!(callers[1..].iter().all(|caller| caller.answer == Some(Err(Refused::Busy))));
    assert_eq!(group.get_ref().calls().len(), 2, "nothing is sent again");
    assert_empty(&group);
}

/// A store that stalls costs its deadline once. One that refuses does so at once, and holds up nobody.
#[test]
fn who_waits_behind_a_silent_store_fails_with_it() {
    for (fate, sent, error) in [(Fate::Silent, 1, Refused::Late), (Fate::Refused, 2, Refused::Busy)] {
        let group = GroupCommit::new(Gate::default()).with_max_batch(4);
        let policy = policy("gcra 9/h");
        let keys: Vec<String> = (0..10).map(|nth| format!("{nth}")).collect();
        let actions: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
        let mut callers: Vec<_> = actions.iter().map(|action| Caller::new(group.decide(action))).collect();
        settle(&mut callers);
        group.get_ref().release(fate);
        settle(&mut callers);
        assert_eq!(callers[0].answer, Some(Err(error)));
        assert_eq!(group.get_ref().calls().len(), sent);
        let all_failed = callers.iter().all(|caller| matches!(caller.answer, Some(Err(Refused::Late))));
        assert_eq!(all_failed, fate == Fate::Silent);
        group.get_ref().open();
        settle(&mut callers);
        assert_empty(&group);
        let mut next = Caller::new(group.decide(&actions[0]));
        assert!(next.poll() && next.answer.unwrap().is_ok(), "who comes later is served");
    }
}

fn panics(poll: impl FnOnce() -> bool) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll)).is_err()
}

#[test]
fn a_panic_of_the_backend_goes_to_all_who_were_in_it_and_to_nobody_else() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 9/h");
    let action = Action::consume(&policy, "k").at(now());
    let mut callers: Vec<_> = (0..4).map(|_| Caller::new(group.decide(&action))).collect();
    settle(&mut callers);
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    group.get_ref().release(Fate::Panic);
    for caller in &mut callers[1..] {
        assert!(panics(|| caller.poll()));
        caller.leave();
    }
    assert_eq!(group.get_ref().calls().len(), 2, "nothing is sent again: it may have been charged");
    assert_empty(&group);
    group.get_ref().open();
    assert!(Caller::new(group.decide(&action)).poll(), "who comes later is served");
}

#[test]
fn too_few_answers_are_a_defect_of_the_backend() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 9/h");
    let actions = ["a", "b"].map(|key| Action::consume(&policy, key).at(now()));
    let mut caller = Caller::new(group.decide_many(&actions));
    assert!(!caller.poll());
    group.get_ref().release(Fate::Short);
    assert!(panics(|| caller.poll()));
    assert_eq!(group.get_ref().calls().len(), 1, "nothing is sent again");
}

#[test]
fn the_rest_goes_straight_through() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 9/h");
    let action = Action::consume(&policy, "k");
    let mut caller = Caller::new(group.decide(&action));
    caller.poll();
    assert_eq!(group.name(), "gate");
    assert_eq!(pollster::block_on(group.ping()), Ok(()));
    assert_eq!(pollster::block_on(group.reset(policy.name(), "k")), Ok(false));
    assert_eq!(pollster::block_on(group.reset_policy(policy.name())), Ok(0));
    assert_eq!(pollster::block_on(group.decide_many(&[])), []);
}
