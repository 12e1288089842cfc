//! The function that decides, and the form in which a batch goes to it and outcomes come back. `sql/decide.sql` and
//! `sql/any_rules.sql` say what the numbers are.
//!
//! Everything is written into the statement as numbers and hexadecimal digits, which need no escaping.

use std::collections::HashMap;
use std::fmt::{self, Display, Write};
use std::num::NonZeroU64;

use smallvec::SmallVec;
use sqlx::Row;
use sqlx::postgres::PgRow;
use throttle_core::kernel::{
    Bucket, BucketState, FixedWindowState, Kernel, LogSummary, RuleState, SlidingWindowState,
};
use throttle_core::{Action, DataError, Operand, Outcome, Results, Timestamp, stored_key};

use crate::PostgresError;

/// Spans at least this long fit nowhere; the function still counts them.
const ENDLESS: (u64, u32) = ((1 << 53) - 1, 0);

/// A batch as the function takes it: by key, those on one key in order.
pub(crate) struct Batch<'b> {
    actions: &'b [Action<'b>],
    /// Positions in `actions`, in the order in which they are asked and answered.
    order: Vec<usize>,
}

impl<'b> Batch<'b> {
    pub(crate) fn new(actions: &'b [Action<'b>]) -> Self {
        let name =
            |at: &usize| actions.get(*at).map(|action| (action.policy().name().as_str(), action.key()));
        let mut order: Vec<_> = (0..actions.len()).collect();
        order.sort_by(|a, b| name(a).cmp(&name(b)));
        Self { actions, order }
    }

    /// The statement that decides it, with waits for rows of others of at most `patience`, in milliseconds.
    pub(crate) fn statement(&self, prefix: &str, patience: u128) -> String {
        if let [action] = self.actions
            && let Some(bucket) = one_request_of_a_bucket(action)
        {
            return decide_one(prefix, action, bucket, patience);
        }
        let mut keys = Keys::default();
        let mut shapes = Shapes::default();
        let mut asked = List::default();
        for action in self.order.iter().filter_map(|at| self.actions.get(*at)) {
            keys.add(action);
            asked.push(shapes.find_or_add(action));
            asked.push(action.times());
            asked.push(moment(action));
        }
        keys.end();
        let Keys { policies, names, kinds, firsts, .. } = keys;
        format!(
            "SELECT place, answer FROM {prefix}_decide_many_1(\
             '{{{policies}}}','{{{names}}}','{{{kinds}}}','{{{firsts}}}','{{{}}}','{{{asked}}}',{patience})",
            shapes.numbers
        )
    }

    /// The outcomes in the order of the actions.
    pub(crate) fn outcomes(&self, rows: &[PgRow]) -> Results<Outcome, PostgresError> {
        let mut answers: Vec<_> = self.actions.iter().map(|_| None).collect();
        for row in rows {
            let place = row.try_get::<i32, _>(0).ok().and_then(|place| usize::try_from(place).ok());
            let at = place.and_then(|place| self.order.get(place.checked_sub(1)?));
            if let Some(at) = at
                && let (Some(answer), Some(action)) = (answers.get_mut(*at), self.actions.get(*at))
            {
                *answer = Some(read(row, action));
            }
        }
        let missing = || Err(PostgresError::answer("an action has no answer"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }
}

/// The short way. Every argument is in quotes: the server reads those faster than numbers, which it has to convert.
fn decide_one(prefix: &str, action: &Action<'_>, bucket: &Bucket, patience: u128) -> String {
    let (policy, key) = (action.policy().name(), stored_key(action.key()));
    let (now, margin, p) = (moment(action), margin(action), bucket.ticks_per_micro());
    let [cost, most, room] = spans(bucket, action);
    format!(
        "SELECT 1,{prefix}_decide_1('{policy}',E'\\\\x{}','{now}','{margin}','{p}',\
         '{}','{}','{}','{}','{}','{}','{patience}')",
        Hexadecimal(key.as_bytes()),
        cost.0,
        cost.1,
        most.0,
        most.1,
        room.0,
        room.1,
    )
}

/// Numbers or words with commas between them.
#[derive(Default)]
struct List(String);

impl List {
    fn push(&mut self, item: impl Display) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        // Writing to a `String` does not fail.
        let _ = write!(self.0, "{item}");
    }
}

impl Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The keys of a batch: each once, with what its actions are, and how many come before them.
#[derive(Default)]
struct Keys<'b> {
    policies: List,
    names: List,
    kinds: List,
    firsts: List,
    last: Option<Action<'b>>,
    kind: u8,
    first: usize,
    next: usize,
}

