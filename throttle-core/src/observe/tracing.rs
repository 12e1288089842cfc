//! [`TracingObserver`]: what a limiter does, as events of `tracing`.

use tracing::{Level, debug, enabled, info, trace, warn};

use super::{BreakerEvent, DecisionEvent, Observer, UnavailableEvent};
use crate::BreakerState;

/// Writes an event per call: an allowed one at level TRACE, a denied one at DEBUG, one that shadow mode allowed at INFO.
/// An outage is a WARN, but a DEBUG where an open breaker kept the call from the store. A breaker that opens is a WARN,
/// its other changes are INFO. The target of all of them is `throttle`.
///
/// Keys can be personal. None is written unless [asked for](Self::with_keys).
///
/// ```
/// use throttle_core::observe::TracingObserver;
/// # use throttle_core::{Policy, RateLimiter, Rule};
/// # use throttle_testkit::ReferenceBackend;
/// # let policy = Policy::new("api", [Rule::gcra("1/h")?])?;
/// let limiter = RateLimiter::new(policy, ReferenceBackend::default()).observe(TracingObserver::new());
/// # let _ = limiter;
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TracingObserver {
    with_keys: bool,
}

const REDACTED: &str = "[redacted]";

impl TracingObserver {
    /// Events without keys.
    #[must_use]
    pub const fn new() -> Self {
        Self { with_keys: false }
    }

    /// Events with keys, as they are.
    #[must_use]
    pub const fn with_keys(self) -> Self {
        Self { with_keys: true }
    }
}

/// The same fields at each level: levels are constants of an event.
macro_rules! decision {
    ($level:ident, $event:expr, $key:expr, $text:literal) => {{
        let DecisionEvent { policy, backend, call, cost, decision, elapsed, .. } = $event;
        $level!(
            target: "throttle",
            policy = policy.name().as_str(),
            backend,
            call = call.name(),
            source = decision.source().name(),
            key = $key,
            cost,
            remaining = decision.remaining(),
            retry_after = decision.retry_after().map(tracing::field::debug),
            elapsed = ?elapsed,
            $text
        )
    }};
}

macro_rules! unavailable {
    ($level:ident, $event:expr, $text:literal) => {{
        let UnavailableEvent { policy, call, error, is_propagated, .. } = $event;
        $level!(
            target: "throttle",
            policy = policy.name().as_str(),
            backend = error.backend(),
            call = call.name(),
            operation = error.operation().name(),
            kind = error.kind().name(),
            propagated = is_propagated,
            error = error as &dyn std::error::Error,
            $text
        )
    }};
}

macro_rules! breaker {
    ($level:ident, $event:expr) => {{
        let BreakerEvent { policy, backend, breaker, from, to, cause } = $event;
        $level!(
            target: "throttle",
            policy = policy.name().as_str(),
            backend,
            breaker,
            from = from.name(),
            to = to.name(),
            kind = cause.map(|cause| cause.kind().name()),
            "breaker changed"
        )
    }};
}

impl Observer for TracingObserver {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        let key = if self.with_keys { event.key } else { REDACTED };
        if event.decision.would_deny() {
            decision!(info, *event, key, "would be denied");
        } else if !event.decision.is_allowed() {
            decision!(debug, *event, key, "denied");
        } else if enabled!(target: "throttle", Level::TRACE) {
            decision!(trace, *event, key, "allowed");
        }
    }

    fn on_unavailable(&self, event: &UnavailableEvent<'_>) {
        if event.was_asked {
            unavailable!(warn, *event, "store unavailable");
        } else {
            unavailable!(debug, *event, "store not asked");
        }
    }

    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        if event.to == BreakerState::Open {
            breaker!(warn, *event);
        } else {
            breaker!(info, *event);
        }
    }
}
