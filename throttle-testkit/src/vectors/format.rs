//! The form of a vector file.

use std::time::Duration;

use serde::Deserialize;
use throttle_core::{Action, Algorithm, Policy, Quota, Rule, SetupError, Timestamp};

/// Lives of keys, read from a file.
#[derive(Debug, Clone)]
pub struct Vectors {
    pub(super) lives: Vec<Life>,
}

/// Why a text is not a vector file.
#[derive(Debug, thiserror::Error)]
#[error("line {line} is not a life of a key: {reason}")]
pub struct VectorError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// One key's life.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Life {
    pub(super) id: String,
    pub(super) rules: Vec<RuleLine>,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleLine {
    algorithm: String,
    limit: u32,
    period_us: u64,
    burst: Option<u32>,
    max_queue_us: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) now_us: u64,
    op: Operand,
    cost: u32,
    max_wait_us: u64,
    pub(super) expect: Expected,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Operand {
    Consume,
    Peek,
    Refund,
}

/// What the oracle answers. A cost that is never admitted has neither remaining units, nor reset, nor rules.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    pub(super) allowed: bool,
    pub(super) never: bool,
    pub(super) delay_us: u64,
    pub(super) retry_after_us: Option<u64>,
    pub(super) remaining: Option<u32>,
    pub(super) reset_after_us: Option<u64>,
    #[serde(default)]
    pub(super) rules: Vec<ExpectedRule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedRule {
    pub(super) allowed: bool,
    pub(super) delay_us: u64,
    pub(super) retry_after_us: u64,
    pub(super) remaining: u32,
    pub(super) reset_after_us: u64,
}

impl Vectors {
    /// Reads a vector file: one life per line; empty lines are skipped.
    ///
    /// # Errors
    ///
    /// [`VectorError`] with the number of the first line that is not a life, or whose rules cannot be built.
    pub fn parse(text: &str) -> Result<Self, VectorError> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let lives =
            lines.map(|(at, line)| Life::parse(line).map_err(|reason| VectorError { line: at + 1, reason }));
        Ok(Self { lives: lives.collect::<Result<_, _>>()? })
    }

    /// How many lives there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lives.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lives.is_empty()
    }

    /// Every `of`th life from the `part`th (from 0): one of `of` parts of about the same size.
    #[must_use]
    pub fn part(&self, part: usize, of: usize) -> Self {
        Self { lives: self.lives.iter().skip(part).step_by(of.max(1)).cloned().collect() }
    }
}

impl Life {
    fn parse(line: &str) -> Result<Self, String> {
        let life: Self = serde_json::from_str(line).map_err(|error| error.to_string())?;
        life.policy("check").map_err(|error| error.to_string())?;
        for step in &life.steps {
            Timestamp::from_micros(step.now_us).map_err(|error| error.to_string())?;
        }
        Ok(life)
    }

    pub(super) fn policy(&self, name: &str) -> Result<Policy, SetupError> {
        let rules = self.rules.iter().map(RuleLine::rule).collect::<Result<Vec<_>, _>>()?;
        Policy::new(name, rules)
    }
}

impl RuleLine {
    fn rule(&self) -> Result<Rule, SetupError> {
        let algorithm: Algorithm = self.algorithm.parse()?;
        let quota = Quota::per(self.limit, Duration::from_micros(self.period_us));
        let quota = match self.burst {
            Some(burst) => quota.burst(burst),
            None => quota,
        };
        Rule::new(algorithm, quota)?.max_queue(Duration::from_micros(self.max_queue_us))
    }
}

impl Step {
    pub(super) fn action<'a>(&self, policy: &'a Policy, key: &'a str) -> Action<'a> {
        let action = match self.op {
            Operand::Consume => Action::consume(policy, key),
            Operand::Peek => Action::peek(policy, key),
            Operand::Refund => Action::refund(policy, key),
        };
        action
            .with_cost(self.cost)
            .with_max_wait(Duration::from_micros(self.max_wait_us))
            .at(Some(Timestamp::saturating_from_micros(self.now_us)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_vectors_are_four_hundred_lives() {
        let vectors = Vectors::parse(super::super::SHARED).unwrap();
        assert_eq!(vectors.len(), 400);
        let parts: usize = (0..8).map(|part| vectors.part(part, 8).len()).sum();
        assert_eq!(parts, 400);
    }

    #[test]
    fn a_malformed_line_is_named() {
        let good = r#"{"id":"a","rules":[{"algorithm":"gcra","limit":1,"period_us":1,"burst":null,"max_queue_us":0}],"steps":[]}"#;
        let reason = |bad: &str| Vectors::parse(&format!("{good}\n\n{bad}\n")).unwrap_err().to_string();
        let garbage = reason("{");
        assert!(garbage.starts_with("line 3 is not a life of a key: EOF"), "{garbage}");
        let zero = reason(&good.replace(r#""limit":1"#, r#""limit":0"#));
        assert_eq!(zero, "line 3 is not a life of a key: a limit of 0 admits nobody: the least is 1");
        let unknown = reason(&good.replace("gcra", "abacus"));
        assert!(unknown.contains("expected one of token_bucket"), "{unknown}");
    }
}
