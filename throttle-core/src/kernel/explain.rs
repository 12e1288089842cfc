//! From a store's raw outcome to what a caller is told. The only place where that is derived.

use super::{Algorithm, Kernel, Request, RuleState, Verdict};
use crate::per_rule::PerRule;
use crate::{Action, Operand, Outcome, Rule, RuleDecision};

/// The answer of each rule to the `nth` (from 0) of the requests that `action` asked for at once.
pub(crate) fn explain(action: &Action<'_>, outcome: &Outcome, nth: u32) -> PerRule<RuleDecision> {
    let (step, now) = (Step::of(action, outcome, nth), outcome.now());
    let each = |(rule, state): (&Rule, RuleState)| {
        let limit = rule.capacity();
        match rule.kernel() {
            Kernel::Bucket(kernel) => {
                let kernel = kernel.exact::<u128>();
                step.explain(limit, &kernel, kernel.view(state.bucket(), now))
            }
            Kernel::FixedWindow(kernel) => step.explain(limit, kernel, state.fixed_window(kernel, now)),
            Kernel::SlidingWindow(kernel) => step.explain(limit, kernel, state.sliding_window(kernel, now)),
            Kernel::SlidingLog(kernel) => step.explain(limit, kernel, state.sliding_log()),
        }
    };
    action.policy().rules().iter().zip(outcome.states()).map(each).collect()
}

/// Where in an action one request stands.
struct Step {
    request: Request,
    /// Units charged before it by requests of the same action.
    before: u64,
    /// What became of it.
    fate: Fate,
}

enum Fate {
    /// Admitted and charged by all rules.
    Granted,
    /// Refused by some rule, or only a question.
    Asked,
    /// Given back: there is no question.
    GivenBack,
}

impl Step {
    fn of(action: &Action<'_>, outcome: &Outcome, nth: u32) -> Self {
        let request = action.request(outcome.now());
        let cost = u64::from(request.cost);
        let (earlier, fate) = match action.operand() {
            Operand::Consume if nth < outcome.granted() => (nth, Fate::Granted),
            Operand::Consume => (outcome.granted(), Fate::Asked),
            Operand::Peek => (0, Fate::Asked),
            Operand::Refund => (0, Fate::GivenBack),
        };
        Self { request, before: u64::from(earlier) * cost, fate }
    }

    fn explain<A: Algorithm>(&self, limit: u32, kernel: &A, view: A::View) -> RuleDecision {
        let view = kernel.charge(view, self.before);
        let (verdict, after) = match self.fate {
            Fate::Granted => {
                let after = kernel.charge(view, u64::from(self.request.cost));
                (Verdict::allowed_after(kernel.delay(after)), after)
            }
            Fate::Asked => (kernel.verdict(view, &self.request), view),
            Fate::GivenBack => (Verdict::allowed_after(0), view),
        };
        RuleDecision::new(limit, verdict, kernel.report(after, self.request.now))
    }
}
