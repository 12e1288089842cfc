//! What the built-in observers write.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod events;
mod recorder;

use std::time::Duration;

use throttle_core::lock::Lock;
use throttle_core::observe::{MetricsObserver, TracingObserver, metrics as names};
use throttle_core::{
    Breaker, ErrorKind, FailurePolicy, GroupCommit, Guarded, KeyList, Operation, Policy, RateLimiter, Rule,
};
use throttle_testkit::{Fault, FaultyBackend, ReferenceBackend};

use self::events::Events;
use self::recorder::Recorded;

type Limiter = RateLimiter<Guarded<FaultyBackend<ReferenceBackend>>>;

fn limiter() -> Limiter {
    let policy = Policy::new("api", [Rule::gcra("2/h").unwrap()]).unwrap();
    let breaker = Breaker::builder().failures(1).name("main").build().unwrap();
    RateLimiter::new(policy, FaultyBackend::new(ReferenceBackend::default())).breaker(breaker)
}

fn down(limiter: &Limiter) {
    limiter.store().get_ref().faults().inject(Fault::refuse(ErrorKind::Connection).always());
}

/// Allowed, denied, never, blocked; then an outage that nobody answers for, and one that `FailOpen` does.
fn live(limiter: &Limiter) {
    let blocking = limiter.clone().block(KeyList::new().keys(["mallory"])).blocking();
    let _ = (blocking.check_n("marker-secret", 2).unwrap(), blocking.check("marker-secret").unwrap());
    let _ = (blocking.check_n("marker-secret", 3).unwrap(), blocking.check("mallory").unwrap());
    let _ = limiter.clone().shadow().blocking().check("marker-secret").unwrap();
    down(limiter);
    blocking.check("marker-secret").unwrap_err();
    let open = limiter.clone().on_failure(FailurePolicy::FailOpen).blocking();
    let _ = open.peek("marker-secret").unwrap();
}

#[test]
fn metrics_count_by_policy_and_result_and_hold_no_key() {
    let recorded = Recorded::default();
    metrics::with_local_recorder(&recorded, || live(&limiter().observe(MetricsObserver)));
    let lines = recorded.lines();
    let request = |call: &str, result: &str, source: &str| {
        format!(
            "{} backend=reference call={call} policy=api result={result} source={source}",
            names::REQUESTS
        )
    };
    for (name, expected) in [
        (request("check", "allowed", "store"), "1"),
        (request("check", "denied", "store"), "1"),
        (request("check", "never", "store"), "1"),
        (request("check", "never", "block_list"), "1"),
        (request("check", "would_deny", "store"), "1"),
        (request("check", "failed", "none"), "1"),
        (request("peek", "allowed", "policy"), "1"),
        (format!("{} backend=reference breaker=main", names::BREAKER_STATE), "2"),
        (
            format!(
                "{} asked=yes backend=reference kind=connection operation=decide policy=api",
                names::UNAVAILABLE
            ),
            "1",
        ),
        (
            format!(
                "{} asked=no backend=reference kind=connection operation=decide policy=api",
                names::UNAVAILABLE
            ),
            "1",
        ),
        (format!("{} backend=reference policy=api", names::STORE_SECONDS), "4 values"),
    ] {
        assert!(lines.contains(&format!("{name}: {expected}")), "{name}: {expected} in {lines:#?}");
    }
    assert_eq!(lines.len(), 11, "{lines:#?}");
    assert!(!lines.concat().contains("marker-secret"));
}

#[test]
fn a_store_that_stalls_is_timed_once_whoever_answers() {
    const DEADLINE: Duration = Duration::from_millis(5);
    for policy in [FailurePolicy::Propagate, FailurePolicy::FailOpen] {
        let recorded = Recorded::default();
        let limiter = limiter().on_failure(policy).deadline(DEADLINE).observe(MetricsObserver);
        limiter.store().get_ref().faults().inject(Fault::hang().always());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for _ in 0..2 {
            let _ = metrics::with_local_recorder(&recorded, || runtime.block_on(limiter.check("key")));
        }
        let [seconds] = recorded.values(names::STORE_SECONDS)[..] else { panic!("the breaker is open then") };
        assert!(seconds >= DEADLINE.as_secs_f64(), "{seconds}");
    }
}

#[test]
fn group_commit_records_how_much_it_merges() {
    let recorded = Recorded::default();
    let store = FaultyBackend::new(ReferenceBackend::default());
    store.faults().inject(Fault::delay(Duration::from_millis(1)).always());
    let policy = Policy::new("api", [Rule::gcra("100/h").unwrap()]).unwrap();
    let limiter = RateLimiter::new(policy, GroupCommit::new(store));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    metrics::with_local_recorder(&recorded, || {
        let calls = (0..64).map(|place| limiter.check(if place % 2 == 0 { "a" } else { "b" }));
        runtime.block_on(futures_util::future::try_join_all(calls)).unwrap();
    });
    let callers = recorded.values(names::BATCH_CALLERS);
    assert_eq!(callers, [1.0, 63.0]);
    assert_eq!(recorded.values(names::BATCH_ACTIONS), [1.0, 2.0]);
}

#[test]
fn events_say_what_happened_and_redact_keys() {
    let events = Events::default();
    tracing::subscriber::with_default(events.clone(), || live(&limiter().observe(TracingObserver::new())));
    let lines = events.lines();
    let levels: Vec<_> = lines.iter().map(|line| line.split(" policy").next().unwrap()).collect();
    let expected = [
        "TRACE throttle allowed",
        "DEBUG throttle denied",
        "DEBUG throttle denied",
        "DEBUG throttle denied",
        "INFO throttle would be denied",
        "WARN throttle breaker changed",
        "WARN throttle store unavailable",
        "DEBUG throttle store not asked",
        "TRACE throttle allowed",
    ];
    assert_eq!(levels, expected, "{lines:#?}");
    assert!(lines[0].contains("policy=api backend=reference call=check source=store key=[redacted] cost=2"));
    assert!(lines[5].contains("breaker=main from=closed to=open kind=connection"));
    assert!(lines[6].contains("operation=decide kind=connection propagated=true"));
    assert!(!lines.concat().contains("marker-secret"));
}

#[test]
fn keys_are_written_where_asked_for() {
    let events = Events::default();
    let limiter = limiter().observe(TracingObserver::new().with_keys());
    let check = || limiter.blocking().check("alice");
    assert!(tracing::subscriber::with_default(events.clone(), check).unwrap().is_allowed());
    assert!(events.lines()[0].contains("key=alice"));
}

#[tokio::test]
async fn a_lock_that_is_not_given_back_is_told_without_its_name() {
    let events = Events::default();
    let _guard = tracing::subscriber::set_default(events.clone());
    let store = FaultyBackend::new(ReferenceBackend::default());
    let lock = Lock::new(store.clone(), "marker-secret");
    let guard = lock.try_acquire().await.unwrap().unwrap();
    store.faults().inject(Fault::refuse(ErrorKind::Corrupt).on(Operation::Release));
    guard.release().await.unwrap_err();
    let lines = events.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("WARN throttle lock not given back"), "{lines:?}");
    assert!(!lines[0].contains("marker-secret"), "{lines:?}");
}
