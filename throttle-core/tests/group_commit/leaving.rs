//! Callers that go away, or are never polled again.

use std::time::Duration;

use throttle_core::{Action, GroupCommit, RateLimiter, Reserve, StoreBackend};

use crate::gate::{Caller, Fate, Gate, assert_empty, settle};
use crate::{consumed, now, policy};

#[test]
fn who_leaves_before_the_batch_is_sent_was_never_there() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 9/h");
    let actions = ["a", "b", "b", "c", "b"].map(|key| Action::consume(&policy, key).at(now()));
    let mut callers: Vec<_> = actions.iter().map(|action| Caller::new(group.decide(action))).collect();
    settle(&mut callers);
    callers[1].leave();
    callers[3].leave();
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    assert_eq!(group.get_ref().calls(), [[consumed("a", 1, 1)], [consumed("b", 1, 2)]]);
    let first = callers[2].answer.clone().unwrap().unwrap();
    assert_eq!(first, first.share(&actions[2], 0, 1), "as if it had been the first");
    assert_empty(&group);
}

#[test]
fn a_batch_that_everybody_left_is_not_sent() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 9/h");
    let action = Action::consume(&policy, "k");
    let mut callers: Vec<_> = (0..5).map(|_| Caller::new(group.decide(&action))).collect();
    settle(&mut callers);
    callers[1..].iter_mut().for_each(Caller::leave);
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    assert_eq!(group.get_ref().calls().len(), 1);
    assert_empty(&group);
}

#[test]
fn a_batch_goes_on_without_whoever_drove_it() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 9/h");
    let action = Action::consume(&policy, "k").at(now());
    let mut callers: Vec<_> = (0..4).map(|_| Caller::new(group.decide(&action))).collect();
    settle(&mut callers);
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    // Each of the three may have polled last.
    callers[1].leave();
    callers[2].leave();
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    let granted = callers[3].answer.as_ref().unwrap().as_ref().unwrap();
    assert_eq!(group.get_ref().calls()[1], [consumed("k", 1, 3)], "those who left are charged");
    assert_eq!(granted.granted(), 1);
    assert_empty(&group);
}

#[test]
fn when_all_of_the_running_batch_leave_the_next_one_has_its_turn() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 9/h");
    let action = Action::consume(&policy, "k");
    let mut callers: Vec<_> = (0..3).map(|_| Caller::new(group.decide(&action))).collect();
    settle(&mut callers);
    callers[0].leave();
    settle(&mut callers);
    assert_eq!(group.get_ref().calls().len(), 2);
    assert_eq!(group.get_ref().waiting(), 1, "the first call was dropped");
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    assert!(callers[1..].iter().all(|caller| caller.answer.is_some()));
    assert_empty(&group);
}

#[test]
fn nothing_depends_on_a_caller_that_is_never_polled_again() {
    let group = GroupCommit::new(Gate::default());
    let policy = policy("gcra 9/h");
    let action = Action::consume(&policy, "k");
    let mut stuck = Caller::new(group.decide(&action));
    stuck.poll();
    let mut callers: Vec<_> = (0..3).map(|_| Caller::new(group.decide(&action))).collect();
    settle(&mut callers);
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    group.get_ref().release(Fate::Through);
    settle(&mut callers);
    assert!(callers.iter().all(|caller| caller.answer.is_some()));
    assert!(stuck.poll(), "its answer is there whenever it comes for it");
    assert_empty(&group);
}

#[test]
fn dropped_at_any_poll_a_caller_takes_nobody_along() {
    let policy = policy("gcra 9/h");
    let action = Action::consume(&policy, "k").at(now());
    for steps in 0..12 {
        for leaver in 0..4 {
            let group = GroupCommit::new(Gate::default());
            let mut callers: Vec<_> = (0..4).map(|_| Caller::new(group.decide(&action))).collect();
            for step in 0..steps {
                let caller = step % 4;
                callers[caller].poll();
                if step % 3 == 2 {
                    group.get_ref().release(Fate::Through);
                }
            }
            callers[leaver].leave();
            group.get_ref().open();
            settle(&mut callers);
            let answered = callers.iter().filter(|caller| caller.answer.is_some()).count();
            assert!(answered >= 3, "{answered} answers after {steps} steps without {leaver}");
            assert_empty(&group);
        }
    }
}

#[tokio::test]
async fn o_91_permits_of_those_who_leave_at_the_grant_come_back() {
    let gate = Gate::default();
    let limiter = RateLimiter::new(policy("gcra 40/h"), GroupCommit::new(gate.clone()));
    let waiters: Vec<_> = (0..40)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.reserve("k", 1).await })
        })
        .collect();
    while gate.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    gate.release(Fate::Through);
    while gate.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    // The grant is on its way, and 14 leave.
    gate.release(Fate::Through);
    waiters[10..24].iter().for_each(tokio::task::JoinHandle::abort);
    gate.open();
    let mut held = 0;
    for waiter in waiters {
        match waiter.await {
            Ok(reserved) => {
                let Reserve::Held(reservation) = reserved.unwrap() else { panic!("40 were free") };
                let _ = reservation.release().await.unwrap();
                held += 1;
            }
            Err(aborted) => assert!(aborted.is_cancelled()),
        }
    }
    assert!(held >= 26, "{held} held");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(limiter.take_up_to("k", 50).await.unwrap().units(), 40);
}
