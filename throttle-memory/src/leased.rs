//! [`Leased`]: units are taken ahead, and served from here.

mod config;
mod flight;
mod give_back;
mod portion;
mod slot;
mod slots;
mod terms;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use foldhash::{HashSet, HashSetExt};
use throttle_core::kernel::Kernel;
use throttle_core::{
    Action, Clock, Operand, Outcome, Policy, PolicyName, Results, StoreBackend, Take, TakeOutcome,
    is_stored_as_is,
};
use tokio::runtime::Handle;

pub use self::config::LeaseConfig;

use self::flight::{Seat, Step};
use self::slot::Failure;
use self::slots::Slots;
use self::terms::Terms;
use crate::hit::record_hit;
use crate::name::Name;

/// Asks the store for more than one unit at a time, and serves busy keys from what it holds: at 10,000 decisions a
/// second on one key, the store is asked about fifty times. In front of a store that is asked over a network.
///
/// **The limit holds** for what is served, for any number of processes: law 4, exactly. A unit that is held is charged at
/// the store, and is held no longer than the store owes it; `leased/portion.rs` in the source has the proof. It takes the
/// clocks of the store and of this process to run at the same speed for the tenth of a second that a portion lives. What
/// is put back under a key that others hold units of, by a refund or a reset through another process, is not known here:
/// what is held there comes on top, once.
///
/// **What may be left unused** meanwhile is what is held: per process and key, at most a sixteenth of the capacity
/// ([`LeaseConfig::share`]), for at most five times as long as a portion is to last (20 ms,
/// [`LeaseConfig::target`]). A key is taken one unit at first, and no more than what it asks for until it asks
/// often: at most twice as much each time, up to what it needs for as long as a portion is to last. Of buckets, what flows
/// off in that time is taken on top, since it cannot be held. What was not served in that time stays charged at the store
/// until it is given back, or has flown back, or its fixed window ends.
///
/// **What is given back.** Of a key that is not asked for any more, and of all keys when this is dropped or by
/// [`give_back`](Self::give_back), what the last portion has left, of buckets only: what nobody has taken after, if it
/// would take longer than a minute to flow back by itself. All else flows back with time; of a fixed window, what is left
/// of a portion lapses with it. It takes a tokio runtime with its timer: the one that is current when the store is asked.
/// A task looks there every tenth of a second (five times [`LeaseConfig::target`]) for as long as anything is held.
/// Without one, only calls that come later look, and a store that needs waiting for is given nothing. A return that the
/// store carries out more than a minute after it was sent is too late: at most a portion may then be admitted twice.
///
/// **What is leased.** Consuming one's own cost now, at the store's time, under buckets and fixed windows. All else goes
/// to the store as it is: peeks, refunds, waiting in a queue, times that are injected, sliding windows and logs (a unit
/// would leave them before its time), keys longer than 200 bytes, and what asks for more than is held in a batch. A refund
/// or a reset through here lets go of what is held of its key; that is not given back.
///
/// **What callers are told** is what the store would tell if it had been asked for just what was served here, since the
/// last portion, at the present time. What others take is seen with the next portion. A denial is the store's own; it is
/// remembered until it ends, or for as long as a portion is to last. A key that is over its limit and asked for all the
/// time asks again as often as that, after a few tries in a row; in between the last denial is repeated. Then a denial
/// may be up to that long too late.
///
/// **Cancellation and errors.** One request per key is under way at a time, driven by whoever waits for it. An error goes
/// to everybody who waits, and so does a panic of the backend. When nobody waits any more it is dropped; what it was
/// granted is lost.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use throttle_core::{Policy, RateLimiter, Rule};
/// use throttle_memory::{Leased, MemoryBackend};
///
/// # let remote = MemoryBackend::default();
/// let policy = Policy::new("api", [Rule::gcra("100000/h")?])?;
/// let limiter = RateLimiter::new(policy, Leased::new(remote));
/// for _ in 0..10_000 {
///     assert!(limiter.check("alice").await?.is_allowed());
/// }
/// assert!(limiter.store().get_ref().asked() < 1_000);
/// # Ok(())
/// # }
/// ```
pub struct Leased<B: StoreBackend> {
    inner: Arc<Inner<B>>,
}

struct Inner<B: StoreBackend> {
    backend: B,
    clock: Arc<dyn Clock>,
    terms: Terms,
    slots: Slots<B::BaseError>,
    /// Whether a task looks for what can be given back.
    is_watched: AtomicBool,
    /// Where what is left is given back.
    runtime: OnceLock<Handle>,
    asked: AtomicU64,
    served: AtomicU64,
}

impl<B: StoreBackend> Leased<B> {
    /// In front of `backend`.
    #[must_use]
    pub fn new(backend: B) -> Self {
        Self::with_config(backend, LeaseConfig::default())
    }

    /// In front of `backend`, set as `config` says.
    #[must_use]
    pub fn with_config(backend: B, config: LeaseConfig) -> Self {
        Self {
            inner: Arc::new(Inner {
                backend,
                clock: config.clock,
                terms: config.terms,
                slots: Slots::at_most(config.max_keys),
                is_watched: AtomicBool::new(false),
                runtime: OnceLock::new(),
                asked: AtomicU64::new(0),
                served: AtomicU64::new(0),
            }),
        }
    }

    /// The backend itself. What is asked there is decided without what is held here.
    #[must_use]
    pub fn get_ref(&self) -> &B {
        &self.inner.backend
    }

