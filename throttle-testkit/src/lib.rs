//! Conformance suite and fault-injecting backend for throttle stores.
