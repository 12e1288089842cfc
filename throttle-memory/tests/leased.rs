//! What is taken ahead, how often the store is asked for it, and what becomes of it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use throttle_core::{
    Action, Clock, Decision, ErrorKind, Operation, Policy, RateLimiter, Rule, StoreBackend, Timestamp,
};
use throttle_memory::{LeaseConfig, Leased};
use throttle_testkit::{Fault, Faults, FaultyBackend, ManualClock, ReferenceBackend};

struct Scene {
    clock: ManualClock,
    store: ReferenceBackend,
    faults: Faults<Infallible>,
    leased: Leased<FaultyBackend<ReferenceBackend>>,
}

fn scene() -> Scene {
    let clock = ManualClock::new(Timestamp::from_micros(1_700_006_400_000_000).unwrap());
    let store = ReferenceBackend::with_clock(clock.clone());
    let faulty = FaultyBackend::new(store.clone());
    let faults = faulty.faults();
    let leased = Leased::with_config(faulty, LeaseConfig::default().clock(clock.clone()));
    Scene { clock, store, faults, leased }
}

impl Scene {
    fn ask(&self, policy: &Policy, cost: u32) -> Decision {
        let action = Action::consume(policy, "alice").with_cost(cost);
        Decision::of(&action, &pollster::block_on(self.leased.decide(&action)).unwrap(), 0)
    }

    /// Asks at even gaps; how many were admitted.
    fn steady(&self, policy: &Policy, requests: u32, gap: Duration) -> u32 {
        let admitted = (0..requests).filter(|_| {
            let is_allowed = self.ask(policy, 1).is_allowed();
            self.clock.advance(gap);
            is_allowed
        });
        u32::try_from(admitted.count()).unwrap()
    }

    /// What the store has left.
    fn left(&self, policy: &Policy) -> u32 {
        let look = Action::peek(policy, "alice").with_cost(0);
        Decision::of(&look, &pollster::block_on(self.store.decide(&look)).unwrap(), 0).remaining()
    }
}

fn policy(rules: &str) -> Policy {
    let rules: Vec<Rule> = rules.split(';').map(|rule| rule.parse().unwrap()).collect();
    Policy::new("api", rules).unwrap()
}

const TENTH: Duration = Duration::from_micros(100);

#[test]
fn ten_thousand_decisions_a_second_ask_at_most_a_hundred_times() {
    for rules in [
        "gcra 10000/s",
        "gcra 20000/s",
        "gcra 1000000/s",
        "gcra 1000000/h burst 200000",
        "fixed_window 10000/s",
        "fixed_window 1000000/m",
        "gcra 10000/s; fixed_window 1000000/m",
    ] {
        let (scene, policy) = (scene(), policy(rules));
        let admitted = scene.steady(&policy, 100_000, TENTH);
        let asked = scene.leased.asked();
        assert!(asked <= 1_000, "{rules}: asked {asked} times in 10 s");
        assert!(admitted >= 98_000, "{rules}: {admitted} of 100000");
    }
}

#[test]
fn a_key_over_its_limit_gets_what_it_may_and_asks_as_seldom() {
    for (rules, least) in
        [("gcra 1000/s", 10_450), ("fixed_window 1000/s", 9_500), ("gcra 5000/s burst 3000", 50_300)]
    {
        let (scene, policy) = (scene(), policy(rules));
        let admitted = scene.steady(&policy, 100_000, TENTH);
        let asked = scene.leased.asked();
        assert!(asked <= 1_000, "{rules}: asked {asked} times in 10 s");
        assert!(admitted >= least, "{rules}: {admitted}, of at least {least}");
    }
}

#[test]
fn a_quiet_key_is_asked_for_as_if_bare() {
    let (scene, bare) = (scene(), ReferenceBackend::default());
    let policy = policy("gcra 5 per 10s; fixed_window 7/m");
    for second in [0, 0, 1, 0, 0, 0, 3, 1, 0, 20, 0, 1, 0, 0, 0, 2, 40, 0] {
        scene.clock.advance(Duration::from_secs(second));
        let action = Action::consume(&policy, "alice").at(Some(scene.clock.now()));
        let expected = pollster::block_on(bare.decide(&action)).unwrap();
        assert_eq!(scene.ask(&policy, 1), Decision::of(&action, &expected, 0));
    }
}

