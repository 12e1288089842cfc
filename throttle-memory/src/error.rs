//! The family of errors: none. Memory does not fail.

pub(crate) use std::convert::Infallible as MemoryError;
