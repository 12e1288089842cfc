//! From functions to named trials.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use libtest_mimic::{Completion, Failed, Trial};
use throttle_core::StoreBackend;

use super::check::Checked;
use super::lab::Lab;
use super::variant::{Readiness, Variant, runtime};

/// A trial that has not been run.
pub(super) struct Case {
    name: String,
    run: Box<dyn FnOnce() -> Result<Completion, Failed> + Send>,
}

/// How one trial went.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It passed.
    Passed(String),
    /// It did not apply here.
    Ignored(String),
    /// It failed.
    Failed {
        /// Name of the trial.
        name: String,
        /// What went wrong.
        message: String,
    },
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

impl Case {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn into_trial(self) -> Trial {
        Trial::ignorable_test(self.name, self.run)
    }

    pub(super) fn into_verdict(self) -> Verdict {
        let Self { name, run } = self;
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(Completion::Completed)) => Verdict::Passed(name),
            Ok(Ok(Completion::Ignored { .. })) => Verdict::Ignored(name),
            Ok(Err(failed)) => {
                Verdict::Failed { name, message: failed.message().unwrap_or_default().to_owned() }
            }
            Err(_) => Verdict::Failed { name, message: "it panicked".to_owned() },
        }
    }
}

/// Trials of one subject.
pub(super) struct Group<'a, B> {
    variant: &'a Arc<Variant<B>>,
    name: &'static str,
    ignored: Option<&'static str>,
    measures_time: bool,
    shares: bool,
    cases: Vec<Case>,
}

impl<'a, B: StoreBackend> Group<'a, B> {
    pub(super) fn new(variant: &'a Arc<Variant<B>>, name: &'static str) -> Self {
        Self { variant, name, ignored: None, measures_time: false, shares: true, cases: Vec::new() }
    }

    /// Ignores what is added from here on, unless `condition`.
    pub(super) fn only_if(mut self, condition: bool, otherwise: &'static str) -> Self {
        self.ignored = (!condition).then_some(otherwise);
        self
    }

    /// Nobody else lets time pass while one of these trials runs.
    pub(super) fn measuring_time(mut self) -> Self {
        self.measures_time = true;
        self
    }

    /// Each of these trials has a backend of its own, to which others bring nothing.
    pub(super) fn each_alone(mut self) -> Self {
        self.shares = false;
        self
    }

    pub(super) fn into_cases(self) -> Vec<Case> {
        self.cases
    }

    /// A trial of one scene.
    pub(super) fn trial<F, Fut>(self, name: impl Into<String>, scene: F) -> Self
    where
        F: FnOnce(Lab<B>) -> Fut + Send + 'static,
        Fut: Future<Output = Checked>,
    {
        self.property(name, move |lab: &Lab<B>| {
            let deadline = lab.deadline();
            let scene = scene(lab.clone());
            runtime()?.block_on(async {
                tokio::time::timeout(deadline, scene)
                    .await
                    .unwrap_or_else(|_| Err(format!("not done within {deadline:?}").into()))
            })
        })
    }

    /// A trial of many scenes, each of which is run on the runtime by itself.
    pub(super) fn property(
        mut self,
        name: impl Into<String>,
        law: impl FnOnce(&Lab<B>) -> Checked + Send + 'static,
    ) -> Self {
        let (variant, ignored, measures) = (Arc::clone(self.variant), self.ignored, self.measures_time);
        let shares = self.shares;
        let name = format!("{}::{}::{}", variant.name, self.name, name.into());
        let run = move || match (variant.readiness(), ignored) {
            (Readiness::Missing(reason), _) => Err(reason.into()),
            (Readiness::Ignored(reason), _) => Ok(Completion::ignored_with(reason)),
            (Readiness::Ready, Some(reason)) => Ok(Completion::ignored_with(reason)),
            (Readiness::Ready, None) => {
                let runtime = runtime()?;
                let backend = match shares {
                    true => runtime.block_on(variant.backend())?,
                    false => runtime.block_on(variant.another_backend())?,
                };
                let time =
                    (measures && variant.pass.is_some()).then(|| runtime.block_on(variant.time.write()));
                let lab = Lab::new(Arc::clone(&variant), backend, time.is_some());
                law(&lab).map(|()| Completion::Completed)
            }
        };
        self.cases.push(Case { name, run: Box::new(run) });
        self
    }
}

/// Adds functions to a group, each under its own name: `trials!(group; first, second)`.
macro_rules! trials {
    ($group:expr; $($name:ident),+ $(,)?) => { $group $(.trial(stringify!($name), $name))+ };
}

/// The same for laws.
macro_rules! properties {
    ($group:expr; $($name:ident),+ $(,)?) => { $group $(.property(stringify!($name), $name))+ };
}

pub(super) use {properties, trials};
