//! [`Breaker`]: after so many failures in a row, nobody asks the store but one probe at a time.

mod builder;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;

pub use self::builder::{BreakerBuilder, DEFAULT_FAILURES, DEFAULT_LONGEST_PAUSE, DEFAULT_SHORTEST_PAUSE};
use crate::retry::DecorrelatedJitter;
use crate::{StoreUnavailableError, Timestamp};

/// A circuit breaker, after Nygard ("Release It!"). Cheap to clone; clones are the same breaker, so that limiters on one
/// store can share it, if they share a clock too.
///
/// - **Closed**: the store is asked. So many failures in a row open it; any answer of the store, also an error that is
///   no [outage](crate::ErrorKind::is_outage), starts the count anew.
/// - **Open**: the store is not asked. After a pause the next call is a probe. Pauses are drawn with
///   [`DecorrelatedJitter`], so that processes that failed together do not probe together.
/// - **Half-open**: the probe is under way, the others are not asked to wait for it. Its success closes the breaker, its
///   failure opens it for the next pause. A probe whose caller goes away opens it for the shortest pause.
///
/// What was asked before the state changed no longer counts. A call whose caller goes away is neither success nor
/// failure.
///
/// ```
/// use std::time::Duration;
/// use throttle_core::{Breaker, BreakerState};
///
/// let breaker = Breaker::builder()
///     .failures(3)
///     .pauses(Duration::from_millis(200), Duration::from_secs(5))
///     .build()?;
/// assert_eq!(breaker.state(), BreakerState::Closed);
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Clone)]
pub struct Breaker(Arc<Shared>);

struct Shared {
    name: Option<Box<str>>,
    failures: u32,
    shortest_pause: Duration,
    core: Mutex<Core>,
}

struct Core {
    state: State,
    /// Another one for each state: what was asked in an earlier one says nothing of this.
    generation: u64,
    jitter: DecorrelatedJitter,
    rng: Box<dyn Rng + Send>,
    /// What observers are still to be told, in order.
    notices: VecDeque<Notice>,
    is_telling: bool,
}

enum State {
    Closed { failures: u32 },
    Open { since: Timestamp, pause: Duration, cause: StoreUnavailableError },
    HalfOpen { cause: StoreUnavailableError },
}

/// What a breaker does with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Lets them through.
    Closed,
    /// Lets one through, to see.
    HalfOpen,
    /// Keeps them from the store.
    Open,
}

impl BreakerState {
    /// Its name in events, such as `half_open`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

/// A change of state on its way to those who watch.
pub(crate) type Notice = Box<dyn FnOnce() + Send>;

impl Breaker {
    /// Describes a breaker; [`build`](BreakerBuilder::build) makes it.
    ///
    /// # Panics
    ///
    /// If the operating system has no random bits to give.
    pub fn builder() -> BreakerBuilder {
        BreakerBuilder::new()
    }

    /// What it does with calls at present. An open breaker stays open until somebody calls.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        self.0.core.lock().state.kind()
    }

    /// Its name in events and metrics, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Lets a call through, or says which failure it is kept from the store for. `tell` makes the notice of a change.
    pub(crate) fn admit(&self, now: Timestamp, tell: impl Tell) -> Result<u64, StoreUnavailableError> {
        let mut core = self.0.core.lock();
        let admitted = match &core.state {
            State::Closed { .. } => Ok(core.generation),
            State::HalfOpen { cause } => Err(cause.clone()),
            State::Open { since, pause, cause } if !is_over(*since, *pause, now) => Err(cause.clone()),
            State::Open { cause, .. } => {
                let cause = cause.clone();
                Ok(core.change(State::HalfOpen { cause }, tell))
            }
        };
        drop(core);
        self.tell();
        admitted
    }

    /// What came of the call that was let through in `generation`: nothing if the store answered, else its failure.
    pub(crate) fn report(
        &self,
        generation: u64,
        failure: Option<&StoreUnavailableError>,
        now: Timestamp,
        tell: impl Tell,
    ) {
        let mut core = self.0.core.lock();
        if core.generation != generation {
            return;
        }
        match (&mut core.state, failure) {
            (State::Closed { failures }, None) => *failures = 0,
            (State::Closed { failures }, Some(cause)) => {
                *failures = failures.saturating_add(1);
                if *failures >= self.0.failures {
                    core.open(cause.clone(), now, tell);
                }
            }
            (State::HalfOpen { .. }, None) => {
                core.jitter.reset();
                core.change(State::Closed { failures: 0 }, tell);
            }
            (State::HalfOpen { .. }, Some(cause)) => core.open(cause.clone(), now, tell),
            (State::Open { .. }, _) => {}
        }
        drop(core);
        self.tell();
    }

    /// Nothing came of the call: its caller went away.
    pub(crate) fn abandon(&self, generation: u64, now: Timestamp, tell: impl Tell) {
        let mut core = self.0.core.lock();
        if core.generation == generation
            && let State::HalfOpen { cause } = &core.state
        {
            let (cause, pause) = (cause.clone(), self.0.shortest_pause);
            core.change(State::Open { since: now, pause, cause }, tell);
        }
        drop(core);
        self.tell();
    }

    /// How long until the store is asked again; none if it is asked at present.
    pub(crate) fn until_probe(&self, now: Timestamp) -> Option<Duration> {
        match &self.0.core.lock().state {
            State::Closed { .. } => None,
            State::HalfOpen { .. } => Some(self.0.shortest_pause),
            State::Open { since, pause, .. } => Some(pause.saturating_sub(now.saturating_since(*since))),
        }
    }

