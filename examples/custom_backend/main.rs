//! A backend of your own: whoever can compare and swap has every algorithm. The suite says whether it is right.
//!
//! ```sh
//! cargo run --example custom_backend              # every trial of the suite
//! cargo run --example custom_backend -- --list
//! ```

mod shelf;

use std::process::ExitCode;

use throttle::CasBackend;
use throttle_testkit::Conformance;

use crate::shelf::Shelf;

fn main() -> ExitCode {
    Conformance::of("shelf", || async { Ok(CasBackend::new(Shelf::default())) }).run()
}
