//! Law 4 for what is served: however many processes hold units of a key, and whatever becomes of them, what they serve
//! could have been admitted by the bare store.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::*;
use throttle_core::kernel::{PolicyState, decide};
use throttle_core::{Action, Clock, Policy, Rule, StoreBackend, Timestamp};
use throttle_memory::{LeaseConfig, Leased};
use throttle_testkit::{Fault, Faults, FaultyBackend, ManualClock, ReferenceBackend};

const PROCESSES: usize = 4;

type Process = (Leased<FaultyBackend<ReferenceBackend>>, Faults<std::convert::Infallible>);

#[derive(Debug, Clone)]
enum Event {
    /// A process asks so often, at even gaps.
    Burst {
        process: usize,
        requests: u32,
        gap: Duration,
        cost: u32,
    },
    /// Another one asks while the answer to this one is under way.
    Late {
        process: usize,
        other: usize,
        requests: u32,
        gap: Duration,
        cost: u32,
    },
    /// Nobody asks.
    Idle(Duration),
    GiveBack(usize),
    /// Dropped, with what it holds, and started anew.
    Restart(usize),
    /// Somebody asks the store itself.
    Direct {
        cost: u32,
    },
}

struct World {
    clock: ManualClock,
    store: ReferenceBackend,
    policy: Policy,
    config: LeaseConfig,
    processes: Vec<Process>,
    /// What was served, and when.
    served: Vec<(Timestamp, u32)>,
    held: bool,
}

impl World {
    fn new(rules: Vec<Rule>, share: u32) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(1_700_006_400_000_000).unwrap());
        let config = LeaseConfig::default().share(share).unwrap().clock(clock.clone());
        let store = ReferenceBackend::with_clock(clock.clone());
        let policy = Policy::new("p", rules).unwrap();
        let mut world =
            Self { clock, store, policy, config, processes: Vec::new(), served: Vec::new(), held: false };
        world.processes = (0..PROCESSES).map(|_| world.start()).collect();
        world
    }

    fn start(&self) -> Process {
        let faulty = FaultyBackend::new(self.store.clone());
        let faults = faulty.faults();
        (Leased::with_config(faulty, self.config.clone()), faults)
    }

    fn ask(&mut self, process: usize, cost: u32) {
        let action = Action::consume(&self.policy, "key").with_cost(cost);
        let (leased, _) = &self.processes[process];
        let before = leased.asked();
        let outcome = pollster::block_on(leased.decide(&action)).unwrap();
        self.held |= outcome.granted() > 0 && leased.asked() == before;
        if outcome.granted() > 0 {
            self.served.push((self.clock.now(), cost));
        }
    }

    fn burst(&mut self, process: usize, requests: u32, gap: Duration, cost: u32) {
        for _ in 0..requests {
            self.ask(process, cost);
            self.clock.advance(gap);
        }
    }

    /// What is asked for someone who waits is admitted when the store says it was, however late the answer is.
    fn late(&mut self, (process, other): (usize, usize), requests: u32, gap: Duration, cost: u32) {
        let policy = self.policy.clone();
        let action = Action::consume(&policy, "key").with_cost(cost);
        let (leased, faults) = self.processes.swap_remove(process);
        self.processes.push(self.start());
        let outcome = {
            faults.inject(Fault::hang_after_effect());
            let mut call = Box::pin(leased.decide(&action));
            let mut context = Context::from_waker(Waker::noop());
            let first = call.as_mut().poll(&mut context);
            match first {
                Poll::Ready(outcome) => outcome.unwrap(),
                Poll::Pending => {
                    self.burst(other % (PROCESSES - 1), requests, gap, 1);
                    faults.release();
                    pollster::block_on(call).unwrap()
                }
            }
        };
        faults.clear();
        if outcome.granted() > 0 {
            self.served.push((outcome.now(), cost));
        }
        self.processes.pop();
        self.processes.push((leased, faults));
    }

    fn play(&mut self, event: &Event) {
        match *event {
            Event::Burst { process, requests, gap, cost } => self.burst(process, requests, gap, cost),
            Event::Late { process, other, requests, gap, cost } => {
                self.late((process, other), requests, gap, cost);
            }
            Event::Idle(span) => self.clock.advance(span),
            Event::GiveBack(process) => pollster::block_on(self.processes[process].0.give_back()),
            Event::Restart(process) => self.processes[process] = self.start(),
            Event::Direct { cost } => {
                let action = Action::consume(&self.policy, "key").with_cost(cost);
                if pollster::block_on(self.store.decide(&action)).unwrap().granted() > 0 {
                    self.served.push((self.clock.now(), cost));
                }
            }
        }
    }

    /// The bare store would have admitted all of it.
    fn obeys_law_4(&mut self) -> Result<(), TestCaseError> {
        self.served.sort_by_key(|(time, _)| *time);
        let mut bare = PolicyState::fresh(&self.policy);
        for (nth, (time, cost)) in self.served.iter().enumerate() {
            let action = Action::consume(&self.policy, "key").with_cost(*cost);
            let granted = decide(&action, *time, &mut bare).granted();
            prop_assert_eq!(granted, 1, "the {}th, of {} units at {:?}", nth, cost, time);
        }
        Ok(())
    }
}

