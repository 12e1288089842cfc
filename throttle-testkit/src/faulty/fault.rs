//! What fails, and when.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use throttle_core::{Effect, ErrorKind, Operation};
use tokio::sync::Notify;

use super::{InjectedError, Seen};

/// One way to fail, and when: once, at the next call of any operation, unless told otherwise.
///
/// ```
/// use std::convert::Infallible;
/// use throttle_core::{ErrorKind, Operation};
/// use throttle_testkit::Fault;
///
/// let third = Fault::<Infallible>::refuse(ErrorKind::Overloaded).on(Operation::Decide).nth(3);
/// let flaky = Fault::<Infallible>::lose_reply(ErrorKind::Connection).one_in(10, 42);
/// # let _ = (third, flaky);
/// ```
#[derive(Debug, Clone)]
#[must_use = "a fault does nothing until it is injected"]
pub struct Fault<E> {
    what: What<E>,
    operation: Option<Operation>,
    when: When,
}

#[derive(Debug, Clone)]
enum What<E> {
    FailBefore(InjectedError<E>),
    FailAfter(InjectedError<E>),
    HangBefore,
    HangAfter,
    Delay(Duration),
}

#[derive(Debug, Clone)]
enum When {
    /// Only the call after this many others.
    After(u32),
    Always,
    OneIn(u32, SmallRng),
}

impl<E> Fault<E> {
    /// Fails before the operation has any effect, and says so.
    pub const fn refuse(kind: ErrorKind) -> Self {
        Self::fail_with(InjectedError::Injected { kind, effect: Effect::NotApplied })
    }

    /// Lets the operation take effect and fails then: the reply was lost, the effect is [`Effect::Unknown`].
    pub const fn lose_reply(kind: ErrorKind) -> Self {
        Self::new(What::FailAfter(InjectedError::Injected { kind, effect: Effect::Unknown }))
    }

    /// Fails with exactly this `error`, before the operation has any effect, whatever the error says of that.
    pub const fn fail_with(error: InjectedError<E>) -> Self {
        Self::new(What::FailBefore(error))
    }

    /// Waits before the operation until [`Faults::release`], then goes on.
    pub const fn hang() -> Self {
        Self::new(What::HangBefore)
    }

    /// Lets the operation take effect, and keeps the reply back until [`Faults::release`].
    pub const fn hang_after_effect() -> Self {
        Self::new(What::HangAfter)
    }

    /// Waits for `span` before the operation, on the backend's clock.
    pub const fn delay(span: Duration) -> Self {
        Self::new(What::Delay(span))
    }

    const fn new(what: What<E>) -> Self {
        Self { what, operation: None, when: When::After(0) }
    }

    /// Only at calls of `operation`.
    pub const fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Only at the `n`th call (from 1) of those it applies to.
    pub fn nth(self, n: u32) -> Self {
        Self { when: When::After(n.saturating_sub(1)), ..self }
    }

    /// At every call.
    pub fn always(self) -> Self {
        Self { when: When::Always, ..self }
    }

    /// At one in `n` calls, at random; the same `seed` strikes the same calls.
    pub fn one_in(self, n: u32, seed: u64) -> Self {
        Self { when: When::OneIn(n.max(1), SmallRng::seed_from_u64(seed)), ..self }
    }

    fn strikes(&mut self, operation: Operation) -> Strike {
        if self.operation.is_some_and(|only| only != operation) {
            return Strike::No;
        }
        match &mut self.when {
            When::Always => Strike::Yes,
            When::After(0) => Strike::Last,
            When::After(left) => {
                *left -= 1;
                Strike::No
            }
            When::OneIn(n, random) => match random.random_range(0..*n) {
                0 => Strike::Yes,
                _ => Strike::No,
            },
        }
    }
}

#[derive(PartialEq, Eq)]
enum Strike {
    No,
    Yes,
    Last,
}

