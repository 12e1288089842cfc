//! Short random histories with faults, recorded and held to what a lock is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use throttle_core::lock::{Acquisition, LockTtl, Owner};
use throttle_core::{Effect, ErrorKind, Guarded, LockBackend, LockStore, StoreUnavailableError};

use super::super::check::{Checked, ensure};
use super::super::group::{Case, Group, properties};
use super::super::lab::Lab;
use super::super::variant::Variant;
use super::linear::{Answer, Asked, Event, Moment, Times, is_linearizable};
use super::subject::{LONG, Stopwatch, Subject, ttl};
use crate::{Fault, FaultyBackend};

/// How many callers there are, and how many owners they share.
const CALLERS: usize = 3;
const OWNERS: usize = 3;

/// How many calls each of them makes: all together fit the bits of a search.
const CALLS_EACH: usize = 8;

pub(super) fn cases<B: LockBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    properties!(Group::new(variant, "locks").measuring_time();
        any_history_is_that_of_a_lock,
        any_history_with_expiry_is_that_of_a_lock,
    )
    .into_cases()
}

/// What one caller does next.
#[derive(Debug, Clone, Copy)]
enum Step {
    Ask(Asked, usize),
    /// Lets so many sixteenths of the time to live pass.
    Pass(u32),
}

/// What callers do on one lock, and from which seed faults strike them.
#[derive(Debug, Clone)]
struct Plan {
    callers: Vec<Vec<Step>>,
    faults: u64,
}

fn plan(pauses: bool) -> impl Strategy<Value = Plan> {
    let asked = prop_oneof![4 => Just(Asked::Acquire), 1 => Just(Asked::Extend), 3 => Just(Asked::Release)];
    let ask = (asked, 0..OWNERS).prop_map(|(asked, owner)| Step::Ask(asked, owner));
    let step = prop_oneof![5 => ask, u32::from(pauses) => (1..24_u32).prop_map(Step::Pass)];
    let callers = vec(vec(step, 1..=CALLS_EACH), CALLERS);
    (callers, any::<u64>()).prop_map(|(callers, faults)| Plan { callers, faults })
}

fn any_history_is_that_of_a_lock<B: LockBackend>(lab: &Lab<B>) -> Checked {
    lab.forall(&plan(false), async |plan| follow(lab, &plan, LONG).await)
}

/// Eight at once, for the waiting; one by one where time passes for all of them.
fn any_history_with_expiry_is_that_of_a_lock<B: LockBackend>(lab: &Lab<B>) -> Checked {
    lab.forall_of(lab.cases().div_ceil(8), &vec(plan(true), 8), async |plans: Vec<Plan>| {
        let at_once = if lab.passes_time_by_hand() { 1 } else { plans.len() };
        for plans in plans.chunks(at_once) {
            let runs = plans.iter().map(|plan| follow(lab, plan, lab.lock_ttl()));
            join_all(runs).await.into_iter().collect::<Checked>()?;
        }
        Ok(())
    })
}

async fn follow<B: LockBackend>(lab: &Lab<B>, plan: &Plan, span: Duration) -> Checked {
    let run = Run::new(lab, plan, ttl(span)?);
    join_all(plan.callers.iter().map(|steps| run.steps(steps))).await;
    let (history, times) = (run.history.into_inner(), Times { ttl: span, lag: lab.lock_lag() });
    ensure(is_linearizable(&history, times), || {
        let lines: Vec<_> = history.iter().map(|event| format!("  {event:?}")).collect();
        format!("no order of these calls explains their answers:\n{}", lines.join("\n"))
    })
}

/// A plan under way.
struct Run<B: LockBackend> {
    subject: Subject<B>,
    store: Guarded<FaultyBackend<Arc<B>>>,
    owners: [Owner; OWNERS],
    ttl: LockTtl,
    watch: Stopwatch,
    passed: Mutex<Duration>,
    moments: Mutex<usize>,
    history: Mutex<Vec<Event>>,
}

impl<B: LockBackend> Run<B> {
    fn new(lab: &Lab<B>, plan: &Plan, ttl: LockTtl) -> Self {
        let faulty = FaultyBackend::new(lab.backend());
        faulty.faults().inject(Fault::refuse(ErrorKind::Connection).one_in(8, plan.faults));
        faulty.faults().inject(Fault::lose_reply(ErrorKind::Timeout).one_in(8, plan.faults.rotate_left(32)));
        Self {
            subject: Subject::new(lab),
            store: Guarded::new(faulty),
            owners: std::array::from_fn(|_| Owner::random()),
            ttl,
            watch: Stopwatch::start(lab),
            passed: Mutex::default(),
            moments: Mutex::default(),
            history: Mutex::default(),
        }
    }

    async fn steps(&self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Ask(asked, owner) => self.ask(*asked, *owner).await,
                Step::Pass(sixteenths) => {
                    let span = self.ttl.as_duration() / 16 * *sixteenths;
                    self.subject.lab.pass(span).await;
                    *self.passed.lock() += span;
                }
            }
            tokio::task::yield_now().await;
        }
    }

    async fn ask(&self, asked: Asked, owner: usize) {
        let owner = self.owners.get(owner).copied().unwrap_or_else(Owner::random);
        let called = self.moment();
        let answer = self.answer(asked, owner).await;
        let returned = Some(self.moment());
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if error.effect() == Effect::NotApplied => return,
            Err(_) => Answer::Missing,
        };
        let returned = returned.filter(|_| answer != Answer::Missing);
        self.history.lock().push(Event { owner, asked, answer, called, returned });
    }

    async fn answer(&self, asked: Asked, owner: Owner) -> Result<Answer, StoreUnavailableError> {
        let name = &self.subject.name;
        Ok(match asked {
            Asked::Acquire => match self.store.acquire(name, owner, self.ttl).await? {
                Acquisition::Held(fence) => Answer::Held(fence),
                Acquisition::Busy { .. } => Answer::Busy,
            },
            Asked::Extend => Answer::Holder(self.store.extend(name, owner, self.ttl).await?),
            Asked::Release => Answer::Holder(self.store.release(name, owner).await?),
        })
    }

    fn moment(&self) -> Moment {
        let (at_least, at_most) = self.watch.elapsed(*self.passed.lock());
        let mut moments = self.moments.lock();
        *moments += 1;
        Moment { order: *moments, at_least, at_most }
    }
}
