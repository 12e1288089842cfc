//! One action on one key's state: who is admitted, and what is kept.

use super::{Algorithm, Kernel, PolicyState, Request, RuleState, SlidingLogState, StoredState};
use crate::{Action, Operand, Outcome, Rule, Timestamp};

/// Decides `action` at `now` on what is stored for its key, and moves that to what is to be stored.
///
/// The stored state changes only if the outcome [says so](Outcome::changes_state): a denial, a probe or a peek leaves
/// it as it was. All rules of the policy are charged, or none.
///
/// ```
/// use throttle_core::kernel::{PolicyState, decide};
/// use throttle_core::{Action, Policy, Rule, Timestamp};
///
/// let policy = Policy::new("api", [Rule::gcra("1/s")?])?;
/// let mut state = PolicyState::fresh(&policy);
/// let now = Timestamp::from_micros(1_700_000_000_000_000)?;
/// let action = Action::consume(&policy, "alice");
/// assert_eq!(decide(&action, now, &mut state).granted(), 1);
/// assert_eq!(decide(&action, now, &mut state).granted(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn decide(action: &Action<'_>, now: Timestamp, stored: &mut PolicyState) -> Outcome {
    let (request, rules) = (&action.request(now), action.policy().rules());
    if stored.states().len() != rules.len() {
        return decide_refitted(action, now, stored);
    }
    if action.operand() == Operand::Refund {
        for (rule, state) in rules.iter().zip(stored.states_mut()) {
            refund(rule, state, request);
        }
        return Outcome::new(1, now, report(rules, stored, request, 0));
    }
    let mut granted = action.times();
    for (rule, state) in rules.iter().zip(stored.states()) {
        granted = room(rule, state, request, granted);
    }
    let charged = if action.operand() == Operand::Consume { granted } else { 0 };
    let states = report(rules, stored, request, charged);
    let units = u64::from(charged) * u64::from(request.cost);
    if units > 0 {
        for (rule, state) in rules.iter().zip(stored.states_mut()) {
            charge(rule, state, now, units);
        }
    }
    Outcome::new(granted, now, states)
}

/// The policy has more or fewer rules than it had. Even then only what changes the state may store it anew: elsewhere
/// the former rules may still be in force.
#[cold]
fn decide_refitted(action: &Action<'_>, now: Timestamp, stored: &mut PolicyState) -> Outcome {
    let mut fitted = stored.fitted(action.policy());
    let outcome = decide(action, now, &mut fitted);
    if outcome.changes_state(action) {
        *stored = fitted;
    }
    outcome
}

fn report(rules: &[Rule], stored: &PolicyState, request: &Request, charged: u32) -> Vec<RuleState> {
    rules
        .iter()
        .zip(stored.states())
        .map(|(rule, state)| state.report(rule.kernel(), request, charged))
        .collect()
}

fn room(rule: &Rule, state: &StoredState, request: &Request, times: u32) -> u32 {
    let seen = state.report(rule.kernel(), request, 0);
    match rule.kernel() {
        Kernel::Bucket(kernel) => {
            let kernel = kernel.exact::<u128>();
            kernel.room(kernel.view(seen.bucket(), request.now), request, times)
        }
        Kernel::FixedWindow(kernel) => kernel.room(seen.fixed_window(kernel, request.now), request, times),
        Kernel::SlidingWindow(kernel) => {
            kernel.room(seen.sliding_window(kernel, request.now), request, times)
        }
        Kernel::SlidingLog(kernel) => kernel.room(seen.sliding_log(), request, times),
    }
}

fn charge(rule: &Rule, state: &mut StoredState, now: Timestamp, units: u64) {
    let seen = state.without_log();
    *state = match rule.kernel() {
        Kernel::Bucket(kernel) => {
            let kernel = kernel.exact::<u128>();
            StoredState::Bucket(kernel.state(kernel.charge(kernel.view(seen.bucket(), now), units), now))
        }
        Kernel::FixedWindow(kernel) => kernel.store(kernel.charge(seen.fixed_window(kernel, now), units)),
        Kernel::SlidingWindow(kernel) => kernel.store(kernel.charge(seen.sliding_window(kernel, now), units)),
        Kernel::SlidingLog(kernel) => {
            let mut log = take_log(state, kernel.period_micros());
            kernel.append(&mut log, now, units);
            keep_log(log)
        }
    };
}

fn refund(rule: &Rule, state: &mut StoredState, request: &Request) {
    let seen = state.without_log();
    let (now, units) = (request.now, request.cost);
    *state = match rule.kernel() {
        Kernel::Bucket(kernel) => {
            let kernel = kernel.exact::<u128>();
            StoredState::Bucket(kernel.state(kernel.refund(kernel.view(seen.bucket(), now), units), now))
        }
        Kernel::FixedWindow(kernel) => kernel.store(kernel.refund(seen.fixed_window(kernel, now), units)),
        Kernel::SlidingWindow(kernel) => kernel.store(kernel.refund(seen.sliding_window(kernel, now), units)),
        Kernel::SlidingLog(kernel) => {
            let mut log = take_log(state, kernel.period_micros());
            kernel.take_back(&mut log, now, units);
            keep_log(log)
        }
    };
}

fn take_log(state: &mut StoredState, period: u64) -> Box<SlidingLogState> {
    match std::mem::take(state) {
        StoredState::SlidingLog(log) => log,
        _ => Box::new(SlidingLogState::new(period)),
    }
}

fn keep_log(log: Box<SlidingLogState>) -> StoredState {
    if log.entries().is_empty() { StoredState::Fresh } else { StoredState::SlidingLog(log) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    #[test]
    fn a_denial_under_other_rules_leaves_the_states_of_the_former_ones() {
        let policy =
            |rules: &[&str]| Policy::new("p", rules.iter().map(|rule| rule.parse().unwrap())).unwrap();
        let (wide, narrow) = (policy(&["gcra 1/h", "gcra 5/d"]), policy(&["gcra 1/h"]));
        let now = Timestamp::from_micros(1_700_000_000_000_000).unwrap();
        let mut state = PolicyState::fresh(&wide);
        decide(&Action::consume(&wide, ""), now, &mut state);
        let stored = state.clone();
        assert_eq!(decide(&Action::consume(&narrow, ""), now, &mut state).granted(), 0);
        decide(&Action::peek(&narrow, ""), now, &mut state);
        assert_eq!(state, stored, "nothing was admitted, so nothing changes");
        let later = now.saturating_add(std::time::Duration::from_secs(3_600));
        assert_eq!(decide(&Action::consume(&narrow, ""), later, &mut state).granted(), 1);
        assert_eq!(state.states().len(), 1, "what was admitted is stored under the new rules");
    }
}
