#![doc = include_str!("../README.md")]

pub mod failure;
pub mod kernel;
pub mod lock;
pub mod observe;
pub mod policy;
pub mod quota;
pub mod retry;
pub mod rule;
pub mod store;
pub mod time;

mod action;
mod background;
mod cas;
mod clock;
mod decision;
mod error;
mod group_commit;
mod key;
mod key_list;
mod limiter;
mod panics;
mod per_rule;
#[cfg(feature = "serde")]
mod serde_text;
mod take;

pub use self::action::{Action, EXPIRY_MARGIN, EXPIRY_MARGIN_OWN_TIME, MAX_TIMES, Operand, Outcome};
pub use self::background::SeenThrough;
pub use self::cas::{CasBackend, CasError, CasOutcome, CasStore, Exchange, Versioned};
pub use self::clock::{Clock, Sleep, SystemClock, ThreadClock, WallClock};
pub use self::decision::{Decision, Limited, RuleDecision, Source};
pub use self::error::{DataError, SetupError, is_login_cut_short, validate_span};
pub use self::failure::{AnyLimiter, Breaker, BreakerBuilder, BreakerState, FailurePolicy};
pub use self::group_commit::GroupCommit;
pub use self::key::{
    MAX_KEY_BYTES, is_stored_as_is, lock_key, storage_key, storage_prefix, stored_key, validate_prefix,
};
pub use self::key_list::KeyList;
pub use self::limiter::{Blocking, Counts, RateLimiter, Reservation, Reserve, Taken};
pub use self::observe::Observer;
pub use self::policy::{Policy, PolicyName};
pub use self::quota::{Quota, QuotaBuilder};
pub use self::rule::{Algorithm, Rule};
pub use self::store::{
    AnyLockStore, AnyStore, BaseErrorSet, ConnectError, Effect, ErrorKind, Guarded, LockBackend, LockStore,
    Operation, Results, Store, StoreBackend, StoreUnavailableError,
};
pub use self::take::{Take, TakeOutcome};
pub use self::time::Timestamp;
