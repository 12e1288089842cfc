//! The seam between the limiter and its stores: what an author implements, and what a user calls.

mod error;
mod operations;

pub use self::error::{BaseErrorSet, ConnectError, Effect, ErrorKind, StoreUnavailableError};

use self::operations::store_operations;
use crate::lock::{Acquisition, LockTtl, Owner};
use crate::{Action, Outcome, PolicyName, Take, TakeOutcome};

/// One result for each thing asked for, in order.
pub type Results<T, E> = Vec<Result<T, E>>;

store_operations! {
    /// A store of decisions, as its author implements it: with plain `async fn`s and its own errors.
    ///
    /// Users call it through [`Guarded`], which turns every [`BaseError`](StoreBackend::BaseError) into a
    /// [`StoreUnavailableError`]. `throttle-testkit` certifies an implementation. Its obligations, by number:
    ///
    /// 1. **Atomic.** Each [`Action`] is decided as a whole or not at all; two actions on one key, from whichever
    ///    process, are decided one after the other.
    /// 2. **Exact.** The outcome is what [`kernel::decide`](crate::kernel::decide) gives for the stored state, bit for
    ///    bit; so is the state that is stored.
    /// 3. **Time.** The action's own time if it has one, else the clock of the store, or the client's if the store
    ///    has none; which of them is documented.
    /// 4. **Separate.** Two different pairs of policy name and key never share state, whatever they contain.
    /// 5. **Expiry.** A state goes by itself: not before it [expires](crate::kernel::PolicyState::expires_at), and
    ///    not later than a [margin](crate::Action::expiry_margin) after.
    /// 6. **Errors.** An action that failed with [`Effect::NotApplied`] changed nothing. One that may have been
    ///    decided is [`Effect::Unknown`], and is never sent again. What is not recognized is not transient.
    /// 7. **Cancellation.** A dropped future leaves each of its actions decided or not; no lock, connection or task
    ///    stays behind.
    /// 8. **Deadlines.** Every wait for the outside world ends by itself.
    /// 9. **No blocking.** Nothing blocks the thread that polls, and no lock is held across an await.
    trait StoreBackend => Store, Guarded, AnyStore {
        /// Decides one action.
        Decide: async fn decide(&self, action: &Action<'_>) -> Result<Outcome>;

        /// Decides several actions, each by itself, those on the same key in order. One by one unless the store knows
        /// better.
        DecideMany: async fn decide_many(&self, actions: &[Action<'_>]) -> Results<Outcome>
            = decide_each(self, actions);

        /// Forgets what `key` has used under `policy`; whether there was anything to forget.
        Reset: async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool>;

        /// Forgets what every key has used under `policy`, in bounded steps; how many keys that were. Keys that are
        /// used meanwhile may keep what they use.
        ResetPolicy: async fn reset_policy(&self, policy: &PolicyName) -> Result<u64>;

        /// Whether the store answers.
        Ping: async fn ping(&self) -> Result<()>;
    }
    at once {
        /// What `decide` would answer, if that takes no waiting and cannot fail. `None`, the default, says that nothing
        /// happened, and that `decide` is to be asked.
        fn decide_now(&self, take: &Take<'_>) -> TakeOutcome;
    }
    /// A backend with locks, as its author implements it. A lock is a name that one [`Owner`] at a time holds, until it
    /// releases it or the time to live has passed. [`LockSlot`](crate::lock::LockSlot) is the definition, as a program;
    /// [`Lock`](crate::lock::Lock) is what users have.
    ///
    /// Its obligations, by number; those of [`StoreBackend`] hold as well:
    ///
    /// 1. **One holder.** Each operation happens as a whole or not at all, and those on one name one after the other.
    ///    What is compared and what is changed is one step, in the store.
    /// 2. **Fencing.** Each acquisition of a name has a higher [`Fence`](crate::lock::Fence) than all before it, also
    ///    after it was released, has expired, or was not used for long.
    /// 3. **Idempotence.** An owner is one acquisition. Who asks again for what it holds gets the same fence, and the
    ///    whole time to live anew.
    /// 4. **Expiry.** A lock is free when its time to live has passed since the operation that set it, by the store's
    ///    clock: not before, and within a lag after that the backend documents. Clocks of clients decide nothing.
    /// 5. **Separate.** Any string is a name; two different ones never share a lock, and no lock shares anything with a
    ///    key of a policy.
    /// 6. **Errors.** An operation that failed with [`Effect::NotApplied`] changed nothing. One whose effect is
    ///    [`Effect::Unknown`] happened once or never; it is not sent again by the backend.
    trait LockBackend: StoreBackend => LockStore, AnyLockStore {
        /// Takes the lock `name` for `owner`, if it is free or held by that owner already.
        Acquire: async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition>;

        /// Lets `owner` hold the lock for `ttl` from now; false, and nothing changes, if it does not hold it any more.
        Extend: async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool>;

        /// Frees the lock; false, and nothing changes, if `owner` does not hold it any more.
        Release: async fn release(&self, name: &str, owner: Owner) -> Result<bool>;
    }
}

async fn decide_each<B: StoreBackend + ?Sized>(
    backend: &B,
    actions: &[Action<'_>],
) -> Results<Outcome, B::BaseError> {
    let mut outcomes = Vec::with_capacity(actions.len());
    for action in actions {
        outcomes.push(backend.decide(action).await);
    }
    outcomes
}
