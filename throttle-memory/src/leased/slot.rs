//! [`Slot`]: what is known of one key, and who waits for more.

use futures_util::future::{BoxFuture, Shared, WeakShared};
use throttle_core::{Action, Outcome, Policy, Take, TakeOutcome, Timestamp};

use super::portion::Portion;
use super::terms::{Demand, Pace, Terms};
use crate::denial::Denial;

/// A request for more, driven by whoever waits for it; gone when nobody does.
pub(super) type Flight<E> = Shared<Bringing<E>>;

type Bringing<E> = BoxFuture<'static, Result<(), Failure<E>>>;

/// Why nothing was brought.
#[derive(Debug, Clone)]
pub(super) enum Failure<E> {
    Store(E),
    /// The backend did, after it charged or before.
    Panicked,
}

/// More than this are not kept: the oldest, which have next to nothing in them, go.
const MAX_PORTIONS: usize = 4;

/// One key.
pub(super) struct Slot<E> {
    /// No two slots have the same: what was asked for a slot that is gone finds no other.
    id: u64,
    policy: Policy,
    /// What was brought, the oldest first. Nearly always, the last is the only one with anything in it.
    portions: Vec<Portion>,
    /// The last answer, if it denied something.
    denial: Option<Denial>,
    flight: Option<WeakShared<Bringing<E>>>,
    /// How many callers have come to wait.
    arrivals: u64,
    /// Units that callers wait for.
    waiting: u32,
    demand: Demand,
    pace: Pace,
    used: Timestamp,
}

/// A caller's place in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    slot: u64,
    arrival: u64,
}

/// What is to be asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub(super) slot: u64,
    pub(super) cost: u32,
    pub(super) times: u32,
    /// Units that callers wait for now, and the last of them.
    pub(super) due: (u32, u64),
}

impl<E: Clone> Slot<E> {
    pub(super) fn new(id: u64, policy: &Policy, now: Timestamp) -> Self {
        Self {
            id,
            policy: policy.clone(),
            portions: Vec::new(),
            denial: None,
            flight: None,
            arrivals: 0,
            waiting: 0,
            demand: Demand::new(now),
            pace: Pace::default(),
            used: now,
        }
    }

    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(super) const fn used(&self) -> Timestamp {
        self.used
    }

    /// Whether anybody waits, or anything is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.waiting > 0 || self.flight().is_some()
    }

    /// What is under way. What has ended, however, is of no use to whoever comes now, though some who waited for it may
    /// still have to look at it.
    pub(super) fn flight(&self) -> Option<Flight<E>> {
        self.flight.as_ref().and_then(WeakShared::upgrade).filter(|flight| flight.peek().is_none())
    }

    pub(super) fn set_flight(&mut self, flight: &Flight<E>) {
        self.flight = flight.downgrade();
    }

    /// The last of what was brought, to be given back. Older ones lapse: others may have taken after them.
    pub(super) fn into_portion(mut self) -> Option<Portion> {
        self.portions.pop()
    }

    /// The answer to `action`, if that is known here. `place` is that of a caller who has waited.
    pub(super) fn answer(
        &mut self,
        action: &Action<'_>,
        units: u32,
        place: Option<Place>,
        now: Timestamp,
        terms: &Terms,
    ) -> Option<Outcome> {
        self.used = now;
        let arrival = place.filter(|place| self.has(*place)).map(|place| place.arrival);
        let mut portions = self.portions.iter_mut();
        let due = arrival
            .and_then(|arrival| portions.find_map(|portion| portion.serve_due(action, units, arrival)));
        let mut portions = self.portions.iter_mut();
        let mut held = || portions.find_map(|portion| portion.serve(action, units, now, terms.lifetime()));
        if let Some(outcome) = due.or_else(&mut held) {
            return Some(outcome);
        }
        let denial = self.denial.as_ref()?;
        if let Some(outcome) = denial.answer(action, || now) {
            return Some(outcome);
        }
        let is_young = denial.age(now).is_some_and(|age| age < terms.lifetime());
        let must_wait = is_young && !self.pace.may_ask(now, terms.pause(&self.policy));
        if must_wait { denial.old_answer(action) } else { None }
    }

    /// The same for one request to one bucket, from a caller who has not waited.
    pub(super) fn answer_take(
        &mut self,
        take: &Take<'_>,
        now: Timestamp,
        terms: &Terms,
    ) -> Option<TakeOutcome> {
        self.used = now;
        let mut portions = self.portions.iter_mut();
        let served = portions.find_map(|portion| portion.serve_take(take, now, terms.lifetime()));
        let known = served.or_else(|| self.denial.as_ref()?.answer_take(take, || now));
        if known.is_some() {
            self.demand.add(take.action().cost());
        }
        known
    }

    /// Counts what was asked for.
    pub(super) fn count(&mut self, units: u32) {
        self.demand.add(units);
    }

    /// Takes in a caller who is going to wait.
    pub(super) fn arrive(&mut self, units: u32) -> Place {
        self.arrivals += 1;
        self.waiting = self.waiting.saturating_add(units);
        Place { slot: self.id, arrival: self.arrivals }
    }

    /// Whether a caller has its place here.
    pub(super) const fn has(&self, place: Place) -> bool {
        place.slot == self.id
    }

    /// A caller does not wait any more: it has its answer.
    pub(super) fn leave(&mut self, place: Place, units: u32) {
        if self.has(place) {
            self.waiting = self.waiting.saturating_sub(units);
        }
    }

    /// A caller has gone away. What was granted for it is nobody else's: others came later than it was admitted.
    pub(super) fn give_up(&mut self, place: Place, units: u32) {
        self.leave(place, units);
        let mut portions = self.portions.iter_mut();
        let _ = self.id == place.slot && portions.any(|portion| portion.give_up(units, place.arrival));
    }

    /// What to ask for, on behalf of everybody who waits and for a while ahead.
    pub(super) fn order(&mut self, action: &Action<'_>, now: Timestamp, terms: &Terms) -> Order {
        self.pace.ask(now, terms.pause(&self.policy));
        let needed = self.demand.next(terms.target, now);
        let last = self.portions.last().map(|portion| (portion.after(), portion.moment()));
        // Some of those who wait may be about to take what is here for them.
        let granted = self.portions.iter().map(Portion::due).fold(0, u32::saturating_add);
        let due = self.waiting.saturating_sub(granted).max(action.cost());
        let units = due.max(terms.size(&self.policy, needed, last, now));
        let cost = action.cost();
        Order { slot: self.id, cost, times: units.div_ceil(cost).max(1), due: (due, self.arrivals) }
    }

    /// Takes what was brought.
    pub(super) fn land(&mut self, portion: Option<Portion>, denial: Option<Denial>) {
        self.flight = None;
        self.denial = denial;
        if let Some(portion) = portion {
            self.portions.retain(Portion::has_units);
            self.portions.push(portion);
            let surplus = self.portions.len().saturating_sub(MAX_PORTIONS);
            self.portions.drain(..surplus);
        }
    }
}
