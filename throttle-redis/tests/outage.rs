//! A server that is paused, stopped, killed and back again, under each failure policy: answered in time, and served by the
//! store again without a restart of the client.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::own::Own;
use futures_util::future::join_all;
use parking_lot::Mutex;
use throttle_core::observe::{BreakerEvent, Observer};
use throttle_core::{
    Breaker, BreakerState, Decision, FailurePolicy, Guarded, Policy, RateLimiter, Rule, Source,
    StoreUnavailableError,
};
use throttle_redis::RedisBackend;
use throttle_testkit::ReferenceBackend;

type Limiter = RateLimiter<Guarded<RedisBackend>>;

const DEADLINE: Duration = Duration::from_millis(100);
/// Two cores, shared by many: what is late by less than this is the machine's fault.
const SLACK: Duration = Duration::from_secs(2);

/// What a breaker did.
#[derive(Default)]
struct Changes(Mutex<Vec<(BreakerState, BreakerState)>>);

impl Observer for Changes {
    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        self.0.lock().push((event.from, event.to));
    }
}

fn policy() -> Policy {
    Policy::new("outage", [Rule::gcra("1000000/h").unwrap()]).unwrap()
}

/// A limiter of its own connection, and what its breaker did.
async fn limiter(server: &Own, failure: FailurePolicy) -> (Limiter, Arc<Changes>) {
    let changes = Arc::new(Changes::default());
    let pauses = (Duration::from_millis(100), Duration::from_millis(400));
    let breaker = Breaker::builder().failures(5).pauses(pauses.0, pauses.1).build().unwrap();
    let limiter = RateLimiter::new(policy(), server.backend().await)
        .on_failure(failure)
        .deadline(DEADLINE)
        .breaker(breaker)
        .observe(Arc::clone(&changes));
    (limiter, changes)
}

fn policies() -> [FailurePolicy; 4] {
    let local = RateLimiter::new(policy().share(1, 4).unwrap(), ReferenceBackend::default());
    [
        FailurePolicy::Propagate,
        FailurePolicy::FailOpen,
        FailurePolicy::FailClosed,
        FailurePolicy::fallback(local),
    ]
}

/// Whether that is how the policy of the limiter answers for a store that does not.
fn is_answer_of(failure: &FailurePolicy, answer: &Result<Decision, StoreUnavailableError>) -> bool {
    match (failure, answer) {
        (FailurePolicy::Propagate, Err(error)) => error.kind().is_outage(),
        (FailurePolicy::FailOpen, Ok(decision)) => {
            decision.source() == Source::Policy && decision.is_allowed()
        }
        (FailurePolicy::FailClosed, Ok(decision)) => {
            decision.source() == Source::Policy && !decision.is_allowed()
        }
        (FailurePolicy::Fallback(_), Ok(decision)) => decision.source() == Source::Fallback,
        _ => false,
    }
}

async fn until_served(limiter: &Limiter) {
    let since = Instant::now();
    while !matches!(limiter.check("key").await, Ok(decision) if decision.source() == Source::Store) {
        assert!(since.elapsed() < Duration::from_secs(20), "it does not come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn outage(break_it: impl AsyncFn(&mut Own), heal: impl AsyncFn(&mut Own)) {
    let mut server = Own::start(&[]).await;
    let mut limiters = Vec::new();
    for failure in policies() {
        let (limiter, changes) = limiter(&server, failure.clone()).await;
        until_served(&limiter).await;
        limiters.push((failure, limiter, changes));
    }
    break_it(&mut server).await;
    for (failure, limiter, _) in &limiters {
        for call in 0..50 {
            let since = Instant::now();
            let answer = limiter.check("key").await;
            assert!(is_answer_of(failure, &answer), "call {call} under {failure:?}: {answer:?}");
            assert!(since.elapsed() < DEADLINE + SLACK, "call {call} took {:?}", since.elapsed());
        }
        assert_ne!(limiter.breaker_state(), Some(BreakerState::Closed));
    }
    heal(&mut server).await;
    for (failure, limiter, changes) in &limiters {
        until_served(limiter).await;
        let changes = changes.0.lock().clone();
        let (closed, open) = (BreakerState::Closed, BreakerState::Open);
        assert_eq!(changes.first(), Some(&(closed, open)), "{failure:?}");
        assert_eq!(changes.last(), Some(&(BreakerState::HalfOpen, closed)), "{failure:?}");
        assert!(
            changes.windows(2).all(|pair| matches!(pair, [(_, to), (from, _)] if to == from)),
            "{changes:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server() {
    outage(
        async |server| server.ask::<String>("CLIENT PAUSE 60000 WRITE").await.clear(),
        async |server| {
            // A server whose clients are paused altogether would not take this.
            let _: String = server.ask("CLIENT UNPAUSE").await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server() {
    outage(async |server| server.signal("STOP"), async |server| server.signal("CONT")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server() {
    outage(async |server| server.kill(), async |server| server.restart(&[])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o_72_a_server_that_is_full_is_an_outage_that_is_answered_and_observed() {
    let server = Own::start(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]).await;
    for failure in policies() {
        let (limiter, changes) = limiter(&server, failure.clone()).await;
        for _ in 0..6 {
            let answer = limiter.check("key").await;
            assert!(is_answer_of(&failure, &answer), "{failure:?}: {answer:?}");
        }
        assert_eq!(*changes.0.lock(), [(BreakerState::Closed, BreakerState::Open)]);
    }
    let _: String = server.ask("CONFIG SET maxmemory 0").await;
    let (limiter, _) = limiter(&server, FailurePolicy::Propagate).await;
    until_served(&limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o_71_a_thousand_callers_of_a_paused_server_pay_one_deadline_at_most() {
    let server = Own::start(&[]).await;
    let (limiter, _) = limiter(&server, FailurePolicy::FailOpen).await;
    until_served(&limiter).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    server.ask::<String>("CLIENT PAUSE 5000 ALL").await.clear();
    let mut slowest = Vec::new();
    for _ in 0..2 {
        let calls = (0..1_000).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let since = Instant::now();
                let source = limiter.check("key").await.unwrap().source();
                (source, since.elapsed())
            })
        });
        let answers: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
        assert!(answers.iter().all(|(source, _)| *source == Source::Policy));
        slowest.push(answers.iter().map(|(_, wait)| *wait).max().unwrap());
    }
    assert!(slowest.iter().all(|wait| *wait < DEADLINE + SLACK), "{slowest:?}");
    let since = Instant::now();
    while tasks() > before {
        assert!(since.elapsed() < SLACK, "{} tasks, {before} before", tasks());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    until_served(&limiter).await;
}
