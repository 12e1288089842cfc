//! What is remembered of denials, and what is not.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::*;
use throttle_core::{
    Action, Clock, Decision, ErrorKind, Operation, Policy, RateLimiter, Rule, StoreBackend, Timestamp,
};
use throttle_memory::DenyCache;
use throttle_testkit::strategies::{self, Gap, Step};
use throttle_testkit::{Fault, Faults, FaultyBackend, ManualClock, ReferenceBackend};

const SECOND: Duration = Duration::from_secs(1);

/// A store, what stands in front of it, and the clock of both.
struct Scene {
    clock: ManualClock,
    store: ReferenceBackend,
    faults: Faults<std::convert::Infallible>,
    cache: DenyCache<FaultyBackend<ReferenceBackend>>,
}

fn scene() -> Scene {
    let clock = ManualClock::new(Timestamp::from_micros(1_700_006_400_000_000).unwrap());
    let store = ReferenceBackend::with_clock(clock.clone());
    let faulty = FaultyBackend::new(store.clone());
    let faults = faulty.faults();
    let cache = DenyCache::new(faulty).with_clock(clock.clone()).with_max_stale(Duration::from_secs(3_600));
    Scene { clock, store, faults, cache }
}

impl Scene {
    fn ask(&self, action: &Action<'_>) -> Decision {
        Decision::of(action, &pollster::block_on(self.cache.decide(action)).unwrap(), 0)
    }

    fn asked(&self) -> usize {
        self.faults.seen().len()
    }
}

fn policy(rules: &str) -> Policy {
    let rules: Vec<Rule> = rules.split(';').map(|rule| rule.parse().unwrap()).collect();
    Policy::new("api", rules).unwrap()
}

#[test]
fn a_denial_is_asked_once_until_it_ends() {
    for rules in ["gcra 2/s", "fixed_window 2/s", "sliding_window_log 2/s", "gcra 2/s; fixed_window 9/m"] {
        let (scene, policy) = (scene(), policy(rules));
        let action = Action::consume(&policy, "alice");
        for _ in 0..2 {
            assert!(scene.ask(&action).is_allowed());
        }
        let first = scene.ask(&action);
        let retry_after = first.retry_after().unwrap();
        scene.clock.advance(retry_after / 2);
        let later = scene.ask(&action);
        assert_eq!(later.retry_after(), Some(retry_after - retry_after / 2), "{rules}: exact at any time");
        assert_eq!((scene.asked(), scene.cache.hits()), (3, 1), "{rules}");
        scene.clock.advance(retry_after - retry_after / 2);
        assert!(scene.ask(&action).is_allowed(), "{rules}: asked as soon as it may be allowed");
    }
}

#[test]
fn a_larger_cost_is_known_and_a_smaller_one_is_asked() {
    let (scene, policy) = (scene(), policy("gcra 10/h"));
    let of = |cost| Action::consume(&policy, "alice").with_cost(cost);
    assert!(scene.ask(&of(7)).is_allowed());
    assert!(!scene.ask(&of(5)).is_allowed());
    assert!(!scene.ask(&of(6)).is_allowed());
    assert!(!scene.ask(&of(5).with_times(4)).is_allowed());
    assert!(!scene.ask(&Action::peek(&policy, "alice").with_cost(4)).is_allowed());
    assert_eq!((scene.asked(), scene.cache.hits()), (2, 3));
    assert!(scene.ask(&of(2)).is_allowed());
    let denied = scene.ask(&of(5));
    assert_eq!((denied.remaining(), scene.asked()), (1, 4), "what was granted since is seen");
}

#[test]
fn a_partial_grant_is_a_denial_too() {
    let (scene, policy) = (scene(), policy("sliding_window_log 5/h"));
    let action = Action::consume(&policy, "alice");
    pollster::block_on(scene.cache.decide(&action.with_times(9))).unwrap();
    assert!(!scene.ask(&action).is_allowed());
    assert_eq!((scene.asked(), scene.cache.hits()), (1, 1));
}

