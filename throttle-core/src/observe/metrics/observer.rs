//! [`MetricsObserver`]: records what a limiter does.

use std::time::Duration;

use ::metrics::{counter, gauge, histogram};

use super::{BREAKER_STATE, REQUESTS, STORE_SECONDS, UNAVAILABLE};
use crate::observe::{BreakerEvent, Call, DecisionEvent, Observer, UnavailableEvent};
use crate::{BreakerState, Decision, Policy};

/// Records what a limiter does through the `metrics` crate, to whichever recorder is installed. No label holds a key.
///
/// ```
/// use throttle_core::observe::MetricsObserver;
/// # use throttle_core::{Policy, RateLimiter, Rule};
/// # use throttle_testkit::ReferenceBackend;
/// # let policy = Policy::new("api", [Rule::gcra("1/h")?])?;
/// let limiter = RateLimiter::new(policy, ReferenceBackend::default()).observe(MetricsObserver);
/// # let _ = limiter;
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct MetricsObserver;

impl Observer for MetricsObserver {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        let (policy, backend, source) = (name(event.policy), event.backend, event.decision.source());
        waited(&policy, backend, event.store_time);
        request(policy, backend, event.call, result(event.decision), source.name());
    }

    fn on_unavailable(&self, event: &UnavailableEvent<'_>) {
        let (policy, error) = (name(event.policy), event.error);
        counter!(
            UNAVAILABLE,
            "policy" => policy.clone(),
            "backend" => error.backend(),
            "operation" => error.operation().name(),
            "kind" => error.kind().name(),
            "asked" => if event.was_asked { "yes" } else { "no" },
        )
        .increment(1);
        // Else a decision follows, and tells the time.
        if event.is_propagated {
            waited(&policy, error.backend(), event.store_time);
            request(policy, error.backend(), event.call, "failed", "none");
        }
    }

    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        let state = match event.to {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        gauge!(BREAKER_STATE, "breaker" => event.breaker.to_owned(), "backend" => event.backend).set(state);
    }
}

fn waited(policy: &str, backend: &'static str, time: Option<Duration>) {
    if let Some(time) = time {
        histogram!(STORE_SECONDS, "policy" => policy.to_owned(), "backend" => backend).record(time);
    }
}

fn request(policy: String, backend: &'static str, call: Call, result: &'static str, source: &'static str) {
    counter!(
        REQUESTS,
        "policy" => policy,
        "backend" => backend,
        "call" => call.name(),
        "result" => result,
        "source" => source,
    )
    .increment(1);
}

fn name(policy: &Policy) -> String {
    policy.name().as_str().to_owned()
}

fn result(decision: &Decision) -> &'static str {
    match decision {
        decision if decision.would_deny() => "would_deny",
        decision if decision.is_allowed() => "allowed",
        decision if decision.is_never() => "never",
        _ => "denied",
    }
}
