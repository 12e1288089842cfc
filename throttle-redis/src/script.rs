//! The scripts; and for the one that decides, the packed form in which actions go to it and outcomes come back. Big-endian.
//!
//! An action is, for requests of one bucket rule, 40 bytes:
//!
//! > now u64 (0: the server's time, else plus 1), then p u32, the span of the cost, the span that may be
//! > owed after it, times u32; a span is u64 µs and u32 ticks of 1/p µs
//!
//! and otherwise, never 40 bytes:
//!
//! > now u64, operand u8, cost u32, times u32, number of rules u8, then for each rule its tag in stored states
//! > and its numbers
//!
//! | tag | rule | numbers |
//! |---|---|---|
//! | 1 | bucket | p u32, then spans: of the cost, that can be owed at most, that may be owed after |
//! | 2 | fixed window | period u64, limit u32 |
//! | 3 | sliding window | period u64, limit u32, unit u64, units u32 |
//! | 4 | sliding window log | period u64, limit u32 |
//!
//! A reply is granted u32, now u64, for each sliding window log used u32, newest u64, fits at u64 (0: it fits), and the
//! stored value, without the logs; or no bytes at all if the stored value is not readable.

use std::num::NonZeroU64;
use std::sync::LazyLock;

use redis::{Cmd, Script};
use smallvec::SmallVec;
use throttle_core::kernel::{Bucket, Kernel, LogSummary, PolicyState, RuleState, Span, StoredState};
use throttle_core::{Action, DataError, Operand, Outcome, Timestamp};

use crate::RedisError;

/// A script: servers know it by its hash once they have had its text.
pub(crate) struct Source {
    text: &'static str,
    script: LazyLock<Script>,
}

/// The script in the named files, joined.
macro_rules! source {
    ($($file:literal),+ $(,)?) => {{
        const TEXT: &str = concat!($(include_str!($file)),+);
        $crate::script::Source::new(TEXT, || redis::Script::new(TEXT))
    }};
}

pub(crate) use source;

impl Source {
    pub(crate) const fn new(text: &'static str, script: fn() -> Script) -> Self {
        Self { text, script: LazyLock::new(script) }
    }

    /// Runs it by its hash.
    pub(crate) fn by_hash(&self, keys: &[String], fill: impl Fn(&mut Cmd)) -> Cmd {
        Self::call("EVALSHA", self.script.get_hash(), keys, fill)
    }

    /// The same with its text, for a server that does not know it; it will then.
    pub(crate) fn by_text(&self, keys: &[String], fill: impl Fn(&mut Cmd)) -> Cmd {
        Self::call("EVAL", self.text, keys, fill)
    }

    fn call(command: &str, script: &str, keys: &[String], fill: impl Fn(&mut Cmd)) -> Cmd {
        let mut command = redis::cmd(command);
        command.arg(script).arg(keys.len()).arg(keys);
        fill(&mut command);
        command
    }
}

/// The script that decides.
pub(crate) static DECIDE: Source = source!(
    "scripts/prelude.lua",
    "scripts/bucket.lua",
    "scripts/fixed_window.lua",
    "scripts/sliding_window.lua",
    "scripts/sliding_log.lua",
    "scripts/any_rules.lua",
    "scripts/decide.lua",
);

/// Spans at least this long fit nowhere; Lua still counts them.
const ENDLESS: Span = Span { micros: (1 << 53) - 1, ticks: 0 };