#[test]
fn what_is_left_is_told_as_if_the_store_had_been_asked() {
    let (scene, policy) = (scene(), policy("fixed_window 100000/d"));
    for served in 1..=5_000 {
        let decision = scene.ask(&policy, 1);
        assert!(decision.is_allowed());
        assert_eq!(decision.remaining(), 100_000 - served);
        scene.clock.advance(TENTH);
    }
    assert!(scene.leased.served() > 4_900 && scene.leased.asked() < 60);
}

#[test]
fn what_nobody_asks_for_any_more_goes_back() {
    for rules in ["gcra 20000/h", "leaky_bucket 20000/h burst 20000", "gcra 20000/h; gcra 30000/d"] {
        let (scene, policy) = (scene(), policy(rules));
        let unused = scene.left(&policy);
        let served = scene.steady(&policy, 3_010, TENTH);
        let before = scene.left(&policy);
        pollster::block_on(scene.leased.give_back());
        let after = scene.left(&policy);
        assert!(before < after, "{rules}: {before} were left, and something was held");
        let flown_back = 2;
        assert!(
            (unused - served..=unused - served + flown_back).contains(&after),
            "{rules}: {after} are left"
        );
    }
}

/// The refund might come in the next window.
#[test]
fn what_is_left_of_a_window_lapses_with_it() {
    for rules in ["fixed_window 20000/h", "gcra 20000/h; fixed_window 30000/d"] {
        let (scene, policy) = (scene(), policy(rules));
        let served = scene.steady(&policy, 3_010, TENTH);
        let (left, calls) = (scene.left(&policy), scene.faults.seen().len());
        assert!(left < 20_000 - served, "{rules}: something is held");
        pollster::block_on(scene.leased.give_back());
        drop(scene.leased);
        assert_eq!(scene.faults.seen().len(), calls, "{rules}: nothing is asked for it");
        let look = Action::peek(&policy, "alice").with_cost(0);
        let after = Decision::of(&look, &pollster::block_on(scene.store.decide(&look)).unwrap(), 0);
        assert_eq!(after.remaining(), left, "{rules}");
    }
}

/// What comes back within a minute might have come back, and been taken by others, before the refund is carried out.
#[test]
fn what_flows_back_within_a_minute_is_not_given_back() {
    let (scene, policy) = (scene(), policy("gcra 20000/h"));
    scene.steady(&policy, 3_010, TENTH);
    scene.clock.advance(Duration::from_secs(300));
    // Some 1,390 units are owed now, and 1,060 in a minute; without those 50, others might count on 1,250.
    let left = scene.left(&policy);
    pollster::block_on(scene.leased.give_back());
    assert_eq!(scene.left(&policy), left);
}

/// Nobody calls any more: the burst was all there was.
#[tokio::test]
async fn a_process_that_goes_idle_gives_back() {
    let (scene, policy) = (scene(), policy("gcra 20000/h"));
    let served = scene.steady(&policy, 3_010, TENTH);
    assert!(scene.left(&policy) < 20_000 - served, "something is held");
    let asked = scene.leased.asked();
    for _ in 0..5 {
        // Lets the task that looks run, which waits on this clock.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        scene.clock.advance(Duration::from_millis(60));
    }
    let flown_back = 4;
    let left = scene.left(&policy);
    assert!((20_000 - served..=20_000 - served + flown_back).contains(&left), "{left} are left");
    assert_eq!(scene.leased.asked(), asked);
}

#[test]
fn an_idle_key_and_a_dropped_store_give_back() {
    let policy = policy("gcra 100000/d");
    let idle = scene();
    let served = idle.steady(&policy, 10_010, TENTH);
    let elsewhere = Policy::new("other", policy.rules().iter().copied()).unwrap();
    for _ in 0..200 {
        idle.clock.advance(Duration::from_millis(10));
        let _ = idle.ask(&elsewhere, 1);
    }
    // 200 * 10 ms, and a second before them.
    let flown_back = 4;
    assert!((100_000 - served..=100_000 - served + flown_back).contains(&idle.left(&policy)));

    let Scene { clock, store, faults, leased } = scene();
    let dropped = Scene { clock, store: store.clone(), faults, leased };
    let served = dropped.steady(&policy, 10_010, TENTH);
    drop(dropped);
    let look =
        Action::peek(&policy, "alice").with_cost(0).at(Timestamp::from_micros(1_700_006_401_000_000).ok());
    let left = Decision::of(&look, &pollster::block_on(store.decide(&look)).unwrap(), 0).remaining();
    assert!((100_000 - served..=100_000 - served + flown_back).contains(&left), "{left}");
}

