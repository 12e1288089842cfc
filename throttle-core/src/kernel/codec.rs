//! The packed form of a stored state, for stores that keep bytes.