/// What strikes one call.
pub(super) struct Effects<E> {
    pub(super) delay: Option<Duration>,
    pub(super) hang_before: bool,
    pub(super) fail_before: Option<InjectedError<E>>,
    pub(super) hang_after: bool,
    pub(super) fail_after: Option<InjectedError<E>>,
}

impl<E> Effects<E> {
    const NONE: Self =
        Self { delay: None, hang_before: false, fail_before: None, hang_after: false, fail_after: None };

    fn add(&mut self, what: What<E>) {
        match what {
            What::Delay(span) => self.delay = Some(span),
            What::HangBefore => self.hang_before = true,
            What::FailBefore(error) => self.fail_before = Some(error),
            What::HangAfter => self.hang_after = true,
            What::FailAfter(error) => self.fail_after = Some(error),
        }
    }
}

/// The control of a [`FaultyBackend`](crate::FaultyBackend): what fails from now on, and what was seen so far. Clones
/// are the same control.
pub struct Faults<E>(Arc<Shared<E>>);

struct Shared<E> {
    faults: Mutex<Vec<Fault<E>>>,
    seen: Mutex<Vec<Seen>>,
    hanging: Mutex<usize>,
    released: Notify,
    hangs: Notify,
}

impl<E: Clone> Faults<E> {
    /// Adds a fault. Several faults strike independently of each other; all that strike one call apply.
    pub fn inject(&self, fault: Fault<E>) {
        self.0.faults.lock().push(fault);
    }

    /// Forgets all faults. Calls that hang go on hanging.
    pub fn clear(&self) {
        self.0.faults.lock().clear();
    }

    pub(super) fn effects_of(&self, operation: Operation) -> Effects<E> {
        let mut effects = Effects::NONE;
        self.0.faults.lock().retain_mut(|fault| {
            let strike = fault.strikes(operation);
            if strike != Strike::No {
                effects.add(fault.what.clone());
            }
            strike != Strike::Last
        });
        effects
    }
}

impl<E> Faults<E> {
    /// Every call so far, in the order of arrival.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.0.seen.lock().clone()
    }

    /// How many calls hang.
    #[must_use]
    pub fn hanging(&self) -> usize {
        *self.0.hanging.lock()
    }

    /// Completes when at least `count` calls hang at once.
    pub async fn until_hanging(&self, count: usize) {
        loop {
            let changed = self.0.hangs.notified();
            if self.hanging() >= count {
                return;
            }
            changed.await;
        }
    }

    /// Lets all calls that hang go on.
    pub fn release(&self) {
        self.0.released.notify_waiters();
    }

    pub(super) async fn hang(&self) {
        let released = self.0.released.notified();
        let _hanging = Hanging::new(&self.0);
        released.await;
    }

    pub(super) fn add(&self, seen: Seen) -> usize {
        let mut all = self.0.seen.lock();
        all.push(seen);
        all.len() - 1
    }

    pub(super) fn update(&self, position: usize, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.0.seen.lock().get_mut(position) {
            change(seen);
        }
    }
}

/// Counts a call among those that hang for as long as it does.
struct Hanging<'a, E>(&'a Shared<E>);

impl<'a, E> Hanging<'a, E> {
    fn new(shared: &'a Shared<E>) -> Self {
        *shared.hanging.lock() += 1;
        shared.hangs.notify_waiters();
        Self(shared)
    }
}

impl<E> Drop for Hanging<'_, E> {
    fn drop(&mut self) {
        *self.0.hanging.lock() -= 1;
    }
}

impl<E> Default for Faults<E> {
    fn default() -> Self {
        Self(Arc::new(Shared {
            faults: Mutex::default(),
            seen: Mutex::default(),
            hanging: Mutex::default(),
            released: Notify::new(),
            hangs: Notify::new(),
        }))
    }
}

impl<E> Clone for Faults<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: fmt::Debug> fmt::Debug for Faults<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (faults, seen) = (&*self.0.faults.lock(), self.0.seen.lock().len());
        f.debug_struct("Faults").field("faults", faults).field("seen", &seen).finish()
    }
}
