//! The seam between the limiter and its stores: what an author implements, and what a user calls.

mod error;
mod operations;

pub use self::error::{BaseErrorSet, ConnectError, Effect, ErrorKind, StoreUnavailableError};

use self::operations::store_operations;
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
