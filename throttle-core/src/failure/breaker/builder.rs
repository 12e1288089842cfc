//! [`BreakerBuilder`]: how a breaker is described, and what it is by default.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;

use super::{Breaker, Core, Shared, State};
use crate::SetupError;
use crate::retry::DecorrelatedJitter;

/// How many failures in a row open a breaker, unless said otherwise.
pub const DEFAULT_FAILURES: u32 = 5;
/// The shortest pause between two probes, unless said otherwise.
pub const DEFAULT_SHORTEST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two probes, unless said otherwise.
pub const DEFAULT_LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A [`Breaker`] that is being described.
#[must_use = "a description is not a breaker until it is built"]
pub struct BreakerBuilder {
    name: Option<Box<str>>,
    failures: u32,
    pauses: (Duration, Duration),
    rng: Box<dyn Rng + Send>,
}

impl BreakerBuilder {
    /// What [`Breaker::builder`] starts from.
    pub(super) fn new() -> Self {
        Self {
            name: None,
            failures: DEFAULT_FAILURES,
            pauses: (DEFAULT_SHORTEST_PAUSE, DEFAULT_LONGEST_PAUSE),
            rng: Box::new(rand::make_rng::<SmallRng>()),
        }
    }

    /// Its name in events and metrics. Default: the name of the policy of the limiter that it changes under; give one
    /// to a breaker that limiters share.
    pub fn name(self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// How many failures in a row open it. Default: [`DEFAULT_FAILURES`].
    pub fn failures(self, failures: u32) -> Self {
        Self { failures, ..self }
    }

    /// The shortest and the longest pause between two probes. Default: [`DEFAULT_SHORTEST_PAUSE`] and
    /// [`DEFAULT_LONGEST_PAUSE`].
    pub fn pauses(self, shortest: Duration, longest: Duration) -> Self {
        Self { pauses: (shortest, longest), ..self }
    }

    /// Where the pauses are drawn from. Default: a generator that the operating system seeds.
    pub fn rng(self, rng: impl Rng + Send + 'static) -> Self {
        Self { rng: Box::new(rng), ..self }
    }

    /// The breaker described.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if the failures are zero, or unless 0 < shortest ≤ longest pause.
    pub fn build(self) -> Result<Breaker, SetupError> {
        if self.failures == 0 {
            let reason = "must be at least 1".to_owned();
            return Err(SetupError::Setting { setting: "failures", reason });
        }
        let jitter = DecorrelatedJitter::new(self.pauses.0, self.pauses.1)?;
        Ok(self.with_jitter(jitter))
    }

    fn with_jitter(self, jitter: DecorrelatedJitter) -> Breaker {
        let Self { name, failures, pauses: (shortest_pause, _), rng } = self;
        let (state, notices) = (State::Closed { failures: 0 }, VecDeque::new());
        let core = Core { state, generation: 0, jitter, rng, notices, is_telling: false };
        Breaker(Arc::new(Shared { name, failures, shortest_pause, core: Mutex::new(core) }))
    }
}

impl fmt::Debug for BreakerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerBuilder")
            .field("name", &self.name)
            .field("failures", &self.failures)
            .field("pauses", &self.pauses)
            .finish_non_exhaustive()
    }
}

/// As [`Breaker::builder`] describes it.
impl Default for Breaker {
    fn default() -> Self {
        let jitter = DecorrelatedJitter::new(DEFAULT_SHORTEST_PAUSE, DEFAULT_LONGEST_PAUSE);
        Self::builder().with_jitter(jitter.unwrap_or_default())
    }
}