impl<'b> Keys<'b> {
    fn add(&mut self, action: &Action<'b>) {
        let name = |action: &Action<'b>| (action.policy().name().clone(), action.key());
        let is_new = self.last.as_ref().map(name) != Some(name(action));
        if is_new {
            self.end();
            // In quotes: `null` is a name too, and nothing at all is a key.
            self.policies.push(format_args!("\"{}\"", action.policy().name()));
            self.names.push(format_args!("\"{}\"", Hexadecimal(stored_key(action.key()).as_bytes())));
            (self.last, self.first) = (Some(*action), self.next);
        }
        self.kind = match one_request_of_a_bucket(action) {
            Some(_) if is_new => 2,
            _ => self.kind.min(1).max(u8::from(may_write(action))),
        };
        self.next += 1;
    }

    fn end(&mut self) {
        if self.last.is_some() {
            self.kinds.push(self.kind);
            self.firsts.push(self.first);
        }
        self.kind = 0;
    }
}

/// When to decide it, or -1 for the time of the server.
fn moment(action: &Action<'_>) -> i64 {
    action.now().and_then(|now| i64::try_from(now.as_micros()).ok()).unwrap_or(-1)
}

/// Whether it can change anything; on a key that has used nothing it will.
fn may_write(action: &Action<'_>) -> bool {
    match action.operand() {
        Operand::Consume => action.cost() > 0 && !action.is_hopeless(),
        Operand::Peek => false,
        Operand::Refund => true,
    }
}

fn margin(action: &Action<'_>) -> u64 {
    u64::try_from(action.expiry_margin().as_micros()).unwrap_or(u64::MAX)
}

/// The bucket of an action that is one request of it, and has a chance.
fn one_request_of_a_bucket<'b>(action: &Action<'b>) -> Option<&'b Bucket> {
    let is_one = action.operand() == Operand::Consume && action.times() == 1 && may_write(action);
    match action.policy().rules() {
        [rule] if is_one => match rule.kernel() {
            Kernel::Bucket(bucket) => Some(bucket),
            _ => None,
        },
        _ => None,
    }
}

/// Bytes as the server takes them.
pub(crate) struct Hexadecimal<'b>(pub(crate) &'b [u8]);

impl Display for Hexadecimal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What actions ask for, each different thing once.
#[derive(Default)]
struct Shapes {
    numbers: List,
    count: usize,
    found: HashMap<String, usize>,
}

impl Shapes {
    /// Where the shape of this action begins, counted from 1.
    fn find_or_add(&mut self, action: &Action<'_>) -> usize {
        let (text, length) = shape(action);
        if let Some(at) = self.found.get(&text) {
            return *at;
        }
        let at = self.count + 1;
        self.count += length;
        self.numbers.push(&text);
        self.found.insert(text, at);
        at
    }
}

/// The numbers of a shape, and how many there are.
fn shape(action: &Action<'_>) -> (String, usize) {
    let rules = action.policy().rules();
    let mut numbers = Vec::with_capacity(13);
    numbers.push(margin(action));
    numbers.push(match action.operand() {
        Operand::Consume => 0,
        Operand::Peek => 1,
        Operand::Refund => 2,
    });
    numbers.push(u64::from(action.cost()));
    numbers.push(u64::try_from(rules.len()).unwrap_or(u64::MAX));
    for rule in rules {
        push_rule(rule.kernel(), action, &mut numbers);
    }
    let mut list = List::default();
    numbers.iter().for_each(|number| list.push(number));
    (list.0, numbers.len())
}

fn push_rule(kernel: &Kernel, action: &Action<'_>, numbers: &mut Vec<u64>) {
    match kernel {
        Kernel::Bucket(bucket) => {
            numbers.extend([1, u64::from(bucket.ticks_per_micro())]);
            for (micros, ticks) in spans(bucket, action) {
                numbers.extend([micros, u64::from(ticks)]);
            }
        }
        Kernel::FixedWindow(kernel) => numbers.extend([2, kernel.period_micros(), u64::from(kernel.limit())]),
        Kernel::SlidingWindow(kernel) => numbers.extend([
            3,
            kernel.period_micros(),
            u64::from(kernel.limit()),
            kernel.unit_micros(),
            kernel.units(),
        ]),
        Kernel::SlidingLog(kernel) => numbers.extend([4, kernel.period_micros(), u64::from(kernel.limit())]),
        // A kernel that this crate does not know: the function has no case for it and fails.
        _ => numbers.extend([u64::from(u8::MAX), 0, 0]),
    }
}

/// The spans of time that decide about a bucket: what one request takes; F + W, above which no debt is; and
/// F + min(`max_wait`, W), what may be owed with the request.
fn spans(bucket: &Bucket, action: &Action<'_>) -> [(u64, u32); 3] {
    let full = bucket.span_of(u64::from(bucket.capacity()));
    let patience = action.max_wait_micros().min(bucket.queue_micros());
    let cost = bucket.span_of(u64::from(action.cost()));
    let is_hopeless = action.operand() != Operand::Refund && action.cost() > bucket.capacity();
    let cost = if is_hopeless || cost.micros > ENDLESS.0 { ENDLESS } else { (cost.micros, cost.ticks) };
    [cost, (full.micros + bucket.queue_micros(), full.ticks), (full.micros + patience, full.ticks)]
}

