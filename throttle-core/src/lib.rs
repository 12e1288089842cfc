//! Core.
pub mod kernel;
pub mod policy;
pub mod quota;
pub mod retry;
pub mod rule;
pub mod time;

mod action;
mod clock;
mod decision;
mod error;

pub use self::action::{Action, MAX_TIMES, Operand, Outcome};
pub use self::clock::{Clock, Sleep, SystemClock, ThreadClock};
pub use self::decision::{Decision, Limited, RuleDecision, Source};
pub use self::error::{DataError, SetupError};
pub use self::policy::{Policy, PolicyName};
pub use self::quota::{Quota, QuotaBuilder};
pub use self::rule::{Algorithm, Rule};
pub use self::time::Timestamp;
