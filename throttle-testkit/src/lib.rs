#![doc = include_str!("../README.md")]

pub mod conformance;
pub mod faulty;
pub mod strategies;
pub mod vectors;

mod clock;
mod name;
mod reference;
mod slow_line;

pub use self::clock::ManualClock;
pub use self::conformance::Conformance;
pub use self::faulty::{Fault, Faults, FaultyBackend, InjectedError};
pub use self::reference::ReferenceBackend;
pub use self::slow_line::SlowLine;

/// What trials are made of, for those who add their own.
pub use libtest_mimic::{Failed, Trial};
