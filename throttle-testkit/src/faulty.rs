//! [`FaultyBackend`]: a backend over any backend that fails when it is told to.

mod error;
mod fault;
mod seen;

use std::fmt;
use std::sync::Arc;

use throttle_core::lock::{Acquisition, LockTtl, Owner};
use throttle_core::{
    Action, BaseErrorSet, Clock, LockBackend, Operation, Outcome, PolicyName, Results, StoreBackend,
    SystemClock, Take, TakeOutcome,
};

pub use self::error::InjectedError;
pub use self::fault::{Fault, Faults};
pub use self::seen::{Answer, Seen, Subject};

use self::fault::Effects;
use self::seen::{Call, Record};

/// A [`StoreBackend`] over any other that fails as [`Faults`] tell it to, and records what it was asked. Clones share
/// the backend, the faults and the record; without faults it answers as the backend does.
///
/// **Cancellation.** As the backend; a call that is dropped while it hangs before its effect had none.
///
/// ```
/// use throttle_core::{Effect, ErrorKind, Policy, RateLimiter, Rule};
/// use throttle_testkit::{Fault, FaultyBackend, ReferenceBackend};
///
/// let store = FaultyBackend::new(ReferenceBackend::default());
/// let faults = store.faults();
/// let limiter = RateLimiter::new(Policy::new("api", [Rule::gcra("2/h")?])?, store).blocking();
///
/// faults.inject(Fault::lose_reply(ErrorKind::Timeout).nth(2));
/// assert!(limiter.check("alice")?.is_allowed());
/// let error = limiter.check("alice").unwrap_err();
/// assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown));
/// assert!(!limiter.check("alice")?.is_allowed(), "the lost reply was an admission");
/// assert_eq!(faults.seen().len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FaultyBackend<B: StoreBackend> {
    backend: Arc<B>,
    faults: Faults<B::BaseError>,
    clock: Arc<dyn Clock>,
}

impl<B: StoreBackend> FaultyBackend<B> {
    /// Puts `backend` under control.
    #[must_use]
    pub fn new(backend: B) -> Self {
        Self { backend: Arc::new(backend), faults: Faults::default(), clock: Arc::new(SystemClock) }
    }

    /// Lets delays pass on `clock` in place of the tokio timer.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// The handle that says what fails, and what was seen.
    #[must_use]
    pub fn faults(&self) -> Faults<B::BaseError> {
        self.faults.clone()
    }

    /// The backend under control.
    #[must_use]
    pub fn get_ref(&self) -> &B {
        &self.backend
    }

    /// One call: what the faults say, around what the backend does.
    async fn call<T: Reply<Error = B::BaseError>>(
        &self,
        call: Call<'_>,
        forward: impl Future<Output = T> + Send,
    ) -> T::Injected {
        let effects: Effects<B::BaseError> = self.faults.effects_of(call.operation);
        let mut record = Record::open(&self.faults, &call);
        if let Some(span) = effects.delay {
            self.clock.sleep(span).await;
        }
        if effects.hang_before {
            self.faults.hang().await;
        }
        if let Some(error) = effects.fail_before {
            record.close(Answer::Failed);
            return T::failed(&error, call.actions);
        }
        record.forward();
        let answer = forward.await;
        if effects.hang_after {
            self.faults.hang().await;
        }
        match effects.fail_after {
            Some(error) => {
                record.close(Answer::Failed);
                T::failed(&error, call.actions)
            }
            None => {
                record.close(answer.answer());
                answer.injected()
            }
        }
    }
}

/// What a backend replies: one result, or one for each action.
trait Reply: Send {
    type Error;
    type Injected;

    /// The error in place of the reply.
    fn failed(error: &InjectedError<Self::Error>, actions: usize) -> Self::Injected;

    /// The reply, with the error wrapped.
    fn injected(self) -> Self::Injected;

    /// What is recorded of it.
    fn answer(&self) -> Answer;
}

impl<T: Send, E: BaseErrorSet> Reply for Result<T, E> {
    type Error = E;
    type Injected = Result<T, InjectedError<E>>;

    fn failed(error: &InjectedError<E>, _actions: usize) -> Self::Injected {
        Err(error.clone())
    }

    fn injected(self) -> Self::Injected {
        self.map_err(InjectedError::Base)
    }

    fn answer(&self) -> Answer {
        if self.is_ok() { Answer::Ok } else { Answer::Failed }
    }
}

impl<T: Send, E: BaseErrorSet> Reply for Vec<Result<T, E>> {
    type Error = E;
    type Injected = Vec<Result<T, InjectedError<E>>>;

    fn failed(error: &InjectedError<E>, actions: usize) -> Self::Injected {
        (0..actions).map(|_| Err(error.clone())).collect()
    }

    fn injected(self) -> Self::Injected {
        self.into_iter().map(Reply::injected).collect()
    }

    fn answer(&self) -> Answer {
        if self.iter().all(Result::is_ok) { Answer::Ok } else { Answer::Failed }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: StoreBackend> StoreBackend for FaultyBackend<B> {
    type BaseError = InjectedError<B::BaseError>;

    fn name(&self) -> &'static str {
        self.backend.name()
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Self::BaseError> {
        let call = Call::of_actions(Operation::Decide, std::slice::from_ref(action));
        self.call(call, self.backend.decide(action)).await
    }

    async fn decide_many(&self, actions: &[Action<'_>]) -> Results<Outcome, Self::BaseError> {
        let call = Call::of_actions(Operation::DecideMany, actions);
        self.call(call, self.backend.decide_many(actions)).await
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Self::BaseError> {
        let call = Call::of_key(Operation::Reset, policy, key);
        self.call(call, self.backend.reset(policy, key)).await
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Self::BaseError> {
        let call = Call::of_policy(Operation::ResetPolicy, policy);
        self.call(call, self.backend.reset_policy(policy)).await
    }

    async fn ping(&self) -> Result<(), Self::BaseError> {
        self.call(Call::of(Operation::Ping), self.backend.ping()).await
    }

    /// Never: what is asked here goes through the faults.
    fn decide_now(&self, _take: &Take<'_>) -> Option<TakeOutcome> {
        None
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: LockBackend> LockBackend for FaultyBackend<B> {
    async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition, Self::BaseError> {
        self.call(Call::of_lock(Operation::Acquire, name), self.backend.acquire(name, owner, ttl)).await
    }

    async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool, Self::BaseError> {
        self.call(Call::of_lock(Operation::Extend, name), self.backend.extend(name, owner, ttl)).await
    }

    async fn release(&self, name: &str, owner: Owner) -> Result<bool, Self::BaseError> {
        self.call(Call::of_lock(Operation::Release, name), self.backend.release(name, owner)).await
    }
}

impl<B: StoreBackend> Clone for FaultyBackend<B> {
    fn clone(&self) -> Self {
        Self {
            backend: Arc::clone(&self.backend),
            faults: self.faults.clone(),
            clock: Arc::clone(&self.clock),
        }
    }
}

impl<B: StoreBackend> fmt::Debug for FaultyBackend<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyBackend").field("backend", &self.backend).field("faults", &self.faults).finish()
    }
}