fn rule() -> impl Strategy<Value = Rule> {
    let period = prop_oneof![
        3 => Just(1_000_000_u64), 2 => Just(60_000_000), 1 => Just(100_000), 1 => Just(3_600_000_000), 1 => 1_000..10_000_000_u64,
    ];
    let limit = prop_oneof![Just(100_u32), Just(1_000), Just(10_000), Just(99_991), 1..50_000_u32];
    (prop_oneof![3 => Just(true), 1 => Just(false)], limit, 0..4_u32, period).prop_map(
        |(is_bucket, limit, burst, period)| {
            let quota = throttle_core::Quota::per(limit, Duration::from_micros(period));
            match is_bucket {
                false => Rule::fixed_window(quota).unwrap(),
                true => Rule::gcra(
                    quota.burst([limit, limit / 3 + 1, 300, limit.saturating_mul(3)][burst as usize]),
                )
                .unwrap(),
            }
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let gap = prop_oneof![Just(0_u64), 1..300_u64, 300..3_000_u64].prop_map(Duration::from_micros);
    let cost = prop_oneof![5 => Just(1_u32), 1 => 1..6_u32];
    let process = 0..PROCESSES;
    let idle = prop_oneof![0..5_000_u64, 5_000..200_000_u64, 200_000..3_000_000_u64, Just(40_000_000)];
    prop_oneof![
        8 => (process.clone(), 1..300_u32, gap.clone(), cost.clone())
            .prop_map(|(process, requests, gap, cost)| Event::Burst { process, requests, gap, cost }),
        2 => (process.clone(), process.clone(), 1..100_u32, gap, cost.clone()).prop_map(
            |(process, other, requests, gap, cost)| Event::Late { process, other, requests, gap, cost }
        ),
        5 => idle.prop_map(|micros| Event::Idle(Duration::from_micros(micros))),
        2 => process.clone().prop_map(Event::GiveBack),
        1 => process.prop_map(Event::Restart),
        1 => cost.prop_map(|cost| Event::Direct { cost }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_several_processes_serve_the_bare_store_would_admit(
        rules in proptest::collection::vec(rule(), 1..3),
        events in proptest::collection::vec(event(), 1..40),
        share in prop_oneof![Just(1_u32), Just(2), Just(16)],
    ) {
        let mut world = World::new(rules, share);
        for event in &events {
            world.play(event);
        }
        world.obeys_law_4()?;
    }
}

/// The case that shows what decay is for: units are held, the bucket fills again, and then all is asked for.
#[test]
fn what_was_held_while_the_bucket_filled_is_not_served_on_top() {
    let mut world = World::new(vec![Rule::gcra("10000/s").unwrap()], 2);
    for process in 0..PROCESSES {
        world.burst(process, 100, Duration::ZERO, 1);
    }
    assert!(world.held, "something was served ahead");
    world.clock.advance(Duration::from_millis(90));
    for process in 0..PROCESSES {
        world.burst(process, 12_000, Duration::ZERO, 1);
    }
    world.obeys_law_4().unwrap();
}

/// What one gives back, another may have counted on when it took after.
#[test]
fn what_is_given_back_is_not_served_by_another_as_well() {
    for rate in (500..12_000_u32).step_by(250) {
        let mut world = World::new(vec![Rule::gcra(throttle_core::Quota::per_second(rate)).unwrap()], 2);
        world.burst(0, 100, Duration::ZERO, 1);
        world.burst(1, 100, Duration::ZERO, 1);
        world.play(&Event::GiveBack(0));
        world.clock.advance(Duration::from_millis(90));
        world.burst(1, 200, Duration::ZERO, 1);
        world.burst(2, rate + 500, Duration::ZERO, 1);
        world.obeys_law_4().unwrap();
    }
}