/// Adds `actions`, one for each key.
pub(crate) fn pack_all(actions: &[Action<'_>], command: &mut Cmd) {
    for action in actions {
        command.arg(pack(action).as_slice());
    }
}

type Packed = SmallVec<[u8; 64]>;

fn pack(action: &Action<'_>) -> Packed {
    let mut packed = Packed::new();
    packed.extend(action.now().map_or(0, |now| now.as_micros() + 1).to_be_bytes());
    if let [rule] = action.policy().rules()
        && let Kernel::Bucket(bucket) = rule.kernel()
        && let Some(spans) = Spans::of_plain_requests(bucket, action)
    {
        packed.extend(bucket.ticks_per_micro().to_be_bytes());
        pack_span(spans.cost, &mut packed);
        pack_span(spans.allowed, &mut packed);
        packed.extend(action.times().to_be_bytes());
        return packed;
    }
    packed.push(match action.operand() {
        Operand::Consume => 0,
        Operand::Peek => 1,
        Operand::Refund => 2,
    });
    packed.extend(action.cost().to_be_bytes());
    packed.extend(action.times().to_be_bytes());
    packed.push(u8::try_from(action.policy().rules().len()).unwrap_or(u8::MAX));
    for rule in action.policy().rules() {
        pack_rule(rule.kernel(), action, &mut packed);
    }
    packed
}

fn pack_rule(kernel: &Kernel, action: &Action<'_>, packed: &mut Packed) {
    let window = |tag: u8, period: u64, limit: u32, packed: &mut Packed| {
        packed.push(tag);
        packed.extend(period.to_be_bytes());
        packed.extend(limit.to_be_bytes());
    };
    match kernel {
        Kernel::Bucket(bucket) => {
            let spans = Spans::of(bucket, action);
            packed.push(1);
            packed.extend(bucket.ticks_per_micro().to_be_bytes());
            pack_span(spans.cost, packed);
            pack_span(spans.most, packed);
            pack_span(spans.allowed, packed);
        }
        Kernel::FixedWindow(kernel) => window(2, kernel.period_micros(), kernel.limit(), packed),
        Kernel::SlidingWindow(kernel) => {
            window(3, kernel.period_micros(), kernel.limit(), packed);
            packed.extend(kernel.unit_micros().to_be_bytes());
            packed.extend(u32::try_from(kernel.units()).unwrap_or(u32::MAX).to_be_bytes());
        }
        Kernel::SlidingLog(kernel) => window(4, kernel.period_micros(), kernel.limit(), packed),
        // A kernel that this crate does not know: the script has no rule of this tag and fails.
        _ => packed.push(u8::MAX),
    }
}

fn pack_span(span: Span, packed: &mut Packed) {
    packed.extend(span.micros.to_be_bytes());
    packed.extend(span.ticks.to_be_bytes());
}

/// The spans of time that decide about a bucket.
struct Spans {
    /// What one request takes.
    cost: Span,
    /// F + W: no debt is larger.
    most: Span,
    /// F + min(`max_wait`, W): what may be owed with the request.
    allowed: Span,
}

impl Spans {
    fn of(bucket: &Bucket, action: &Action<'_>) -> Self {
        let full = bucket.span_of(u64::from(bucket.capacity()));
        let and = |micros: u64| Span { micros: full.micros + micros, ticks: full.ticks };
        let patience = action.max_wait_micros().min(bucket.queue_micros());
        let cost = match bucket.span_of(u64::from(action.cost())) {
            _ if action.operand() != Operand::Refund && action.cost() > bucket.capacity() => ENDLESS,
            cost => cost.min(ENDLESS),
        };
        Self { cost, most: and(bucket.queue_micros()), allowed: and(patience) }
    }

    /// Those of the short form, which holds charges by callers who wait for as long as the queue is.
    fn of_plain_requests(bucket: &Bucket, action: &Action<'_>) -> Option<Self> {
        let charges = action.operand() == Operand::Consume && action.cost() > 0;
        let spans = charges.then(|| Self::of(bucket, action))?;
        (spans.allowed == spans.most).then_some(spans)
    }
}

/// Reads the reply to `action`.
pub(crate) fn unpack(reply: &[u8], action: &Action<'_>) -> Result<Outcome, RedisError> {
    if reply.is_empty() {
        return Err(RedisError::Corrupt(DataError::Corrupt { reason: "the value is no state" }));
    }
    let mut reply = Reply(reply);
    let granted = reply.short()?;
    let now = Timestamp::from_micros(reply.long()?)
        .map_err(|_| RedisError::answer("the server's clock is out of range"))?;
    let rules = action.policy().rules();
    let mut logs = SmallVec::<[LogSummary; 1]>::new();
    for _ in rules.iter().filter(|rule| matches!(rule.kernel(), Kernel::SlidingLog(_))) {
        logs.push(reply.log()?);
    }
    let stored = match reply.0 {
        [] => None,
        value => Some(PolicyState::from_bytes(value).map_err(RedisError::Corrupt)?),
    };
    let stored = stored.as_ref().map_or(&[][..], PolicyState::states);
    let mut logs = logs.into_iter();
    let states = rules.iter().enumerate().map(|(position, rule)| match rule.kernel() {
        Kernel::SlidingLog(_) => logs.next().map_or(RuleState::Fresh, RuleState::SlidingLog),
        _ => report(stored.get(position)),
    });
    Ok(Outcome::new(granted, now, states))
}

fn report(stored: Option<&StoredState>) -> RuleState {
    match stored {
        Some(StoredState::Bucket(state)) => RuleState::Bucket(*state),
        Some(StoredState::FixedWindow(state)) => RuleState::FixedWindow(*state),
        Some(StoredState::SlidingWindow(state)) => RuleState::SlidingWindow(*state),
        _ => RuleState::Fresh,
    }
}

struct Reply<'b>(&'b [u8]);

