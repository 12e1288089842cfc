//! The embedded store of throttle: a sharded, bounded, self-sweeping table.
