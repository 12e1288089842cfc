//! Giving back what is held and not asked for any more, where nobody can count on its being owed.
//!
//! Whoever holds units of a bucket counts on what the store owed when they were taken, with what was taken before. So units
//! are not given back when somebody has taken after them: they flow back instead. Whether somebody has is seen from the
//! stored state, which then is another one than we left. Between that look and the return there is a moment for others to
//! take, who count on those units for as long as a portion lives. They do no harm if the store owes enough without the
//! units for all that time: what flows off, and as much as one portion can be, since a return and a take between two looks
//! may cancel out.
//!
//! A return is no more than that as long as the units have not flown back by themselves. One that comes later takes off
//! what others owe, and they are admitted so much more. Nothing can take back what was sent to a store that stands still,
//! so a return is made only if the store owes enough for [`WITHIN`] from when it is sent, which is longer than servers and
//! connections survive without an answer. Of fixed windows nothing is given back: their last moment is always near, the
//! count of the next one is others', and no store could tell that a refund was meant for the one before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use throttle_core::kernel::{Kernel, RuleState, StoredState};
use throttle_core::{Action, Outcome, StoreBackend, Timestamp};
use tokio::runtime::Handle;

use super::slots::Leftover;
use super::terms::Terms;
use super::{Inner, Leased};
use crate::moment::Moment;

/// How long a return may take. What comes back by itself within that is not given back.
const WITHIN: Duration = Duration::from_secs(60);

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
        leftovers.retain_mut(|left| {
            let units = left.portion.available(&left.policy, now, Duration::MAX);
            units > 0
                && left.portion.moment().latest(now).is_some_and(|now| is_safe(left, units, now, &self.terms))
        });
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

    /// Sees to it that somebody looks what can be given back for as long as anything is held, if a runtime is current:
    /// there may be no more calls.
    pub(super) fn give_back_when_idle(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.is_watched.swap(true, Ordering::SeqCst) {
            drop(runtime.spawn(look_while_held(Watch(Arc::downgrade(self)))));
        }
        let _ = self.runtime.set(runtime);
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
        let asked = self.clock.now();
        let is_safe_at = |moment: &Moment| {
            moment.latest(self.clock.now()).is_some_and(|latest| is_safe(left, units, latest, &self.terms))
        };
        if !is_safe_at(left.portion.moment()) {
            return false;
        }
        let look = Action::peek(&left.policy, &left.key).with_cost(0);
        match self.backend.decide(&look).await {
            Ok(seen) => {
                is_untouched(left, &seen) && is_safe_at(&Moment::new(seen.now(), asked, self.clock.now()))
            }
            Err(_) => false,
        }
    }
}

/// The task that looks for keys which nobody asks for any more. When it has ended, by itself or with its runtime, another
/// one may begin.
struct Watch<B: StoreBackend>(Weak<Inner<B>>);

impl<B: StoreBackend> Drop for Watch<B> {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.is_watched.store(false, Ordering::SeqCst);
        }
    }
}

async fn look_while_held<B: StoreBackend>(watch: Watch<B>) {
    while let Some(inner) = watch.0.upgrade() {
        let span = inner.terms.lifetime();
        let pause = inner.clock.sleep(span);
        drop(inner);
        pause.await;
        let Some(inner) = watch.0.upgrade() else { return };
        inner.return_later(inner.slots.sweep_all(inner.clock.now(), span));
        if inner.slots.len() == 0 {
            drop(watch);
            // What came between those two has found this task, which has ended.
            if inner.slots.len() > 0 {
                inner.give_back_when_idle();
            }
            return;
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
        _ => false,
    })
}

/// Whether nobody has taken from a bucket since.
fn is_untouched(left: &Leftover, seen: &Outcome) -> bool {
    let mut states = left.portion.after().states().iter().zip(seen.states());
    states.all(|(ours, seen)| match (ours, seen) {
        (StoredState::Bucket(ours), RuleState::Bucket(seen)) => *ours == seen,
        _ => false,
    })
}
