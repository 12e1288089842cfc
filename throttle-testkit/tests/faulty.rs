//! The backend under control: what fails, when, and what is seen of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::convert::Infallible;
use std::time::Duration;

use throttle_core::lock::{LockTtl, Owner};
use throttle_core::{
    Action, BaseErrorSet, Effect, ErrorKind, LockBackend, Operation, Policy, PolicyName, Rule, StoreBackend,
    Timestamp,
};
use throttle_testkit::faulty::{Answer, Subject};
use throttle_testkit::{Fault, Faults, FaultyBackend, InjectedError, ManualClock, ReferenceBackend};

type Backend = FaultyBackend<ReferenceBackend>;

fn backend() -> (Backend, Faults<Infallible>, Policy) {
    let backend = FaultyBackend::new(ReferenceBackend::default());
    let faults = backend.faults();
    (backend, faults, Policy::new("faulty", [Rule::gcra("1000/h").unwrap()]).unwrap())
}

/// Which of `calls` calls failed, from 1.
async fn failing(backend: &Backend, policy: &Policy, calls: u32) -> Vec<u32> {
    let mut failed = Vec::new();
    for call in 1..=calls {
        if backend.decide(&Action::consume(policy, "key")).await.is_err() {
            failed.push(call);
        }
    }
    failed
}

#[tokio::test]
async fn a_fault_strikes_once_unless_told_otherwise() {
    let (backend, faults, policy) = backend();
    faults.inject(Fault::refuse(ErrorKind::Connection));
    faults.inject(Fault::refuse(ErrorKind::Timeout).nth(4));
    assert_eq!(failing(&backend, &policy, 6).await, [1, 4]);
    faults.inject(Fault::refuse(ErrorKind::Timeout).always());
    assert_eq!(failing(&backend, &policy, 3).await, [1, 2, 3]);
    faults.clear();
    assert_eq!(failing(&backend, &policy, 3).await, [0; 0]);
}

#[tokio::test]
async fn chance_is_the_same_for_the_same_seed() {
    let mut runs = Vec::new();
    for seed in [7, 7, 8] {
        let (backend, faults, policy) = backend();
        faults.inject(Fault::refuse(ErrorKind::Overloaded).one_in(4, seed));
        runs.push(failing(&backend, &policy, 400).await);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
    assert!((60..140).contains(&runs[0].len()), "{} of 400 are not one in four", runs[0].len());
}

#[tokio::test]
async fn only_the_operation_it_is_for_counts() {
    let (backend, faults, policy) = backend();
    faults.inject(Fault::refuse(ErrorKind::ReadOnly).on(Operation::Reset).nth(2));
    assert_eq!(failing(&backend, &policy, 3).await, [0; 0]);
    assert_eq!(backend.reset(policy.name(), "key").await, Ok(true));
    let refused = InjectedError::Injected { kind: ErrorKind::ReadOnly, effect: Effect::NotApplied };
    assert_eq!(backend.reset(policy.name(), "key").await, Err(refused));
}

#[tokio::test]
async fn every_operation_can_fail_before_and_after_its_effect() {
    for operation in Operation::ALL {
        for (fault, forwarded) in
            [(Fault::refuse(ErrorKind::Bug), false), (Fault::lose_reply(ErrorKind::Bug), true)]
        {
            let (backend, faults, policy) = backend();
            faults.inject(fault.on(*operation));
            call_all(&backend, &policy).await;
            let failed: Vec<_> =
                faults.seen().into_iter().filter(|seen| seen.answer == Answer::Failed).collect();
            assert_eq!(failed.len(), 1, "{operation:?}");
            assert_eq!((failed[0].operation, failed[0].forwarded), (*operation, forwarded));
        }
    }
}

async fn call_all(backend: &Backend, policy: &Policy) {
    let action = Action::consume(policy, "key");
    let _ = backend.decide(&action).await;
    assert_eq!(backend.decide_many(&[action, action]).await.len(), 2);
    let _ = backend.reset(policy.name(), "key").await;
    let _ = backend.reset_policy(policy.name()).await;
    let _ = backend.ping().await;
    let (owner, ttl) = (Owner::from_u128(1), LockTtl::MIN);
    let _ = backend.acquire("lock", owner, ttl).await;
    let _ = backend.extend("lock", owner, ttl).await;
    let _ = backend.release("lock", owner).await;
}

#[tokio::test]
async fn what_was_asked_is_recorded() {
    let (backend, faults, policy) = backend();
    let actions = [Action::consume(&policy, "a").with_times(3), Action::peek(&policy, "b")];
    backend.decide_many(&actions).await.into_iter().for_each(|outcome| drop(outcome.unwrap()));
    backend.reset_policy(&PolicyName::new("other").unwrap()).await.unwrap();
    let subject = |policy: &str, key: Option<&str>, times| Subject {
        policy: policy.to_owned(),
        key: key.map(str::to_owned),
        times,
    };
    backend.release("name", Owner::from_u128(1)).await.unwrap();
    let seen = faults.seen();
    assert_eq!(seen.len(), 3);
    assert_eq!((seen[2].operation, seen[2].lock.as_deref()), (Operation::Release, Some("name")));
    assert_eq!((seen[0].operation, seen[0].answer), (Operation::DecideMany, Answer::Ok));
    assert_eq!(seen[0].subjects, [subject("faulty", Some("a"), 3), subject("faulty", Some("b"), 1)]);
    assert_eq!(seen[1].subjects, [subject("other", None, 1)]);
}

#[tokio::test]
async fn what_hangs_goes_on_when_it_is_released_or_ends_when_it_is_dropped() {
    let (backend, faults, policy) = backend();
    faults.inject(Fault::hang().nth(1));
    faults.inject(Fault::hang_after_effect().nth(2));
    let call = || {
        let (backend, policy) = (backend.clone(), policy.clone());
        tokio::spawn(async move { backend.decide(&Action::consume(&policy, "key")).await.map(drop) })
    };
    let (before, after) = (call(), call());
    faults.until_hanging(2).await;
    assert_eq!(faults.seen().iter().map(|seen| seen.forwarded).collect::<Vec<_>>(), [false, true]);
    before.abort();
    assert!(before.await.unwrap_err().is_cancelled());
    faults.release();
    after.await.unwrap().unwrap();
    let seen = faults.seen();
    assert_eq!((seen[0].answer, seen[1].answer, faults.hanging()), (Answer::Dropped, Answer::Ok, 0));
}

#[tokio::test]
async fn delays_pass_on_the_clock_that_was_given() {
    let clock = ManualClock::new(Timestamp::from_micros(1).unwrap());
    let (backend, faults, policy) = backend();
    let backend = backend.with_clock(clock.clone());
    faults.inject(Fault::delay(Duration::from_secs(9)));
    let call = tokio::spawn(async move { backend.decide(&Action::consume(&policy, "key")).await.map(drop) });
    clock.until_sleeping(1).await;
    assert_eq!(clock.until_next(), Some(Duration::from_secs(9)));
    clock.advance(Duration::from_secs(9));
    call.await.unwrap().unwrap();
}

#[test]
fn the_family_has_every_kind_with_both_effects_and_the_backends_own() {
    let samples = InjectedError::<InjectedError<Infallible>>::samples();
    assert_eq!(samples.len(), 4 * ErrorKind::ALL.len());
    for kind in ErrorKind::ALL {
        for effect in [Effect::NotApplied, Effect::Unknown] {
            let alike = samples.iter().filter(|sample| sample.kind() == *kind && sample.effect() == effect);
            assert_eq!(alike.count(), 2, "{kind:?} {effect:?}, injected and of the backend");
        }
    }
}
