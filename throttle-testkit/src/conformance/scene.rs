//! Scenes: tables of what is asked of one key when, and what is answered. Made to be read.

use std::fmt::Debug;
use std::time::Duration;

use libtest_mimic::Failed;
use throttle_core::{Action, Decision, Operand, Policy, StoreBackend};

use super::check::{Checked, ensure};
use super::lab::{Lab, at, rules};
use super::model::Model;

/// One line of a scene: a question, and what its answer must be. What is not said may be anything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    after: u64,
    operand: Operand,
    cost: u32,
    times: u32,
    wait: u64,
    granted: Option<u32>,
    verdict: Option<Verdict>,
    remaining: Option<u32>,
    retry: Option<u64>,
    reset: Option<u64>,
    delay: Option<u64>,
    limit: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Denied,
    Never,
}

/// A question `micros` after the start of the scene.
pub(super) const fn after(micros: u64) -> Row {
    Row {
        after: micros,
        operand: Operand::Consume,
        cost: 1,
        times: 1,
        wait: 0,
        granted: None,
        verdict: None,
        remaining: None,
        retry: None,
        reset: None,
        delay: None,
        limit: None,
    }
}

impl Row {
    pub(super) const fn take(self, cost: u32) -> Self {
        Self { operand: Operand::Consume, cost, ..self }
    }

    pub(super) const fn peek(self, cost: u32) -> Self {
        Self { operand: Operand::Peek, cost, ..self }
    }

    pub(super) const fn refund(self, cost: u32) -> Self {
        Self { operand: Operand::Refund, cost, ..self }
    }

    /// As many units as there are, one by one, up to `most`.
    pub(super) const fn take_up_to(self, most: u32) -> Self {
        Self { operand: Operand::Consume, cost: 1, times: most, ..self }
    }

    pub(super) const fn granted(self, times: u32) -> Self {
        Self { granted: Some(times), ..self }
    }

    /// The caller would wait this long in the queue.
    pub(super) const fn waiting(self, micros: u64) -> Self {
        Self { wait: micros, ..self }
    }

    pub(super) const fn allowed(self) -> Self {
        Self { verdict: Some(Verdict::Allowed), ..self }
    }

    pub(super) const fn denied(self) -> Self {
        Self { verdict: Some(Verdict::Denied), ..self }
    }

    pub(super) const fn never(self) -> Self {
        Self { verdict: Some(Verdict::Never), ..self }
    }

    pub(super) const fn remaining(self, units: u32) -> Self {
        Self { remaining: Some(units), ..self }
    }

    pub(super) const fn retry(self, micros: u64) -> Self {
        Self { retry: Some(micros), ..self }
    }

    pub(super) const fn reset(self, micros: u64) -> Self {
        Self { reset: Some(micros), ..self }
    }

    pub(super) const fn delay(self, micros: u64) -> Self {
        Self { delay: Some(micros), ..self }
    }

    pub(super) const fn limit(self, units: u32) -> Self {
        Self { limit: Some(units), ..self }
    }

    fn action<'a>(&self, policy: &'a Policy, key: &'a str) -> Action<'a> {
        let action = match self.operand {
            Operand::Consume => Action::consume(policy, key),
            Operand::Peek => Action::peek(policy, key),
            Operand::Refund => Action::refund(policy, key),
        };
        let wait = Duration::from_micros(self.wait);
        action.with_cost(self.cost).with_times(self.times).with_max_wait(wait).at(Some(at(self.after)))
    }

    /// Whether `decision` is what the row says.
    fn accepts(&self, decision: &Decision) -> Checked {
        let verdict = match decision {
            decision if decision.is_allowed() => Verdict::Allowed,
            decision if decision.is_never() => Verdict::Never,
            _ => Verdict::Denied,
        };
        let micros = Duration::from_micros;
        same("verdict", self.verdict, &verdict)?;
        same("remaining", self.remaining, &decision.remaining())?;
        same("retry_after", self.retry.map(|retry| Some(micros(retry))), &decision.retry_after())?;
        same("reset_after", self.reset.map(micros), &decision.reset_after())?;
        same("delay", self.delay.map(micros), &decision.delay())?;
        same("limit", self.limit, &decision.limit())
    }
}

fn same<T: Debug + PartialEq>(what: &str, expected: Option<T>, got: &T) -> Checked {
    match expected {
        Some(expected) if expected != *got => {
            Err(format!("{what}: expected {expected:?}, got {got:?}").into())
        }
        _ => Ok(()),
    }
}

/// One key under one policy, and what the definition says about it.
pub(super) struct Scene<B: StoreBackend> {
    lab: Lab<B>,
    policy: Policy,
    key: String,
    model: Model,
}

impl<B: StoreBackend> Lab<B> {
    /// A fresh key under a policy of its own, with rules from text, separated by `;`.
    pub(super) fn scene(&self, text: &str) -> Result<Scene<B>, Failed> {
        self.scene_on(self.policy(text)?, "key")
    }

    pub(super) fn scene_on(&self, policy: Policy, key: &str) -> Result<Scene<B>, Failed> {
        let model = Model::fresh(&policy);
        Ok(Scene { lab: self.clone(), policy, key: key.to_owned(), model })
    }

    /// Plays one table on a fresh key.
    pub(super) async fn play(&self, text: &str, rows: &[Row]) -> Checked {
        self.scene(text)?.play(rows).await
    }
}

impl<B: StoreBackend> Scene<B> {
    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The policy gets other rules; its name, and what the key has used, stay.
    pub(super) fn change(&mut self, text: &str) -> Checked {
        self.policy = Policy::new(self.policy.name().as_str(), rules(text)?)?;
        Ok(())
    }

    /// What was stored is forgotten.
    pub(super) fn forget(&mut self) {
        self.model = Model::fresh(&self.policy);
    }

    /// Asks what the rows ask, and holds each answer to the row and to the definition.
    pub(super) async fn play(&mut self, rows: &[Row]) -> Checked {
        for (number, row) in rows.iter().enumerate() {
            let (policy, key) = (self.policy.clone(), self.key.clone());
            let action = row.action(&policy, &key);
            if let Err(reason) = self.play_one(row, &action).await {
                let (number, why) = (number + 1, reason.message().unwrap_or_default());
                return Err(format!("{policy:?}, row {number} {action:?}\n  {why}").into());
            }
        }
        Ok(())
    }

    /// Asks `row` over and over, `times` times.
    pub(super) async fn repeat(&mut self, times: usize, row: Row) -> Checked {
        self.play(&vec![row; times]).await
    }

    /// Asks as a limiter does: what no wait helps is not asked.
    async fn play_one(&mut self, row: &Row, action: &Action<'_>) -> Checked {
        if action.is_hopeless() {
            return row.accepts(&Decision::never(self.policy.capacity()));
        }
        let outcome = self.lab.outcome(action).await?;
        same("granted", row.granted, &outcome.granted())?;
        let last = outcome.granted().min(action.times() - 1);
        row.accepts(&Decision::of(action, &outcome, last))?;
        self.model.agrees_on_all(action, &outcome)
    }
}

/// The sum of what is admitted must be exact.
pub(super) fn admitted(what: &str, got: u64, expected: u64) -> Checked {
    ensure(got == expected, || format!("{what}: expected {expected} admitted, got {got}"))
}
