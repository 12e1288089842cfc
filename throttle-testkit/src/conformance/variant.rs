//! One backend as the suite meets it: how it is made, what it needs, what it lets the suite see.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use throttle_core::{PolicyName, StoreBackend};
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, RwLock};

use super::{AnyError, CASES, REQUIRE};

type Later<T> = LocalBoxFuture<'static, T>;
type Connect<B> = Box<dyn Fn() -> Later<Result<B, AnyError>> + Send + Sync>;
type Count<B> = Box<dyn Fn(Arc<B>, PolicyName) -> Later<Result<u64, AnyError>> + Send + Sync>;
type Lifetime<B> =
    Box<dyn Fn(Arc<B>, PolicyName, String) -> Later<Result<Option<Duration>, AnyError>> + Send + Sync>;
type Pass<B> = Box<dyn Fn(Arc<B>, Duration) -> Later<()> + Send + Sync>;

pub(super) struct Variant<B> {
    pub(super) name: String,
    connect: Connect<B>,
    backend: OnceCell<Result<Arc<B>, String>>,
    pub(super) requires: Vec<&'static str>,
    pub(super) cases: u32,
    pub(super) deadline: Duration,
    pub(super) own_clock: bool,
    /// How much longer than it must a state may be stored that is to be stored so long.
    pub(super) slack: fn(Duration) -> Duration,
    pub(super) across_processes: bool,
    pub(super) lock_ttl: Duration,
    pub(super) lock_lag: Duration,
    /// Whether failures are explored: made smaller, and noted.
    pub(super) explores: bool,
    pub(super) count: Option<Count<B>>,
    pub(super) time_to_live: Option<Lifetime<B>>,
    pub(super) pass: Option<Pass<B>>,
    /// Where time is let pass, it passes for all trials: those that measure it hold this alone.
    pub(super) time: RwLock<()>,
}

/// Whether the trials of a variant can run here.
pub(super) enum Readiness {
    Ready,
    /// Its service is not configured, which is fine.
    Ignored(String),
    /// Its service is not configured, although it was asked for.
    Missing(String),
}

impl<B: StoreBackend> Variant<B> {
    pub(super) fn new<F, Fut>(name: &str, connect: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, AnyError>> + 'static,
    {
        Self {
            name: name.to_owned(),
            connect: Box::new(move || Box::pin(connect())),
            backend: OnceCell::new(),
            requires: Vec::new(),
            cases: 64,
            deadline: Duration::from_secs(60),
            own_clock: true,
            slack: |_| Duration::ZERO,
            across_processes: false,
            lock_ttl: Duration::from_millis(300),
            lock_lag: Duration::from_millis(300),
            explores: true,
            count: None,
            time_to_live: None,
            pass: None,
            time: RwLock::new(()),
        }
    }

    /// The one that trials share.
    pub(super) async fn backend(&self) -> Result<Arc<B>, String> {
        self.backend.get_or_init(|| self.another_backend()).await.clone()
    }

    /// One that nobody else has.
    pub(super) async fn another_backend(&self) -> Result<Arc<B>, String> {
        let connected = tokio::time::timeout(self.deadline, (self.connect)()).await;
        let connected = connected.map_err(|_| format!("no connection within {:?}", self.deadline))?;
        connected.map(Arc::new).map_err(|error| format!("cannot connect: {}", chain(&*error)))
    }

    pub(super) fn readiness(&self) -> Readiness {
        let required = std::env::var(REQUIRE).unwrap_or_default();
        readiness(&self.name, &self.requires, |name| std::env::var(name).ok(), &required)
    }

    pub(super) fn cases(&self) -> u32 {
        std::env::var(CASES).ok().and_then(|cases| cases.parse().ok()).unwrap_or(self.cases)
    }
}

fn readiness(
    name: &str,
    requires: &[&str],
    variable: impl Fn(&str) -> Option<String>,
    required: &str,
) -> Readiness {
    let is_unset = |wanted: &&&str| variable(wanted).is_none_or(|value| value.is_empty());
    let Some(unset) = requires.iter().find(is_unset) else { return Readiness::Ready };
    match required.split(',').map(str::trim).find(|entry| is_named(name, entry)) {
        Some(entry) => Readiness::Missing(format!("{REQUIRE} names {entry}, but {unset} is not set")),
        None => Readiness::Ignored(format!("{unset} is not set")),
    }
}

/// `redis` names `redis` and `redis-cluster`; `all` names all.
fn is_named(name: &str, entry: &str) -> bool {
    entry == "all"
        || !entry.is_empty()
            && name.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '/']))
}

/// An error and its causes.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl<B> fmt::Debug for Variant<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variant").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The runtime on which all trials of this process run.
pub(super) fn runtime() -> Result<&'static Runtime, String> {
    static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
    let build = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    RUNTIME.get_or_init(build).as_ref().map_err(|error| format!("no tokio runtime: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str, set: &[&str], required: &str) -> String {
        let variable = |wanted: &str| set.contains(&wanted).then(|| "here".to_owned());
        match readiness(name, &["URL"], variable, required) {
            Readiness::Ready => "ready".to_owned(),
            Readiness::Ignored(reason) => format!("ignored: {reason}"),
            Readiness::Missing(reason) => format!("missing: {reason}"),
        }
    }

    #[test]
    fn a_service_is_used_ignored_or_missed() {
        assert_eq!(state("redis", &["URL"], "redis"), "ready");
        assert_eq!(state("redis", &[], ""), "ignored: URL is not set");
        assert_eq!(state("redis", &[], "postgres, etcd"), "ignored: URL is not set");
        let missing = "missing: THROTTLE_TEST_REQUIRE names redis, but URL is not set";
        assert_eq!(state("redis", &[], "postgres, redis"), missing);
        assert_eq!(state("redis-cluster", &[], "redis"), missing);
        assert_eq!(state("redis", &[], "redis-cluster"), "ignored: URL is not set");
        assert_eq!(state("rediscover", &[], "redis"), "ignored: URL is not set");
    }
}
