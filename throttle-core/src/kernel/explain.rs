//! From a store's raw outcome to what a caller is told. The only place where that is derived.

use super::{Algorithm, Bucket, Kernel, Request, RuleState, Verdict};
use crate::per_rule::PerRule;
use crate::{Action, Operand, Outcome, Rule, RuleDecision};

/// The answer of each rule to the `nth` (from 0) of the requests that `action` asked for at once.
#[inline(always)]
pub(crate) fn explain(action: &Action<'_>, outcome: &Outcome, nth: u32) -> PerRule<RuleDecision> {
    let step = Step::of(action, outcome, nth);
    if let [rule] = action.policy().rules()
        && let Kernel::Bucket(kernel) = rule.kernel()
        && let Some(state) = outcome.only_state()
    {
        return PerRule::one(step.explain_bucket(rule, kernel, &state));
    }
    explain_all(action, outcome, &step)
}

#[cold]
fn explain_all(action: &Action<'_>, outcome: &Outcome, step: &Step) -> PerRule<RuleDecision> {
    let now = outcome.now();
    let each = |(rule, state): (&Rule, RuleState)| match rule.kernel() {
        Kernel::Bucket(kernel) => step.explain_bucket(rule, kernel, &state),
        Kernel::FixedWindow(kernel) => step.explain(rule, kernel, state.fixed_window(kernel, now)),
        Kernel::SlidingWindow(kernel) => step.explain(rule, kernel, state.sliding_window(kernel, now)),
        Kernel::SlidingLog(kernel) => step.explain(rule, kernel, state.sliding_log()),
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
    #[inline(always)]
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

    #[inline(always)]
    fn explain_bucket(&self, rule: &Rule, kernel: &Bucket, state: &RuleState) -> RuleDecision {
        if !kernel.is_narrow() {
            return self.explain_wide(rule, kernel, state);
        }
        let narrow = kernel.exact::<u64>();
        self.explain(rule, &narrow, narrow.view(state.bucket(), self.request.now))
    }

    #[cold]
    fn explain_wide(&self, rule: &Rule, kernel: &Bucket, state: &RuleState) -> RuleDecision {
        let wide = kernel.exact::<u128>();
        self.explain(rule, &wide, wide.view(state.bucket(), self.request.now))
    }

    #[inline(always)]
    fn explain<A: Algorithm>(&self, rule: &Rule, kernel: &A, view: A::View) -> RuleDecision {
        let view = kernel.charge(view, self.before);
        let (verdict, after) = match self.fate {
            Fate::Granted => {
                let after = kernel.charge(view, u64::from(self.request.cost));
                (Verdict::allowed_after(kernel.delay(after)), after)
            }
            Fate::Asked => (kernel.verdict(view, &self.request), view),
            Fate::GivenBack => (Verdict::allowed_after(0), view),
        };
        RuleDecision::new(rule.capacity(), verdict, kernel.report(after, self.request.now))
    }
}
