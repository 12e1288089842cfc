//! From a store's raw outcome to what a caller is told. The only place where that is derived.

use smallvec::SmallVec;

use super::{Algorithm, Kernel, Request, RuleState};
use crate::{Action, Operand, Outcome, Rule, RuleDecision, Timestamp};

/// The answer of each rule to the `nth` (from 0) of the requests that `action` asked for at once.
#[inline]
pub(crate) fn explain(action: &Action<'_>, outcome: &Outcome, nth: u32) -> SmallVec<[RuleDecision; 1]> {
    let step = Step::of(action, outcome, nth);
    if let ([rule], [state]) = (action.policy().rules(), outcome.states()) {
        return SmallVec::from_buf([step.explain_rule(rule, state)]);
    }
    action
        .policy()
        .rules()
        .iter()
        .zip(outcome.states())
        .map(|(rule, state)| step.explain_rule(rule, state))
        .collect()
}

/// Where in an action one request stands.
struct Step {
    request: Request,
    /// Units charged before it by requests of the same action.
    before: u64,
    /// Units it was charged itself.
    own: u64,
    /// Whether it asks at all; a refund only reports.
    asks: bool,
}

impl Step {
    fn of(action: &Action<'_>, outcome: &Outcome, nth: u32) -> Self {
        let granted = outcome.granted();
        let charges = action.operand() == Operand::Consume;
        let earlier = if !charges {
            0
        } else if nth < granted {
            nth
        } else {
            granted
        };
        let cost = u64::from(action.cost());
        Self {
            request: action.request(outcome.now()),
            before: u64::from(earlier) * cost,
            own: if charges && nth < granted { cost } else { 0 },
            asks: action.operand() != Operand::Refund,
        }
    }

    #[inline]
    fn explain_rule(&self, rule: &Rule, state: &RuleState) -> RuleDecision {
        let now: Timestamp = self.request.now;
        match rule.kernel() {
            Kernel::Bucket(kernel) => self.explain_view(rule, kernel, state.bucket(kernel, now)),
            Kernel::FixedWindow(kernel) => self.explain_view(rule, kernel, state.fixed_window(kernel, now)),
            Kernel::SlidingWindow(kernel) => {
                self.explain_view(rule, kernel, state.sliding_window(kernel, now))
            }
            Kernel::SlidingLog(kernel) => self.explain_view(rule, kernel, state.sliding_log(kernel)),
        }
    }

    #[inline]
    fn explain_view<A: Algorithm>(&self, rule: &Rule, kernel: &A, view: A::View) -> RuleDecision {
        let view = kernel.charge(view, self.before);
        let verdict = match self.asks {
            true => kernel.verdict(view, &self.request),
            false => super::Verdict::allowed_after(0),
        };
        let report = kernel.report(kernel.charge(view, self.own), self.request.now);
        RuleDecision::new(rule.capacity(), verdict, report)
    }
}