#[test]
fn other_rules_under_the_same_name_are_asked() {
    let (scene, narrow, wide) = (scene(), policy("gcra 1/h"), policy("gcra 1/h burst 5"));
    assert!(scene.ask(&Action::consume(&narrow, "alice")).is_allowed());
    assert!(!scene.ask(&Action::consume(&narrow, "alice")).is_allowed());
    assert!(scene.ask(&Action::consume(&wide, "alice")).is_allowed());
}

#[test]
fn refunds_and_resets_through_here_are_seen() {
    let policy = policy("gcra 1/h");
    let action = Action::consume(&policy, "alice");
    let refund = Action::refund(&policy, "alice");
    for change in 0..3 {
        let scene = scene();
        assert!(scene.ask(&action).is_allowed() && !scene.ask(&action).is_allowed());
        match change {
            0 => drop(scene.ask(&refund)),
            1 => drop(pollster::block_on(scene.cache.reset(policy.name(), "alice"))),
            _ => drop(pollster::block_on(scene.cache.reset_policy(policy.name()))),
        }
        assert!(scene.ask(&action).is_allowed(), "change {change}");
    }
}

#[test]
fn a_refund_that_failed_or_was_dropped_may_have_been_made() {
    let policy = policy("gcra 1/h");
    let (action, refund) = (Action::consume(&policy, "alice"), Action::refund(&policy, "alice"));
    for fault in [Fault::lose_reply(ErrorKind::Timeout), Fault::hang_after_effect()] {
        let scene = scene();
        assert!(scene.ask(&action).is_allowed() && !scene.ask(&action).is_allowed());
        scene.faults.inject(fault);
        {
            let mut call = Box::pin(scene.cache.decide(&refund));
            let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        assert!(scene.ask(&action).is_allowed());
    }
}

#[test]
fn a_denial_that_a_refund_has_overtaken_is_not_remembered() {
    let (scene, policy) = (scene(), policy("gcra 1/h"));
    let (action, refund) = (Action::consume(&policy, "alice"), Action::refund(&policy, "alice"));
    assert!(scene.ask(&action).is_allowed());
    scene.faults.inject(Fault::hang_after_effect().on(Operation::Decide));
    let mut late = Box::pin(scene.cache.decide(&action));
    let mut context = Context::from_waker(Waker::noop());
    assert!(late.as_mut().poll(&mut context).is_pending());
    let _ = scene.ask(&refund);
    scene.faults.release();
    match late.as_mut().poll(&mut context) {
        Poll::Ready(Ok(outcome)) => assert_eq!(outcome.granted(), 0, "decided before the refund"),
        other => panic!("{other:?}"),
    }
    assert!(scene.ask(&action).is_allowed(), "decided after it");
}

#[test]
fn what_others_give_back_is_seen_in_a_while() {
    let (scene, policy) = (scene(), policy("gcra 1/h"));
    let cache = DenyCache::new(scene.store.clone()).with_clock(scene.clock.clone()).with_max_stale(SECOND);
    let limiter = RateLimiter::new(policy.clone(), cache).blocking();
    assert!(limiter.check("alice").unwrap().is_allowed());
    assert!(!limiter.check("alice").unwrap().is_allowed());
    pollster::block_on(scene.store.reset(policy.name(), "alice")).unwrap();
    assert!(!limiter.check("alice").unwrap().is_allowed(), "not seen here yet");
    scene.clock.advance(SECOND);
    assert!(limiter.check("alice").unwrap().is_allowed());
}

#[test]
fn an_injected_time_says_nothing_about_the_store_s_own() {
    let (scene, policy) = (scene(), policy("gcra 1/h"));
    let long_ago = Timestamp::from_micros(1_600_000_000_000_000).ok();
    let action = Action::consume(&policy, "alice");
    assert!(scene.ask(&action.at(long_ago)).is_allowed());
    assert!(!scene.ask(&action.at(long_ago)).is_allowed());
    assert!(scene.ask(&action).is_allowed());
    assert!(!scene.ask(&action.at(long_ago)).is_allowed(), "nor the other way round");
}

#[test]
fn in_a_batch_what_comes_after_a_change_sees_it() {
    let (scene, policy) = (scene(), policy("gcra 10/h"));
    let of = |cost| Action::consume(&policy, "alice").with_cost(cost);
    assert!(scene.ask(&of(7)).is_allowed() && !scene.ask(&of(5)).is_allowed());
    let batch = [of(5), of(3), of(4), Action::refund(&policy, "alice").with_cost(9), of(5)];
    let answers = pollster::block_on(scene.cache.decide_many(&batch));
    let granted: Vec<_> = answers.iter().map(|answer| answer.as_ref().unwrap().granted()).collect();
    assert_eq!(granted, [0, 1, 0, 1, 1]);
    assert_eq!(scene.cache.hits(), 1);
}

/// The time of a story that never steps back: a store's own.
fn advance(clock: &ManualClock, step: &Step, policy: &Policy, last: &Option<Decision>) {
    let period = |rule: usize| policy.rules()[rule % policy.rules().len()].quota().period();
    let of = |micros: i64| Duration::from_micros(micros.max(0).unsigned_abs());
    clock.advance(match step.gap {
        Gap::By(micros) => of(micros),
        Gap::Interval { rule, rest } => period(rule) / 7 + of(rest),
        Gap::Periods { rule, periods, rest } => {
            period(rule) * u32::try_from(periods.max(0)).unwrap() + of(rest)
        }
        Gap::Retry(rest) => last.as_ref().and_then(Decision::retry_after).unwrap_or_default() + of(rest),
        Gap::Reset(rest) => last.as_ref().map(Decision::reset_after).unwrap_or_default() + of(rest),
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// At the store's own time, with one cache in front of it, every answer is the store's, bit for bit.
    #[test]
    fn every_answer_is_that_of_the_bare_store(story in strategies::forward_story_of(strategies::rules(), 40)) {
        let scene = scene();
        let bare = ReferenceBackend::with_clock(scene.clock.clone());
        let policy = Policy::new("p", story.rules.clone()).unwrap();
        let mut last = None;
        for step in &story.steps {
            advance(&scene.clock, step, &policy, &last);
            let action = step.action(&policy, "key", scene.clock.now()).at(None);
            let expected = pollster::block_on(bare.decide(&action)).unwrap();
            let expected = Decision::of(&action, &expected, 0);
            prop_assert_eq!(scene.ask(&action), expected.clone());
            last = Some(expected);
        }
    }

    /// With several caches in front of one store: what one of them denies, the store would deny; what they admit, the
    /// store has admitted, so law 4 holds as it does for the store.
    #[test]
    fn several_caches_deny_only_what_the_store_denies(
        story in strategies::forward_story_of(strategies::rules(), 40), turns in proptest::collection::vec(0..3_usize, 40),
    ) {
        let clock = ManualClock::new(Timestamp::from_micros(1_700_006_400_000_000).unwrap());
        let store = ReferenceBackend::with_clock(clock.clone());
        let caches = [(); 3].map(|()| DenyCache::new(store.clone()).with_clock(clock.clone()));
        let policy = Policy::new("p", story.rules.clone()).unwrap();
        let mut last = None;
        for (step, turn) in story.steps.iter().zip(turns) {
            advance(&clock, step, &policy, &last);
            let action = step.action(&policy, "key", clock.now()).at(None).with_times(1);
            if action.operand() == throttle_core::Operand::Refund {
                continue;
            }
            let peek = Action::peek(&policy, "key").with_cost(step.cost);
            let peek = peek.with_max_wait(Duration::from_micros(step.max_wait_micros));
            let would = pollster::block_on(store.decide(&peek)).unwrap().granted();
            let outcome = pollster::block_on(caches[turn].decide(&action)).unwrap();
            prop_assert_eq!(outcome.granted(), would);
            last = Some(Decision::of(&action, &outcome, 0));
        }
    }
}