/// Reads one row of the answer: granted, the time, and the states.
fn read(row: &PgRow, action: &Action<'_>) -> Result<Outcome, PostgresError> {
    let answer = row.try_get_unchecked::<Option<&str>, _>(1);
    match answer.map_err(|_| PostgresError::answer("a column is missing"))? {
        Some(answer) => read_answer(answer, action),
        None => Err(PostgresError::Corrupt(DataError::Corrupt { reason: "the row holds no state" })),
    }
}

fn read_answer(text: &str, action: &Action<'_>) -> Result<Outcome, PostgresError> {
    let unread = || PostgresError::answer("the numbers are not readable");
    let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).ok_or_else(unread)?;
    let mut numbers = text.split(',').map(str::parse::<u64>);
    let mut next = || numbers.next().transpose().ok().flatten();
    let granted = short_of(&mut next).ok_or_else(unread)?;
    let now = next().and_then(|now| Timestamp::from_micros(now).ok()).ok_or_else(unread)?;
    let mut states = SmallVec::<[RuleState; 1]>::new();
    for _ in action.policy().rules() {
        states.push(read_state(&mut next).ok_or_else(unread)?);
    }
    Ok(Outcome::new(granted, now, states))
}

/// One state; fresh after the end.
fn read_state(next: &mut impl FnMut() -> Option<u64>) -> Option<RuleState> {
    Some(match next().unwrap_or(0) {
        0 => RuleState::Fresh,
        1 => RuleState::Bucket(BucketState {
            tat_micros: next()?,
            fraction: short_of(next)?,
            denominator: short_of(next)?,
        }),
        2 => RuleState::FixedWindow(FixedWindowState {
            period: next()?,
            index: next()?,
            count: short_of(next)?,
        }),
        3 => RuleState::SlidingWindow(SlidingWindowState {
            period: next()?,
            index: next()?,
            current: short_of(next)?,
            previous: short_of(next)?,
        }),
        4 => RuleState::SlidingLog(LogSummary {
            used: short_of(next)?,
            newest: next()?,
            fits_at: NonZeroU64::new(next()?),
        }),
        _ => return None,
    })
}

fn short_of(next: &mut impl FnMut() -> Option<u64>) -> Option<u32> {
    u32::try_from(next()?).ok()
}

#[cfg(test)]
mod tests {
    use throttle_core::{Policy, Rule};

    use super::*;

    fn policy(rule: &str) -> Policy {
        Policy::new("p", [rule.parse::<Rule>().unwrap()]).unwrap()
    }

    #[test]
    fn the_short_way_is_for_one_request_of_one_bucket() {
        let is_short = |actions: &[Action<'_>]| {
            Batch::new(actions).statement("s.t", 500).starts_with("SELECT 1,s.t_decide_1('p',E'\\\\x6b',")
        };
        let (bucket, window) = (policy("gcra 10/s"), policy("fixed_window 10/s"));
        let one = Action::consume(&bucket, "k");
        assert!(is_short(&[one]) && is_short(&[one.with_cost(3)]));
        for other in [
            one.with_times(2),
            one.with_cost(0),
            one.with_cost(11),
            Action::peek(&bucket, "k"),
            Action::refund(&bucket, "k"),
            Action::consume(&window, "k"),
        ] {
            assert!(!is_short(&[other]), "{other:?}");
        }
        assert!(!is_short(&[one, one]));
    }

    #[test]
    fn a_batch_says_what_is_asked_of_each_key() {
        let (bucket, window) = (policy("gcra 10/s"), policy("fixed_window 10/s"));
        let one = |key| Action::consume(&bucket, key);
        let actions = [
            one("c"),
            one("b"),
            one("b"),
            Action::peek(&bucket, "a"),
            Action::consume(&window, "d"),
            one("e"),
        ];
        let statement = Batch::new(&actions).statement("s.t", 500);
        let keys = "'{\"p\",\"p\",\"p\",\"p\",\"p\"}','{\"61\",\"62\",\"63\",\"64\",\"65\"}','{0,1,2,1,2}','{0,1,3,4,5}',";
        assert!(statement.contains(keys), "{statement}");
    }

    #[test]
    fn no_answer_panics() {
        let policy = policy("gcra 10/s");
        let read = |text| read_answer(text, &Action::consume(&policy, "k"));
        for text in
            ["", "{}", "1,2", "{1}", "{1,-2}", "{1,2,1}", "{1,2,9}", "{4294967296,2}", "{1,2,1,5,5}", "{x,2}"]
        {
            assert!(matches!(read(text), Err(PostgresError::Answer(_))), "{text}");
        }
        assert_eq!(read("{1,2}").unwrap().granted(), 1);
        assert_eq!(read("{0,2,1,5,0,1}").unwrap().granted(), 0);
    }
}
