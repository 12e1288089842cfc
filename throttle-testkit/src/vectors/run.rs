//! Runs vectors against a store.

use std::fmt;

use futures_util::StreamExt;
use throttle_core::{Decision, Policy, Store, StoreUnavailableError};

use super::format::Expected;
use super::{Life, Vectors};

/// How many lives are lived at once.
const AT_ONCE: usize = 16;

/// How a store did. `Display` shows the first mismatch of each life, and ends with `N passed, M failed`.
#[derive(Debug, Default)]
pub struct Report {
    passed: usize,
    failed: usize,
    mismatches: Vec<Mismatch>,
}

/// The first step of a life that was answered otherwise than expected.
#[derive(Debug)]
pub struct Mismatch {
    life: String,
    step: usize,
    policy: Policy,
    expected: Expected,
    got: Result<Expected, StoreUnavailableError>,
}

impl Vectors {
    /// Runs every life on `store`, each under a policy of its own with a fresh name, so that what else is stored
    /// does not matter.
    pub async fn run(&self, store: &impl Store) -> Report {
        let lives = self.lives.iter().map(|life| life.run(store));
        let reports = futures_util::stream::iter(lives).buffered(AT_ONCE).collect::<Vec<_>>().await;
        reports.into_iter().fold(Report::default(), Report::and)
    }
}

impl Life {
    async fn run(&self, store: &impl Store) -> Report {
        let mut report = Report::default();
        // The rules were built when the life was read, and fresh names are names of policies.
        let Ok(policy) = self.policy(&crate::name::fresh()) else { return report };
        for (at, step) in self.steps.iter().enumerate() {
            let action = step.action(&policy, &self.id);
            let got = match action.is_hopeless() {
                true => Ok(Decision::never(policy.capacity())),
                false => store.decide(&action).await.map(|outcome| Decision::of(&action, &outcome, 0)),
            };
            let got = got.map(|decision| Expected::of(&decision));
            if matches!(&got, Ok(got) if *got == step.expect) {
                report.passed += 1;
                continue;
            }
            report.failed += 1;
            if report.mismatches.is_empty() {
                let (life, policy, expected) = (self.id.clone(), policy.clone(), step.expect.clone());
                report.mismatches.push(Mismatch { life, step: at, policy, expected, got });
            }
        }
        report
    }
}

impl Report {
    /// How many steps were answered as expected.
    #[must_use]
    pub const fn passed(&self) -> usize {
        self.passed
    }

    /// How many were not.
    #[must_use]
    pub const fn failed(&self) -> usize {
        self.failed
    }

    /// The first mismatch of each life that has any.
    #[must_use]
    pub fn mismatches(&self) -> &[Mismatch] {
        &self.mismatches
    }

    fn and(mut self, other: Self) -> Self {
        self.passed += other.passed;
        self.failed += other.failed;
        self.mismatches.extend(other.mismatches);
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mismatch in &self.mismatches {
            writeln!(f, "{mismatch}")?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "life {} step {} under {:?}", self.life, self.step, self.policy)?;
        writeln!(f, "  expected {:?}", self.expected)?;
        match &self.got {
            Ok(got) => write!(f, "  got      {got:?}"),
            Err(error) => write!(f, "  got      {error}: {}", source_of(error)),
        }
    }
}

fn source_of(error: &StoreUnavailableError) -> String {
    std::error::Error::source(error).map_or_else(String::new, ToString::to_string)
}
