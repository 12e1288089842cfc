//! Side-by-side measuring.