    /// How often the backend was asked for units: for those who wait, and ahead.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.inner.asked.load(Ordering::Relaxed)
    }

    /// How many requests were answered from here.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.inner.served.load(Ordering::Relaxed)
    }
}

/// The backend panicked while it was asked for this caller, perhaps after it charged: nothing is asked again.
#[expect(clippy::panic, reason = "a defect of the backend, told to each who waits")]
fn unanswered() -> ! {
    panic!("the backend behind a Leased panicked")
}

/// Whether units of `policy` may be held.
fn is_leased(policy: &Policy) -> bool {
    policy.rules().iter().all(|rule| matches!(rule.kernel(), Kernel::Bucket(_) | Kernel::FixedWindow(_)))
}

/// The units that `action` asks for, if they may be held.
fn leased_units(action: &Action<'_>) -> Option<u32> {
    let is_plain = action.operand() == Operand::Consume
        && action.now().is_none()
        && action.max_wait_micros() == 0
        && action.cost() > 0
        && !action.is_hopeless()
        && is_stored_as_is(action.key())
        && is_leased(action.policy());
    is_plain.then(|| action.cost().saturating_mul(action.times()))
}

/// What is held of a key, or of all, is let go of before it changes, and after it has, or may have.
struct Change<'c, B: StoreBackend> {
    inner: &'c Inner<B>,
    of: Option<Name<'c>>,
}

impl<'c, B: StoreBackend> Change<'c, B> {
    fn begin(inner: &'c Inner<B>, of: Option<Name<'c>>) -> Self {
        let change = Self { inner, of };
        change.let_go();
        change
    }

    fn let_go(&self) {
        match self.of {
            Some(name) => self.inner.slots.forget(name),
            None => drop(self.inner.slots.take_all()),
        }
    }
}

impl<B: StoreBackend> Drop for Change<'_, B> {
    fn drop(&mut self) {
        self.let_go();
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: StoreBackend> StoreBackend for Leased<B> {
    type BaseError = B::BaseError;

    fn name(&self) -> &'static str {
        self.inner.backend.name()
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Self::BaseError> {
        let name = Name::new(action.policy().name(), action.key());
        let _change = (action.operand() == Operand::Refund).then(|| Change::begin(&self.inner, Some(name)));
        if let Some(units) = leased_units(action) {
            let mut seat = Seat::new(&self.inner, name, units);
            for _ in 0..flight::ROUNDS {
                match self.inner.step(action, &mut seat) {
                    Step::Known(outcome) => return Ok(outcome),
                    Step::Wait(flight) => match flight.await {
                        Ok(()) => {}
                        Err(Failure::Store(error)) => return Err(error),
                        Err(Failure::Panicked) => unanswered(),
                    },
                    Step::Ask => break,
                }
            }
        }
        self.inner.backend.decide(action).await
    }

    async fn decide_many(&self, actions: &[Action<'_>]) -> Results<Outcome, Self::BaseError> {
        let mut changes = Vec::new();
        let (mut known, mut asked) = (Vec::with_capacity(actions.len()), Vec::new());
        // What is asked is decided later than what is known, so what comes after it on its key is asked, too.
        let mut keys_asked = HashSet::new();
        for action in actions {
            let key = (action.policy().name(), action.key());
            let answer = if keys_asked.contains(&key) { None } else { self.inner.recall(action) };
            if answer.is_none() {
                if action.operand() == Operand::Refund {
                    changes.push(Change::begin(&self.inner, Some(Name::new(key.0, key.1))));
                }
                keys_asked.insert(key);
                asked.push(*action);
            }
            known.push(answer);
        }
        let answers = match asked.is_empty() {
            true => Vec::new(),
            false => self.inner.backend.decide_many(&asked).await,
        };
        let mut answers = answers.into_iter();
        // A backend that gives too few answers is not made to look as if it had not.
        known.into_iter().map_while(|known| known.map(Ok).or_else(|| answers.next())).collect()
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Self::BaseError> {
        let _change = Change::begin(&self.inner, Some(Name::new(policy, key)));
        self.inner.backend.reset(policy, key).await
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Self::BaseError> {
        let _change = Change::begin(&self.inner, None);
        self.inner.backend.reset_policy(policy).await
    }

    async fn ping(&self) -> Result<(), Self::BaseError> {
        self.inner.backend.ping().await
    }

    /// From what is held. The backend is not asked.
    fn decide_now(&self, take: &Take<'_>) -> Option<TakeOutcome> {
        let action = take.action();
        leased_units(action)?;
        let inner = &self.inner;
        let mut shard = inner.slots.shard(Name::new(action.policy().name(), action.key()));
        let slot = shard.get(Name::new(action.policy().name(), action.key()))?;
        if slot.policy() != action.policy() {
            return None;
        }
        let outcome = slot.answer_take(take, inner.clock.now(), &inner.terms)?;
        inner.served.fetch_add(1, Ordering::Relaxed);
        record_hit(inner.backend.name());
        Some(outcome)
    }
}

impl<B: StoreBackend> fmt::Debug for Leased<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased")
            .field("backend", &self.inner.backend)
            .field("terms", &self.inner.terms)
            .field("keys", &self.inner.slots.len())
            .field("asked", &self.inner.asked)
            .field("served", &self.inner.served)
            .finish_non_exhaustive()
    }
}