#[test]
fn what_others_count_on_stays() {
    let (scene, policy) = (scene(), policy("gcra 100000/h"));
    scene.steady(&policy, 1_010, TENTH);
    pollster::block_on(scene.store.decide(&Action::consume(&policy, "alice"))).unwrap();
    let left = scene.left(&policy);
    pollster::block_on(scene.leased.give_back());
    assert_eq!(scene.left(&policy), left, "somebody has taken after us");
}

#[test]
fn what_is_held_is_lost_with_a_refund_or_a_reset() {
    let policy = policy("gcra 100000/h");
    for change in 0..3 {
        let scene = scene();
        scene.steady(&policy, 1_010, TENTH);
        let asked = scene.leased.asked();
        assert!(scene.ask(&policy, 1).is_allowed() && scene.leased.asked() == asked, "from what is held");
        match change {
            0 => drop(pollster::block_on(scene.leased.decide(&Action::refund(&policy, "alice")))),
            1 => drop(pollster::block_on(scene.leased.reset(policy.name(), "alice"))),
            _ => drop(pollster::block_on(scene.leased.reset_policy(policy.name()))),
        }
        assert!(scene.ask(&policy, 1).is_allowed());
        assert_eq!(scene.leased.asked(), asked + 1, "change {change}");
    }
}

#[test]
fn other_rules_under_the_same_name_take_for_themselves() {
    let (scene, wide, narrow) = (scene(), policy("gcra 10000/m"), policy("gcra 10/m"));
    scene.steady(&wide, 9_500, TENTH);
    let asked = scene.leased.asked();
    assert!(!scene.ask(&narrow, 1).is_allowed(), "the store says so, whatever was held");
    assert_eq!(scene.leased.asked(), asked + 1);
}

#[test]
fn a_batch_is_served_from_what_is_held_or_passed_on() {
    let (scene, policy) = (scene(), policy("gcra 100000/h"));
    scene.steady(&policy, 1_010, TENTH);
    let calls = scene.faults.seen().len();
    let one = Action::consume(&policy, "alice");
    let answers = pollster::block_on(scene.leased.decide_many(&[one, one.with_times(3)]));
    assert_eq!(answers.iter().map(|answer| answer.as_ref().unwrap().granted()).sum::<u32>(), 4);
    assert_eq!(scene.faults.seen().len(), calls);
    let answers = pollster::block_on(scene.leased.decide_many(&[one.with_times(5_000), one]));
    assert_eq!(answers.iter().map(|answer| answer.as_ref().unwrap().granted()).sum::<u32>(), 5_001);
    assert_eq!(scene.faults.seen().len(), calls + 1, "in one call, in order");
}

#[test]
fn an_error_goes_to_everybody_who_waits() {
    let (scene, policy) = (scene(), policy("gcra 100000/h"));
    let limiter = RateLimiter::new(policy, scene.leased);
    scene.faults.inject(Fault::hang().on(Operation::Decide));
    scene.faults.inject(Fault::lose_reply(ErrorKind::Timeout).on(Operation::Decide));
    let mut calls: Vec<_> = (0..5).map(|_| Box::pin(limiter.check("alice"))).collect();
    let mut context = Context::from_waker(Waker::noop());
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    scene.faults.release();
    for call in calls {
        assert_eq!(pollster::block_on(call).unwrap_err().kind(), ErrorKind::Timeout);
    }
    assert_eq!(scene.faults.seen().len(), 1);
    assert!(pollster::block_on(limiter.check("alice")).unwrap().is_allowed());
}

