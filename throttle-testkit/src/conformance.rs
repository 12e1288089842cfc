//! [`Conformance`]: one suite for every backend, as small named trials.

mod batch;
mod cancellation;
mod cases;
mod check;
mod concurrency;
mod errors;
mod expiry;
mod fixtures;
mod group;
mod keys;
mod lab;
mod laws;
mod locks;
mod model;
mod property;
mod reset;
mod scene;
mod shared_vectors;
mod variant;

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use throttle_core::{LockBackend, PolicyName, StoreBackend};

pub use self::group::Verdict;

use self::group::Case;
use self::variant::Variant;

/// What a factory or a hook of a backend may fail with: anything.
pub type AnyError = Box<dyn Error + Send + Sync>;

/// Names the environment variable that lists, separated by commas, the backends whose trials must not be ignored.
pub const REQUIRE: &str = "THROTTLE_TEST_REQUIRE";

/// Names the environment variable that says how many cases each property is tried with.
pub const CASES: &str = "THROTTLE_TEST_CASES";

/// The suite for one backend. A trial is called `backend::group::name`, has a namespace of its own and deletes nobody
/// else's data; trials run side by side.
///
/// ```no_run
/// use std::process::ExitCode;
/// use throttle_testkit::{Conformance, ReferenceBackend};
///
/// fn main() -> ExitCode {
///     Conformance::of("reference", || async { Ok(ReferenceBackend::default()) }).run()
/// }
/// ```
#[derive(Debug)]
#[must_use = "nothing is tried until it is run"]
pub struct Conformance<B: StoreBackend> {
    variant: Variant<B>,
    of_locks: fn(&Arc<Variant<B>>) -> Vec<Case>,
    others: Vec<Case>,
}

impl<B: LockBackend> Conformance<B> {
    /// Adds the trials of locks.
    pub fn with_locks(mut self) -> Self {
        self.of_locks = locks::cases;
        self
    }

    /// What one process stores, another one sees: enables the trial of a holder that is killed, in which this test program
    /// runs itself. The child finds the process id of its parent in `THROTTLE_TESTKIT_PARENT`.
    pub const fn across_processes(mut self) -> Self {
        self.variant.across_processes = true;
        self
    }

    /// The time to live of locks that trials let expire, 300 ms, and for how long after it one may still be held, 300 ms
    /// too. For backends that count in larger units.
    pub const fn lock_times(mut self, ttl: Duration, lag: Duration) -> Self {
        self.variant.lock_ttl = ttl;
        self.variant.lock_lag = lag;
        self
    }
}

impl<B: StoreBackend> Conformance<B> {
    /// The suite for the backend that `connect` makes, called `name` in the names of its trials. It is made when the first
    /// trial needs it, on the tokio runtime on which all trials run, and once more for each trial that looks at what is
    /// stored: others inject times, after which a store need not let anything expire by its own.
    pub fn of<F, Fut>(name: &str, connect: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, AnyError>> + 'static,
    {
        Self { variant: Variant::new(name, connect), of_locks: |_| Vec::new(), others: Vec::new() }
    }

    /// Ignores all trials while the environment variable `variable` is not set: it says where the backend's service
    /// is. If [`REQUIRE`] names the backend, or the part of its name before a `-` or `/`, or `all`, they fail instead.
    pub fn requires(mut self, variable: &'static str) -> Self {
        self.variant.requires.push(variable);
        self
    }

    /// How many cases each property is tried with, unless [`CASES`] says: 64.
    pub const fn cases(mut self, cases: u32) -> Self {
        self.variant.cases = cases;
        self
    }

    /// How long one trial, or one case of a property, may take: 60 s. What takes longer has failed.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.variant.deadline = deadline;
        self
    }

    /// Leaves out the trials that decide at the backend's own time.
    pub const fn without_own_clock(mut self) -> Self {
        self.variant.own_clock = false;
        self
    }

    /// Lets the suite see how many keys are stored under a policy: enables the trials of expiry. States that a sweep
    /// would remove next may be left out, or swept first.
    pub fn counts<F, Fut>(mut self, count: F) -> Self
    where
        F: Fn(Arc<B>, PolicyName) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<u64, AnyError>> + 'static,
    {
        self.variant.count = Some(Box::new(move |backend, policy| Box::pin(count(backend, policy))));
        self
    }

    /// Lets the suite see how long a key's state will still be stored (none if nothing is): enables the trials of
    /// times to live.
    pub fn times_to_live<F, Fut>(mut self, time_to_live: F) -> Self
    where
        F: Fn(Arc<B>, PolicyName, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Duration>, AnyError>> + 'static,
    {
        let hook = move |backend, policy, key| Box::pin(time_to_live(backend, policy, key)) as _;
        self.variant.time_to_live = Some(Box::new(hook));
        self
    }

    /// How much longer than the [margin](throttle_core::Action::expiry_margin) the backend may keep a state, by how long
    /// that is to be stored, margin included: zero, unless it says otherwise. For stores that expire in coarse steps.
    pub const fn keeps_longer(mut self, slack: fn(Duration) -> Duration) -> Self {
        self.variant.slack = slack;
        self
    }

    /// Lets time pass for the backend's own clock in another way than by waiting for it.
    pub fn lets_time_pass<F, Fut>(mut self, pass: F) -> Self
    where
        F: Fn(Arc<B>, Duration) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        self.variant.pass = Some(Box::new(move |backend, span| Box::pin(pass(backend, span))));
        self
    }

    /// Another backend, or another variant of this one, in the same test program.
    pub fn and<C: StoreBackend>(mut self, other: Conformance<C>) -> Self {
        self.others.extend(other.into_cases());
        self
    }

    /// Runs the suite as the test program that this is, with the arguments of `cargo test`.
    #[must_use]
    pub fn run(self) -> ExitCode {
        libtest_mimic::run(&Arguments::from_args(), self.trials()).exit_code()
    }

    /// The suite as trials, to be run together with others.
    #[must_use]
    pub fn trials(self) -> Vec<Trial> {
        self.into_cases().into_iter().map(Case::into_trial).collect()
    }

    /// Runs the trials whose names `select` picks, one after the other, and says how each went. For tests of the
    /// suite itself, with backends that must not pass: failures are neither made smaller nor noted.
    #[must_use]
    pub fn verdicts(mut self, select: impl Fn(&str) -> bool) -> Vec<Verdict> {
        self.variant.explores = false;
        let cases = self.into_cases().into_iter().filter(|case| select(case.name()));
        cases.map(Case::into_verdict).collect()
    }

    fn into_cases(self) -> Vec<Case> {
        let variant = Arc::new(self.variant);
        let mut cases = all_cases(&variant);
        cases.extend((self.of_locks)(&variant));
        cases.extend(self.others);
        cases
    }
}

fn all_cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    let groups = [
        shared_vectors::cases,
        laws::cases,
        model::cases,
        fixtures::cases,
        cases::cases,
        batch::cases,
        keys::cases,
        reset::cases,
        errors::cases,
        concurrency::cases,
        cancellation::cases,
        expiry::cases,
    ];
    groups.into_iter().flat_map(|group| group(variant)).collect()
}
