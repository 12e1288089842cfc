//! `CasBackend` on a stub whose round trips and faults are known.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use throttle_core::{
    Action, BaseErrorSet, CasBackend, CasError, Effect, ErrorKind, GroupCommit, Policy, StoreBackend,
    Timestamp, storage_key,
};
use throttle_testkit::ReferenceBackend;

use self::support::{StubError, StubFault, StubStore};

fn policy(rules: &str) -> Policy {
    Policy::new("p", rules.split(',').map(|rule| rule.trim().parse().unwrap())).unwrap()
}

fn stub() -> (StubStore, CasBackend<StubStore>) {
    let store = StubStore::default();
    (store.clone(), CasBackend::new(store).with_seed(1))
}

fn at(micros: u64) -> Option<Timestamp> {
    Some(Timestamp::from_micros(1_700_000_000_000_000 + micros).unwrap())
}

#[tokio::test]
async fn a_warm_key_costs_one_round_trip() {
    let (store, backend) = stub();
    let policy = policy("gcra 3/h");
    let ask = Action::consume(&policy, "k");
    let mut trips = Vec::new();
    for (granted, action) in
        [(1, ask), (1, ask), (1, ask), (0, ask), (0, Action::peek(&policy, "k")), (1, ask.with_cost(0))]
    {
        let before = store.trips();
        assert_eq!(backend.decide(&action).await.unwrap().granted(), granted);
        trips.push(store.trips() - before);
    }
    assert_eq!(trips, [2, 1, 1, 1, 1, 1], "read and write, then writes, then reads");
    assert_eq!(store.exchanges(), 3, "denials, peeks and probes write nothing");
}

#[tokio::test]
async fn without_memory_each_decision_is_read_and_written() {
    let store = StubStore::default();
    let backend = CasBackend::new(store.clone()).remember(0);
    let policy = policy("gcra 3/h");
    for trips in [2, 4, 6, 7] {
        backend.decide(&Action::consume(&policy, "k")).await.unwrap();
        assert_eq!(store.trips(), trips);
    }
}

#[tokio::test]
async fn what_others_wrote_is_only_a_conflict() {
    let store = StubStore::default();
    let backends = [CasBackend::new(store.clone()), CasBackend::new(store.clone())];
    let policy = policy("gcra 10/h");
    let mut granted = 0;
    for nth in 0..20 {
        granted += backends[nth % 2].decide(&Action::consume(&policy, "k")).await.unwrap().granted();
    }
    assert_eq!(granted, 10);
    // Reset by one, remembered as exhausted by the other.
    assert!(backends[0].reset(policy.name(), "k").await.unwrap());
    assert_eq!(backends[1].decide(&Action::consume(&policy, "k")).await.unwrap().granted(), 1);
    assert_eq!(backends[0].reset_policy(policy.name()).await.unwrap(), 1);
    assert_eq!(
        backends[1].decide(&Action::consume(&policy, "k").with_times(20)).await.unwrap().granted(),
        10
    );
}

#[tokio::test]
async fn a_conflict_costs_one_more_trip_for_its_key_only() {
    let (store, backend) = stub();
    let policy = policy("gcra 10/h");
    let actions = ["a", "b", "c"].map(|key| Action::consume(&policy, key));
    for fault in [StubFault::Overtaken, StubFault::OvertakenUnseen] {
        assert!(
            backend.decide_many(&actions).await.iter().all(|answer| answer.as_ref().unwrap().granted() == 1)
        );
        let (trips, exchanges, reads) = (store.trips(), store.exchanges(), store.reads());
        store.fail_next([fault]);
        let answers = backend.decide_many(&actions).await;
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap().granted() == 1));
        let unseen = u64::from(fault == StubFault::OvertakenUnseen);
        assert_eq!(store.trips() - trips, 2 + unseen, "all at once, then the one in conflict");
        assert_eq!(store.exchanges() - exchanges, 3 + 1);
        assert_eq!(store.reads() - reads, unseen);
    }
}