impl Reply<'_> {
    fn log(&mut self) -> Result<LogSummary, RedisError> {
        let (used, newest) = (self.short()?, self.long()?);
        Ok(LogSummary { used, newest, fits_at: NonZeroU64::new(self.long()?) })
    }

    fn short(&mut self) -> Result<u32, RedisError> {
        self.take().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Result<u64, RedisError> {
        self.take().map(u64::from_be_bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], RedisError> {
        let (taken, rest) =
            self.0.split_first_chunk().ok_or_else(|| RedisError::answer("bytes of the reply are missing"))?;
        self.0 = rest;
        Ok(*taken)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use throttle_core::{EXPIRY_MARGIN, EXPIRY_MARGIN_OWN_TIME, Policy, Rule};

    use super::*;

    #[test]
    fn only_the_short_form_has_its_length() {
        let rules = ["gcra 10/s", "fixed_window 10/s", "sliding_window 10/s", "sliding_window_log 10/s"];
        for first in rules {
            for second in [None, Some(rules[0]), Some(rules[1]), Some(rules[2])] {
                let policy =
                    Policy::new("p", [first].into_iter().chain(second).map(|rule| rule.parse().unwrap()))
                        .unwrap();
                let short = second.is_none() && first == "gcra 10/s";
                assert_eq!(pack(&Action::consume(&policy, "k")).len() == 40, short, "{policy:?}");
                assert_eq!(pack(&Action::consume(&policy, "k").with_times(2)).len() == 40, short);
                assert_ne!(pack(&Action::peek(&policy, "k")).len(), 40);
                assert_ne!(pack(&Action::refund(&policy, "k")).len(), 40);
                assert_ne!(pack(&Action::consume(&policy, "k").with_cost(0)).len(), 40);
            }
        }
    }

    /// Written out in `decide.lua`.
    #[test]
    fn the_script_knows_the_margins() {
        assert_eq!(EXPIRY_MARGIN, Duration::from_micros(1_999_999 - 999_999));
        assert_eq!(EXPIRY_MARGIN_OWN_TIME, Duration::from_micros(60_000_000));
    }

    #[test]
    fn no_reply_panics() {
        let policy = Policy::new("p", [Rule::sliding_window_log("10/s").unwrap()]).unwrap();
        let action = Action::consume(&policy, "k");
        let reply = [0_u8; 40];
        assert!(matches!(unpack(&reply[..0], &action), Err(RedisError::Corrupt(_))));
        for length in 1..32 {
            assert!(matches!(unpack(&reply[..length], &action), Err(RedisError::Answer(_))), "{length}");
        }
        assert_eq!(unpack(&reply[..32], &action).unwrap().granted(), 0);
        assert!(matches!(unpack(&reply, &action), Err(RedisError::Corrupt(_))));
        assert!(matches!(unpack(&[u8::MAX; 40], &action), Err(RedisError::Answer(_))));
    }
}
