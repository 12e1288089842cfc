//! The shared vectors: lives of keys, step by step, with the answers an independent oracle gives.
//!
//! One line of JSON is one life: its rules, then steps with time, operation, cost and the expected answer.
//! [`SHARED`] holds the published set; [`Vectors`] reads any file of the form.

mod compare;
mod format;
mod run;

pub use self::format::{Life, VectorError, Vectors};
pub use self::run::{Mismatch, Report};

/// The published vectors: 400 lives.
pub const SHARED: &str = include_str!("../data/vectors.jsonl");