#[tokio::test]
async fn actions_on_one_key_are_decided_in_order_and_written_once() {
    let (store, backend) = stub();
    let policy = policy("sliding_window_log 10/h, gcra 20/h");
    let on = |key| Action::consume(&policy, key).with_cost(4);
    let actions =
        [on("k"), on("k"), on("other"), on("k"), Action::refund(&policy, "k").with_cost(3), on("k")];
    let answers = backend.decide_many(&actions).await;
    let granted: Vec<u32> = answers.into_iter().map(|answer| answer.unwrap().granted()).collect();
    assert_eq!(granted, [1, 1, 1, 0, 1, 1]);
    assert_eq!((store.trips(), store.exchanges()), (2, 2));
}

#[tokio::test]
async fn a_lost_reply_is_not_sent_again() {
    let (store, backend) = stub();
    let policy = policy("gcra 3/h");
    let ask = Action::consume(&policy, "k");
    store.fail_next([StubFault::ReplyLost]);
    let error = backend.decide(&ask).await.unwrap_err();
    assert_eq!(error, CasError::Store(StubError::ReplyLost));
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Connection, Effect::Unknown));
    assert_eq!(store.exchanges(), 1);
    assert_eq!(backend.decide(&ask.with_times(5)).await.unwrap().granted(), 2, "it was charged, once");
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    let (store, backend) = stub();
    let policy = policy("gcra 3/h");
    store.fail_next([StubFault::Refused]);
    let error = backend.decide(&Action::consume(&policy, "k")).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Overloaded, Effect::NotApplied));
    assert_eq!(backend.decide(&Action::consume(&policy, "k").with_times(5)).await.unwrap().granted(), 3);
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let (store, backend) = stub();
    let policy = policy("gcra 3/h");
    let name = storage_key("throttle", policy.name(), "k");
    store.put(&name, b"somebody else's");
    let answers = backend.decide_many(&[Action::consume(&policy, "k"), Action::consume(&policy, "l")]).await;
    assert!(matches!(answers[0], Err(CasError::Corrupt(_))), "{answers:?}");
    assert_eq!(answers[1].as_ref().unwrap().granted(), 1);
    // Also when it turns up in a conflict.
    store.put(&storage_key("throttle", policy.name(), "l"), b"somebody else's");
    assert!(matches!(backend.decide(&Action::consume(&policy, "l")).await, Err(CasError::Corrupt(_))));
    assert_eq!(store.value(&name).unwrap(), b"somebody else's");
}

#[tokio::test(start_paused = true)]
async fn endless_conflicts_end_with_the_deadline() {
    let (store, backend) = stub();
    let backend = backend.with_deadline(Duration::from_millis(300));
    let policy = policy("gcra 3/h");
    store.fail_next(vec![StubFault::Overtaken; 10_000]);
    let started = tokio::time::Instant::now();
    let answers = backend.decide_many(&["a", "b"].map(|key| Action::consume(&policy, key))).await;
    let took = started.elapsed();
    assert!((300..320).contains(&took.as_millis()), "{took:?}");
    assert!(store.exchanges() > 40, "{} tries", store.exchanges());
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Overloaded, Effect::NotApplied));
    }
}

