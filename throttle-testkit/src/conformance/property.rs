//! Properties: one law, tried with many generated cases; failures are found again by their seeds.

use std::any::Any;
use std::fmt;

use libtest_mimic::Failed;
use proptest::strategy::Strategy;
use proptest::test_runner::{
    Config, FailurePersistence, FileFailurePersistence, PersistedSeed, TestCaseError, TestRunner,
};
use throttle_core::{Decision, Policy, StoreBackend, Timestamp};

use super::check::Checked;
use super::lab::{Lab, at};
use super::variant::runtime;
use crate::strategies::{Gap, Step};

/// How long the search for a smaller case may take, in milliseconds: stores may be slow.
const SHRINKING_MS: u32 = 20_000;

/// Seeds of cases that once failed: every backend is tried with them first.
const REGRESSIONS: &str = include_str!("../../data/regressions.txt");

/// Where new failures are noted, in the package under test.
const NOTED_IN: &str = "proptest-regressions/conformance.txt";

impl<B: StoreBackend> Lab<B> {
    /// Tries `law` with cases of `strategy`, each within the deadline.
    pub(super) fn forall<S: Strategy>(
        &self,
        strategy: &S,
        law: impl AsyncFn(S::Value) -> Checked,
    ) -> Checked {
        self.forall_of(self.cases(), strategy, law)
    }

    /// The same with so many cases.
    pub(super) fn forall_of<S: Strategy>(
        &self,
        cases: u32,
        strategy: &S,
        law: impl AsyncFn(S::Value) -> Checked,
    ) -> Checked {
        let (runtime, deadline) = (runtime()?, self.deadline());
        let (noted, shrinking) = match self.explores() {
            true => (FileFailurePersistence::Direct(NOTED_IN), u32::MAX),
            false => (FileFailurePersistence::Off, 0),
        };
        let config = Config {
            cases,
            max_shrink_iters: shrinking,
            max_shrink_time: SHRINKING_MS,
            failure_persistence: Some(Box::new(Regressions(noted))),
            ..Config::default()
        };
        let try_one = |case| {
            let within = async { tokio::time::timeout(deadline, law(case)).await };
            match runtime.block_on(within) {
                Ok(Ok(())) => Ok(()),
                Ok(Err(failed)) => Err(TestCaseError::fail(failed.message().unwrap_or("failed").to_owned())),
                Err(_) => Err(TestCaseError::fail(format!("not done within {deadline:?}"))),
            }
        };
        TestRunner::new(config).run(strategy, try_one).map_err(|error| Failed::from(error.to_string()))
    }
}

/// The published seeds, then those noted here.
#[derive(Clone)]
struct Regressions(FileFailurePersistence);

impl fmt::Debug for Regressions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NOTED_IN)
    }
}

impl FailurePersistence for Regressions {
    fn load_persisted_failures2(&self, source: Option<&'static str>) -> Vec<PersistedSeed> {
        let seeds = REGRESSIONS.lines().filter_map(|line| line.parse().ok());
        seeds.chain(self.0.load_persisted_failures2(source)).collect()
    }

    fn save_persisted_failure2(
        &mut self,
        source: Option<&'static str>,
        seed: PersistedSeed,
        shrunken: &dyn fmt::Debug,
    ) {
        self.0.save_persisted_failure2(source, seed, shrunken);
    }

    fn box_clone(&self) -> Box<dyn FailurePersistence> {
        Box::new(self.clone())
    }

    fn eq(&self, other: &dyn FailurePersistence) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| self.0 == other.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The time of a story, moved by its steps.
pub(super) struct Clockwork {
    now: Timestamp,
    retry_micros: u64,
    reset_micros: u64,
}

/// Early enough that a story never reaches the end of time, late enough that it can step back.
impl Default for Clockwork {
    fn default() -> Self {
        Self { now: at(0), retry_micros: 0, reset_micros: 0 }
    }
}

impl Clockwork {
    pub(super) const fn now(&self) -> Timestamp {
        self.now
    }

    /// The time of `step`.
    pub(super) fn move_by(&mut self, step: &Step, policy: &Policy) -> Timestamp {
        let by = match step.gap {
            Gap::By(micros) => micros,
            Gap::Interval { rule, rest } => interval_of(policy, rule).saturating_add(rest),
            Gap::Periods { rule, periods, rest } => {
                period_of(policy, rule).saturating_mul(periods).saturating_add(rest)
            }
            Gap::Retry(rest) => i64::try_from(self.retry_micros).unwrap_or(0).saturating_add(rest),
            Gap::Reset(rest) => i64::try_from(self.reset_micros).unwrap_or(0).saturating_add(rest),
        };
        self.now = moved(self.now, by);
        self.now
    }

    /// Remembers what was answered, for steps that follow the advice.
    pub(super) fn note(&mut self, decision: &Decision) {
        self.retry_micros = decision.retry_after().map_or(0, micros);
        self.reset_micros = micros(decision.reset_after());
    }
}

fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// `now` moved by `by`, but never so late that the answers reach the end of time.
fn moved(now: Timestamp, by: i64) -> Timestamp {
    const LATEST: u64 = 1 << 51;
    let moved = now.as_micros().saturating_add_signed(by);
    Timestamp::saturating_from_micros(if moved < LATEST { moved } else { LATEST })
}

fn interval_of(policy: &Policy, rule: usize) -> i64 {
    chosen(policy, rule).map_or(0, |rule| {
        let quota = rule.quota();
        i64::try_from(quota.period().as_micros() / u128::from(quota.limit())).unwrap_or(0)
    })
}

fn period_of(policy: &Policy, rule: usize) -> i64 {
    chosen(policy, rule).map_or(0, |rule| i64::try_from(rule.quota().period().as_micros()).unwrap_or(0))
}

fn chosen(policy: &Policy, rule: usize) -> Option<&throttle_core::Rule> {
    policy.rules().get(rule % policy.rules().len().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_seed_is_read() {
        let published = REGRESSIONS.lines().filter(|line| line.starts_with("cc ")).count();
        let read = Regressions(FileFailurePersistence::Off).load_persisted_failures2(None).len();
        assert!(published > 0);
        assert_eq!(read, published);
    }
}