    /// Passes notices on, one at a time and in order, under no lock: whoever is told may ask the breaker.
    fn tell(&self) {
        loop {
            let mut core = self.0.core.lock();
            if core.is_telling {
                return;
            }
            let Some(notice) = core.notices.pop_front() else { return };
            core.is_telling = true;
            drop(core);
            notice();
            self.0.core.lock().is_telling = false;
        }
    }
}

/// Makes the notice of a change from one state to another, for this reason.
pub(crate) trait Tell:
    FnOnce(BreakerState, BreakerState, Option<StoreUnavailableError>) -> Notice
{
}

impl<F: FnOnce(BreakerState, BreakerState, Option<StoreUnavailableError>) -> Notice> Tell for F {}

impl Core {
    fn open(&mut self, cause: StoreUnavailableError, now: Timestamp, tell: impl Tell) {
        let pause = self.jitter.next_delay(&mut *self.rng);
        self.change(State::Open { since: now, pause, cause }, tell);
    }

    fn change(&mut self, state: State, tell: impl Tell) -> u64 {
        let from = self.state.kind();
        self.state = state;
        self.generation += 1;
        self.notices.push_back(tell(from, self.state.kind(), self.state.cause().cloned()));
        self.generation
    }
}

impl State {
    const fn kind(&self) -> BreakerState {
        match self {
            Self::Closed { .. } => BreakerState::Closed,
            Self::Open { .. } => BreakerState::Open,
            Self::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    const fn cause(&self) -> Option<&StoreUnavailableError> {
        match self {
            Self::Closed { .. } => None,
            Self::Open { cause, .. } | Self::HalfOpen { cause } => Some(cause),
        }
    }
}

/// Whether a pause is over: also if the clock has stepped back by more than all of it.
fn is_over(since: Timestamp, pause: Duration, now: Timestamp) -> bool {
    now.saturating_since(since) >= pause || since.saturating_since(now) > pause
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("name", &self.name())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;
    use crate::failure::DeadlineExceeded;

    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(2);

    fn failure() -> StoreUnavailableError {
        StoreUnavailableError::on_connect("store", DeadlineExceeded { limit: SHORTEST })
    }

    fn quietly(_: BreakerState, _: BreakerState, _: Option<StoreUnavailableError>) -> Notice {
        Box::new(|| ())
    }

    fn seeded(seed: u64, failures: u32) -> Breaker {
        let rng = rand::rngs::Xoshiro256PlusPlus::seed_from_u64(seed);
        Breaker::builder().failures(failures).pauses(SHORTEST, LONGEST).rng(rng).build().unwrap()
    }

    /// What happens to a breaker.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Ask,
        /// The oldest or the latest call that is under way succeeds, fails, or is abandoned.
        End {
            latest: bool,
            how: u8,
        },
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Ask),
            3 => (any::<bool>(), 0_u8..3).prop_map(|(latest, how)| Step::End { latest, how }),
            1 => (0_u64..3_000_000).prop_map(Step::Pass),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_one_probe_at_a_time_and_back_in_the_end(
            seed: u64, failures in 1_u32..4, steps in prop::collection::vec(step(), 0..200),
        ) {
            let (breaker, mut now) = (seeded(seed, failures), Timestamp::from_micros(1 << 50).unwrap());
            let mut under_way: Vec<(u64, BreakerState)> = Vec::new();
            for step in steps {
                let before = breaker.state();
                match step {
                    Step::Ask => {
                        let admitted = breaker.admit(now, quietly);
                        prop_assert_eq!(admitted.is_ok(), breaker.state() == BreakerState::Closed
                            || (before == BreakerState::Open && breaker.state() == BreakerState::HalfOpen));
                        under_way.extend(admitted.ok().map(|generation| (generation, breaker.state())));
                    }
                    Step::End { .. } if under_way.is_empty() => {}
                    Step::End { latest, how } => {
                        let (generation, _) = under_way.remove(if latest { under_way.len() - 1 } else { 0 });
                        match how {
                            0 => breaker.report(generation, None, now, quietly),
                            1 => breaker.report(generation, Some(&failure()), now, quietly),
                            _ => breaker.abandon(generation, now, quietly),
                        }
                    }
                    Step::Pass(micros) => now = now.saturating_add(Duration::from_micros(micros)),
                }
                let current = breaker.0.core.lock().generation;
                let probes = under_way.iter().filter(|(generation, state)| {
                    *generation == current && *state == BreakerState::HalfOpen
                });
                prop_assert_eq!(probes.count(), usize::from(breaker.state() == BreakerState::HalfOpen));
                prop_assert!(breaker.until_probe(now).is_none_or(|pause| pause <= LONGEST));
            }
            // Whoever is still under way ends somehow; then the store is well.
            for (generation, _) in under_way {
                breaker.abandon(generation, now, quietly);
            }
            now = now.saturating_add(LONGEST);
            let probe = breaker.admit(now, quietly).unwrap();
            breaker.report(probe, None, now, quietly);
            prop_assert_eq!(breaker.state(), BreakerState::Closed);
        }

        #[test]
        fn pauses_are_jittered_within_their_bounds(seed: u64) {
            let (breaker, mut now) = (seeded(seed, 1), Timestamp::EPOCH);
            let mut pauses = std::collections::HashSet::new();
            for _ in 0..20 {
                let probe = breaker.admit(now, quietly).unwrap();
                breaker.report(probe, Some(&failure()), now, quietly);
                let pause = breaker.until_probe(now).unwrap();
                prop_assert!((SHORTEST..=LONGEST).contains(&pause));
                now = now.saturating_add(pause + Duration::from_micros(1));
                pauses.insert(pause);
            }
            prop_assert!(pauses.len() > 15, "no two processes keep step");
        }
    }
}
