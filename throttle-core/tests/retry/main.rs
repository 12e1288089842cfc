//! What `Retry` does, seen from outside. Time is moved by hand or by tokio's paused clock: nothing here waits.

// Said again here, because what lints allow in tests they look for by this attribute.
#[cfg(test)]
mod dropped;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod limiter;
#[cfg(test)]
mod support;
