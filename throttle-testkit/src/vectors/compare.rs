//! An answer of ours in the words of the oracle.

use std::time::Duration;

use throttle_core::{Decision, RuleDecision};

use super::format::{Expected, ExpectedRule};

impl Expected {
    pub(super) fn of(decision: &Decision) -> Self {
        let known = |value| (!decision.is_never()).then_some(value);
        let retry_after_us = match (decision.is_allowed(), decision.retry_after()) {
            (true, None) => Some(0),
            (_, retry) => retry.map(micros),
        };
        Self {
            allowed: decision.is_allowed(),
            never: decision.is_never(),
            delay_us: micros(decision.delay()),
            retry_after_us,
            remaining: (!decision.is_never()).then_some(decision.remaining()),
            reset_after_us: known(micros(decision.reset_after())),
            rules: decision.rules().iter().map(ExpectedRule::of).collect(),
        }
    }
}

impl ExpectedRule {
    fn of(rule: &RuleDecision) -> Self {
        Self {
            allowed: rule.is_allowed(),
            delay_us: micros(rule.delay()),
            retry_after_us: rule.retry_after().map_or(0, micros),
            remaining: rule.remaining(),
            reset_after_us: micros(rule.reset_after()),
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
