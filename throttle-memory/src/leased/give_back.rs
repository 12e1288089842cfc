//! Giving back what is held and not asked for any more, where nobody can count on its being owed.
//!
//! Whoever holds units of a bucket counts on what the store owed when they were taken, with what was taken before. So units
//! are not given back when somebody has taken after them: they flow back instead. Whether somebody has is seen from the
//! stored state, which then is another one than we left. Between that look and the return there is a moment for others to
//! take, who count on those units for as long as a portion lives. They do no harm if the store owes enough without the
//! units for all that time: what flows off, and as much as one portion can be, since a return and a take between two looks
//! may cancel out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use throttle_core::kernel::{Kernel, RuleState, StoredState};
use throttle_core::{Action, Outcome, StoreBackend, Timestamp};
use tokio::runtime::Handle;

use super::slots::Leftover;
use super::terms::Terms;
use super::{Inner, Leased};

/// How long a return may take. What comes back by itself within that is not given back.
const WITHIN: Duration = Duration::from_secs(1);

impl<B: StoreBackend> Leased<B> {
    /// Gives back what is held of all keys, as far as it is still good and nobody can count on it. For the end of a
    /// program, which may not leave a runtime to do it later. Whatever the store says, nothing is held afterwards.
    pub async fn give_back(&self) {
        self.inner.give_back(self.inner.slots.take_all()).await;
    }
}

impl<B: StoreBackend> Drop for Leased<B> {
    fn drop(&mut self) {
        self.inner.return_later(self.inner.slots.take_all());
    }
}

impl<B: StoreBackend> Inner<B> {
    /// Gives back in the background: at once if the store needs no waiting, else on the runtime.
    pub(super) fn return_later(self: &Arc<Self>, mut leftovers: Vec<Leftover>) {
        let now = self.clock.now();
        leftovers.retain_mut(|left| left.portion.available(&left.policy, now, Duration::MAX) > 0);
        if leftovers.is_empty() {
            return;
        }
        let inner = Arc::clone(self);
        let mut task = Box::pin(async move { inner.give_back(leftovers).await });
        match Handle::try_current().ok().or_else(|| self.runtime.get().cloned()) {
            Some(runtime) => drop(runtime.spawn(task)),
            // Called from destructors: a panic of the backend ends here.
            None => {
                let mut context = Context::from_waker(Waker::noop());
                drop(catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context).is_ready())));
            }
        }
    }

    async fn give_back(&self, leftovers: Vec<Leftover>) {
        for mut left in leftovers {
            let units = left.portion.available(&left.policy, self.clock.now(), Duration::MAX);
            if units == 0 || !self.may_return(&left, units).await {
                continue;
            }
            // If it fails, the units come back with time.
            let _ = self.backend.decide(&Action::refund(&left.policy, &left.key).with_cost(units)).await;
        }
    }

    async fn may_return(&self, left: &Leftover, units: u32) -> bool {
        let Some(latest) = left.portion.moment().latest(self.clock.now()) else { return false };
        if !is_safe(left, units, latest, &self.terms) {
            return false;
        }
        let look = Action::peek(&left.policy, &left.key).with_cost(0);
        match self.backend.decide(&look).await {
            Ok(seen) => is_untouched(left, &seen) && is_safe(left, units, seen.now(), &self.terms),
            Err(_) => false,
        }
    }
}

/// Whether `units` can be given back within the time that may take, by the clock of the store at `now`.
fn is_safe(left: &Leftover, units: u32, now: Timestamp, terms: &Terms) -> bool {
    let done = now.saturating_add(WITHIN);
    let rules = left.policy.rules().iter().zip(left.portion.after().states());
    rules.into_iter().all(|(rule, state)| match (rule.kernel(), state) {
        (Kernel::Bucket(bucket), StoredState::Bucket(state)) => {
            let needed = u64::from(units) + u64::from(terms.most(&left.policy));
            bucket.owed_units(state, done.saturating_add(terms.lifetime())) > needed
        }
        (Kernel::FixedWindow(window), StoredState::FixedWindow(state)) => {
            done.as_micros() / window.period_micros() <= state.index
        }
        _ => false,
    })
}

/// Whether nobody has taken from a bucket since.
fn is_untouched(left: &Leftover, seen: &Outcome) -> bool {
    let mut states = left.portion.after().states().iter().zip(seen.states());
    states.all(|(ours, seen)| match (ours, seen) {
        (StoredState::Bucket(ours), RuleState::Bucket(seen)) => *ours == seen,
        (StoredState::FixedWindow(ours), RuleState::FixedWindow(seen)) => ours.index == seen.index,
        _ => false,
    })
}