#[tokio::test]
async fn names_start_with_the_prefix() {
    let store = StubStore::default();
    let backend = CasBackend::new(store.clone()).with_prefix("mine").unwrap();
    let policy = policy("gcra 3/h");
    backend.decide(&Action::consume(&policy, "k")).await.unwrap();
    assert_eq!(store.keys(), ["mine:1:p:k"]);
    backend.ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn o_74_a_hot_key_takes_few_trips() {
    let store = StubStore::default();
    store.yield_times(2);
    let backend = GroupCommit::new(CasBackend::new(store.clone()));
    let policy = policy("gcra 1000/h");
    let callers = (0..400).map(|_| async {
        let mut granted = 0;
        for _ in 0..3 {
            granted += backend.decide(&Action::consume(&policy, "k")).await.unwrap().granted();
        }
        granted
    });
    assert_eq!(join_all(callers).await.iter().sum::<u32>(), 1_000);
    assert!(store.trips() <= 20, "{} trips for 1,200 calls", store.trips());
}

#[tokio::test(flavor = "multi_thread")]
async fn o_80_batches_in_opposite_orders_do_not_block_each_other() {
    let store = StubStore::default();
    store.yield_times(1);
    let policy = policy("gcra 1000/h");
    let writers = [["a", "b"], ["b", "a"]].map(|keys| {
        let (backend, policy) = (CasBackend::new(store.clone()), policy.clone());
        tokio::spawn(async move {
            for _ in 0..200 {
                let answers = backend.decide_many(&keys.map(|key| Action::consume(&policy, key))).await;
                assert!(answers.into_iter().all(|answer| answer.unwrap().granted() == 1));
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    let left = CasBackend::new(store).decide(&Action::consume(&policy, "a").with_times(1_000)).await.unwrap();
    assert_eq!(left.granted(), 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn o_84_contention_is_not_a_denial() {
    let store = StubStore::default();
    store.yield_times(1);
    let policy = policy("gcra 1000/h");
    let callers = (0..20).map(|_| {
        let (backend, policy) = (CasBackend::new(store.clone()), policy.clone());
        tokio::spawn(async move { backend.decide(&Action::consume(&policy, "k")).await.unwrap().granted() })
    });
    let granted: u32 = join_all(callers).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(granted, 20);
}

#[tokio::test]
async fn o_86_a_thousand_hits_write_as_often_as_they_are_granted() {
    let (store, backend) = stub();
    let policy = policy("fixed_window 10/h");
    for _ in 0..1_000 {
        backend.decide(&Action::consume(&policy, "k").at(at(0))).await.unwrap();
    }
    assert_eq!(store.exchanges(), 10);
}

#[tokio::test]
async fn a_dropped_call_is_charged_or_not_and_leaves_nothing() {
    let policy = policy("gcra 10/h");
    for polls in 0..8 {
        let (store, backend) = stub();
        store.yield_times(2);
        let charged = {
            let action = Action::consume(&policy, "k");
            let mut call = Box::pin(backend.decide(&action));
            let done =
                (0..polls).any(|_| call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
            drop(call);
            assert!(done || store.exchanges() == 0);
            u32::from(done)
        };
        let left = backend.decide(&Action::consume(&policy, "k").with_times(20)).await.unwrap().granted();
        assert_eq!(left, 10 - charged, "after {polls} polls");
    }
}

/// What is asked, at what time, by which of two processes, and what goes wrong.
type Step = (bool, Vec<(usize, usize, u32, u32, u8)>, u64, Vec<u8>);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn two_processes_and_conflicts_decide_like_the_reference(
        steps in prop::collection::vec(
            (
                any::<bool>(),
                prop::collection::vec((0..3_usize, 0..4_usize, 0..4_u32, 1..4_u32, 0..4_u8), 1..6),
                0..400_000_u64,
                prop::collection::vec(0..4_u8, 0..4),
            ),
            1..20,
        ),
    ) {
        let steps: Vec<Step> = steps;
        let rules = ["gcra 5/s", "fixed_window 5/s, gcra 7/s burst 3", "sliding_window 4/s", "sliding_window_log 6/s"];
        let policies: Vec<_> = rules.iter().zip(["a", "b", "c", "d"]).map(|(rules, name)| {
            Policy::new(name, rules.split(", ").map(|rule| rule.parse().unwrap())).unwrap()
        }).collect();
        let store = StubStore::default();
        let processes = [CasBackend::new(store.clone()).remember(2), CasBackend::new(store.clone())];
        let reference = ReferenceBackend::default();
        let mut now = 0;
        pollster::block_on(async {
            for (second, asked, step, faults) in &steps {
                now += step;
                let actions: Vec<_> = asked.iter().map(|(key, policy, cost, times, operand)| {
                    let (policy, key) = (&policies[*policy], ["x", "y", "z"][*key]);
                    let action = match operand {
                        0 => Action::peek(policy, key),
                        1 => Action::refund(policy, key),
                        _ => Action::consume(policy, key),
                    };
                    action.with_cost(*cost).with_times(*times).at(at(now))
                }).collect();
                store.fail_next(faults.iter().filter_map(|fault| match fault {
                    0 => Some(StubFault::Overtaken),
                    1 => Some(StubFault::OvertakenUnseen),
                    _ => None,
                }));
                let answers = processes[usize::from(*second)].decide_many(&actions).await;
                for (answer, action) in answers.into_iter().zip(&actions) {
                    prop_assert_eq!(answer.unwrap(), reference.decide(action).await.unwrap());
                }
            }
            Ok(())
        })?;
    }
}