/// B looks at the error, A does not for a while: nobody else is told of it.
#[test]
fn an_error_is_not_told_to_those_who_come_after_it() {
    let (scene, policy) = (scene(), policy("gcra 100000/h"));
    let limiter = RateLimiter::new(policy, scene.leased);
    scene.faults.inject(Fault::hang().on(Operation::Decide));
    scene.faults.inject(Fault::refuse(ErrorKind::Connection).on(Operation::Decide));
    let mut context = Context::from_waker(Waker::noop());
    let mut a = Box::pin(limiter.check("alice"));
    let mut b = Box::pin(limiter.check("alice"));
    assert!(a.as_mut().poll(&mut context).is_pending() && b.as_mut().poll(&mut context).is_pending());
    scene.faults.release();
    assert_eq!(pollster::block_on(b).unwrap_err().kind(), ErrorKind::Connection);
    let calls = scene.faults.seen().len();
    assert!(pollster::block_on(limiter.check("alice")).unwrap().is_allowed(), "the store is back, and asked");
    assert_eq!(scene.faults.seen().len(), calls + 1);
    assert_eq!(pollster::block_on(a).unwrap_err().kind(), ErrorKind::Connection, "it was asked for A");
}

/// A store's clock that panics when it is told to.
#[derive(Debug, Clone)]
struct Trap(ManualClock, Arc<AtomicBool>);

impl Clock for Trap {
    fn now(&self) -> Timestamp {
        assert!(!self.1.swap(false, Ordering::SeqCst), "the trap is sprung");
        self.0.now()
    }

    fn sleep(&self, span: Duration) -> throttle_core::Sleep {
        self.0.sleep(span)
    }
}

#[test]
fn a_panic_of_the_store_is_told_to_all_who_wait_and_to_nobody_after() {
    let (clock, trap) = (scene().clock, Arc::new(AtomicBool::new(false)));
    let faulty = FaultyBackend::new(ReferenceBackend::with_clock(Trap(clock.clone(), Arc::clone(&trap))));
    let faults = faulty.faults();
    let leased = Leased::with_config(faulty, LeaseConfig::default().clock(clock));
    let limiter = RateLimiter::new(policy("gcra 100000/h"), leased);
    faults.inject(Fault::hang().on(Operation::Decide));
    let mut context = Context::from_waker(Waker::noop());
    let mut a = Box::pin(limiter.check("alice"));
    let mut b = Box::pin(limiter.check("alice"));
    assert!(a.as_mut().poll(&mut context).is_pending() && b.as_mut().poll(&mut context).is_pending());
    trap.store(true, Ordering::SeqCst);
    faults.release();
    let panics = |call| catch_unwind(AssertUnwindSafe(|| pollster::block_on(call))).is_err();
    assert!(panics(b));
    assert!(pollster::block_on(limiter.check("alice")).unwrap().is_allowed());
    assert!(panics(a));
}

#[test]
fn whoever_waits_goes_on_when_others_leave() {
    let (scene, policy) = (scene(), policy("gcra 100000/h"));
    let limiter = RateLimiter::new(policy, scene.leased);
    scene.faults.inject(Fault::hang_after_effect().on(Operation::Decide));
    let mut context = Context::from_waker(Waker::noop());
    let mut first = Box::pin(limiter.check("alice"));
    let mut second = Box::pin(limiter.check("alice"));
    assert!(
        first.as_mut().poll(&mut context).is_pending() && second.as_mut().poll(&mut context).is_pending()
    );
    drop(first);
    scene.faults.release();
    assert!(pollster::block_on(second).unwrap().is_allowed());
    // All leave: the next one asks anew.
    scene.faults.inject(Fault::hang().on(Operation::Decide));
    scene.clock.advance(Duration::from_secs(1));
    let mut last = Box::pin(limiter.check("alice"));
    assert!(last.as_mut().poll(&mut context).is_pending());
    drop(last);
    assert!(pollster::block_on(limiter.check("alice")).unwrap().is_allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_get_all_there_is_and_no_more() {
    let policy = policy("token_bucket 5000/d");
    let limiter = RateLimiter::new(policy, Leased::new(ReferenceBackend::default()));
    let callers: Vec<_> = (0..64)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..120 {
                    admitted += u32::from(limiter.check("alice").await.unwrap().is_allowed());
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for caller in callers {
        admitted += caller.await.unwrap();
    }
    assert_eq!(admitted, 5_000);
}

#[test]
fn debug_tells_what_it_is() {
    let leased = Arc::new(Leased::new(ReferenceBackend::default()));
    let text = format!("{leased:?}");
    assert!(text.contains("Leased") && text.contains("asked"), "{text}");
}
