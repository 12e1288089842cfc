//! [`Portion`]: units taken ahead, and how many of them may still be served.
//!
//! Units that the store charged at a time τ are served at later times, by all processes together never more than law 4
//! allows. Let D be what the store says the key owes, b the capacity, r the rate, and H the units that all processes
//! together may yet serve. In any time t from now on, H and what the store grants are served: at most H + (b − D) + r·t
//! units. That is the bound of law 4, b + r·t, **as long as H ≤ D at all times**.
//!
//! A take of m raises both by m; serving lowers H; a denial and a direct charge do no harm. Only the passing of time does:
//! D flows off at the rate r. So a portion that left the store at the debt d at τ may hold at most d − r·(σ − τ) units at
//! a time σ: what the store still owes of then. This is enough for all portions together. Order them by their takes. The
//! oldest that may hold anything leaves the store owing, at σ, at least d₁ − r·(σ − τ₁) for itself and all before it, and
//! every later take of mᵢ on top (the floor at no debt only adds). It holds at most the former, and each later one at most
//! its mᵢ. An older one that may hold nothing does not count, and the next one takes its place.
//!
//! A fixed window's count never falls in its window, so units are good for as long as the store's clock cannot have left
//! the window they were charged in. The counters and logs of sliding windows forget a unit by the time it was charged, and
//! one that is served later would count for too short a time: those rules are not leased.
//!
//! Everything is in integers and on the safe side: units are rounded down, the store's clock is taken to be as late as it
//! can be, and what may not be held at one moment is never held again.

use std::time::Duration;

use throttle_core::kernel::{Kernel, PolicyState, RuleState, StoredState, decide};
use throttle_core::{Action, Outcome, Policy, Take, TakeOutcome, Timestamp};

use crate::moment::Moment;

/// What one request to the store brought.
#[derive(Debug)]
pub(super) struct Portion {
    moment: Moment,
    /// Units of callers that waited when the store was asked. They were admitted there and then, as if each had asked by
    /// itself, so these units are not held, and do not decay.
    due: u32,
    /// The last of those callers.
    due_up_to: u64,
    /// Units taken ahead.
    ahead: u32,
    /// What the store keeps since.
    after: PolicyState,
    /// What it would keep had it been asked only for what was served here. Callers are answered from this.
    view: PolicyState,
}

impl Portion {
    /// What `outcome` granted of `ask`, for callers up to `up_to` who wait for `due` units, and beyond them.
    pub(super) fn of(
        ask: &Action<'_>,
        outcome: &Outcome,
        moment: Moment,
        (due, up_to): (u32, u64),
    ) -> Option<Self> {
        let view = stored(outcome)?;
        let mut after = view.clone();
        if decide(ask, outcome.now(), &mut after).granted() != outcome.granted() {
            return None;
        }
        let units = outcome.granted().saturating_mul(ask.cost());
        let due = due.min(units);
        Some(Self { moment, due, due_up_to: up_to, ahead: units - due, after, view })
    }

    /// What the store keeps, as it said.
    pub(super) const fn after(&self) -> &PolicyState {
        &self.after
    }

    /// When it was taken.
    pub(super) const fn moment(&self) -> &Moment {
        &self.moment
    }

    /// Units for callers who are still to take them.
    pub(super) const fn due(&self) -> u32 {
        self.due
    }

    pub(super) const fn has_units(&self) -> bool {
        self.due > 0 || self.ahead > 0
    }

    /// A caller does not take what is due to it; whether there was anything.
    pub(super) fn give_up(&mut self, units: u32, arrival: u64) -> bool {
        let is_due = arrival <= self.due_up_to && self.due >= units;
        self.due -= if is_due { units } else { 0 };
        is_due
    }

    /// Answers a caller that waited when the store was asked, if there is enough for it.
    pub(super) fn serve_due(&mut self, action: &Action<'_>, units: u32, arrival: u64) -> Option<Outcome> {
        if arrival > self.due_up_to || self.due < units {
            return None;
        }
        self.due -= units;
        let outcome = decide(action, self.moment.store(), &mut self.view);
        (outcome.granted() == action.times()).then_some(outcome)
    }

    /// Answers a caller from what was taken ahead, if there is enough of it.
    pub(super) fn serve(
        &mut self,
        action: &Action<'_>,
        units: u32,
        now: Timestamp,
        lives: Duration,
    ) -> Option<Outcome> {
        if self.available(action.policy(), now, lives) < units {
            return None;
        }
        self.ahead -= units;
        let outcome = decide(action, self.moment.earliest(now), &mut self.view);
        (outcome.granted() == action.times()).then_some(outcome)
    }

    /// The same for one request to one bucket.
    pub(super) fn serve_take(
        &mut self,
        take: &Take<'_>,
        now: Timestamp,
        lives: Duration,
    ) -> Option<TakeOutcome> {
        let (action, units) = (take.action(), take.action().cost());
        if self.available(action.policy(), now, lives) < units {
            return None;
        }
        self.ahead -= units;
        take.decide(self.moment.earliest(now), &mut self.view).filter(TakeOutcome::is_granted)
    }

    /// How many units may be served at `now`. What may not be held now is gone for good.
    pub(super) fn available(&mut self, policy: &Policy, now: Timestamp, lives: Duration) -> u32 {
        let is_young = self.moment.age(now).is_some_and(|age| age < lives);
        let latest = self.moment.latest(now).filter(|_| is_young);
        let good = latest.map_or(0, |latest| self.good(policy, latest));
        self.ahead = self.ahead.min(good);
        self.ahead
    }

    /// What the strictest rule allows to hold while the store's clock shows no more than `latest`.
    fn good(&self, policy: &Policy, latest: Timestamp) -> u32 {
        let rules = policy.rules().iter().zip(self.after.states());
        let good = rules.map(|(rule, state)| match (rule.kernel(), state) {
            (Kernel::Bucket(bucket), StoredState::Bucket(state)) => bucket.owed_units(state, latest),
            (Kernel::FixedWindow(window), StoredState::FixedWindow(_)) => {
                let index = |time: Timestamp| time.as_micros() / window.period_micros();
                if index(latest) == index(self.moment.store()) { u64::MAX } else { 0 }
            }
            _ => 0,
        });
        u32::try_from(good.min().unwrap_or(0)).unwrap_or(u32::MAX)
    }
}

/// What an outcome says is stored; none if it does not say all of it.
fn stored(outcome: &Outcome) -> Option<PolicyState> {
    let states = outcome.states().map(|state| match state {
        RuleState::Fresh => Some(StoredState::Fresh),
        RuleState::Bucket(state) => Some(StoredState::Bucket(state)),
        RuleState::FixedWindow(state) => Some(StoredState::FixedWindow(state)),
        _ => None,
    });
    states.collect::<Option<Vec<_>>>().map(PolicyState::new)
}
