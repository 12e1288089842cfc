//! Callers who wait for more, and the one request that brings it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use throttle_core::{Action, Outcome, Policy, StoreBackend};

use super::portion::Portion;
use super::slot::{Failure, Flight, Order, Place};
use super::{Inner, leased_units};
use crate::denial::Denial;
use crate::hit::record_hit;
use crate::moment::Moment;
use crate::name::Name;

/// How often a caller waits for what others asked for before it asks by itself.
pub(super) const ROUNDS: u32 = 4;

/// What a caller is to do.
pub(super) enum Step<E> {
    /// Take this answer.
    Known(Outcome),
    /// Wait for more, and look again.
    Wait(Flight<E>),
    /// Ask the store itself.
    Ask,
}

/// A caller. Dropped, it does not wait any more.
pub(super) struct Seat<'c, B: StoreBackend> {
    inner: &'c Arc<Inner<B>>,
    name: Name<'c>,
    units: u32,
    place: Option<Place>,
}

impl<'c, B: StoreBackend> Seat<'c, B> {
    pub(super) const fn new(inner: &'c Arc<Inner<B>>, name: Name<'c>, units: u32) -> Self {
        Self { inner, name, units, place: None }
    }
}

impl<B: StoreBackend> Drop for Seat<'_, B> {
    fn drop(&mut self) {
        if let Some(place) = self.place
            && let Some(slot) = self.inner.slots.shard(self.name).get(self.name)
        {
            slot.give_up(place, self.units);
        }
    }
}

impl<B: StoreBackend> Inner<B> {
    /// One look at what is held for a caller.
    pub(super) fn step(self: &Arc<Self>, action: &Action<'_>, seat: &mut Seat<'_, B>) -> Step<B::BaseError> {
        let now = self.clock.now();
        self.return_later(self.slots.sweep(now, self.terms.lifetime()));
        let mut shard = self.slots.shard(seat.name);
        let Some(slot) = self.slots.open(&mut shard, seat.name, action.policy(), now) else {
            return Step::Ask;
        };
        if seat.place.is_none() {
            slot.count(seat.units);
        }
        if let Some(outcome) = slot.answer(action, seat.units, seat.place, now, &self.terms) {
            self.served.fetch_add(1, Ordering::Relaxed);
            match seat.place.take() {
                Some(place) => slot.leave(place, seat.units),
                None => record_hit(self.backend.name()),
            }
            return Step::Known(outcome);
        }
        if action.times() > 1 {
            return Step::Ask;
        }
        if seat.place.is_none_or(|place| !slot.has(place)) {
            seat.place = Some(slot.arrive(seat.units));
        }
        let flight = match slot.flight() {
            Some(flight) => flight,
            None => {
                let order = slot.order(action, now, &self.terms);
                let flight = self.fly(action.policy(), action.key(), order);
                slot.set_flight(&flight);
                flight
            }
        };
        Step::Wait(flight)
    }

    /// The answer to an action of a batch, if it is known.
    pub(super) fn recall(&self, action: &Action<'_>) -> Option<Outcome> {
        let units = leased_units(action)?;
        let name = Name::new(action.policy().name(), action.key());
        let mut shard = self.slots.shard(name);
        let slot = shard.get(name).filter(|slot| slot.policy() == action.policy())?;
        let outcome = slot.answer(action, units, None, self.clock.now(), &self.terms)?;
        slot.count(units);
        self.served.fetch_add(1, Ordering::Relaxed);
        record_hit(self.backend.name());
        Some(outcome)
    }

    /// Asks the store, once this is polled.
    fn fly(self: &Arc<Self>, policy: &Policy, key: &str, order: Order) -> Flight<B::BaseError> {
        let (inner, policy, key) = (Arc::clone(self), policy.clone(), Box::<str>::from(key));
        let flight = async move { inner.bring(&policy, &key, order).await.map_err(Failure::Store) };
        // A panic ends the flight for all who wait: they would not be woken otherwise.
        let flight = AssertUnwindSafe(flight).catch_unwind();
        flight.map(|brought| brought.unwrap_or(Err(Failure::Panicked))).boxed().shared()
    }

    /// Asks the store for what was ordered, and puts it into its slot.
    async fn bring(self: &Arc<Self>, policy: &Policy, key: &str, order: Order) -> Result<(), B::BaseError> {
        let ask = Action::consume(policy, key).with_cost(order.cost).with_times(order.times);
        self.asked.fetch_add(1, Ordering::Relaxed);
        let asked = self.clock.now();
        let outcome = self.backend.decide(&ask).await?;
        let times = (asked, self.clock.now());
        let moment = Moment::new(outcome.now(), times.0, times.1);
        let denial = Denial::of(&ask, &outcome, times, self.terms.target);
        let portion = Portion::of(&ask, &outcome, moment, order.due);
        let name = Name::new(policy.name(), key);
        let mut shard = self.slots.shard(name);
        if let Some(slot) = shard.get(name).filter(|slot| slot.id() == order.slot) {
            slot.land(portion, denial);
        }
        drop(shard);
        self.give_back_when_idle();
        Ok(())
    }
}
