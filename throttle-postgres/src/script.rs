//! The function that decides, and the form in which a batch goes to it and outcomes come back. `sql/decide.sql` and
//! `sql/any_rules.sql` say what the numbers are.
//!
//! Everything is written into the statement as numbers and hexadecimal digits, which need no escaping.

use std::collections::HashMap;
use std::fmt::{Display, Write};
use std::num::NonZeroU64;
use std::time::Duration;

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

    /// The statement that decides it, with waits for rows of others of at most `patience`.
    pub(crate) fn statement(&self, prefix: &str, patience: Duration) -> String {
        let patience = patience.as_millis().clamp(1, 1 << 30);
        if let [action] = self.actions
            && may_write(action)
        {
            let (shape, _) = shape(action);
            let key = stored_key(action.key());
            return format!(
                "SELECT place, granted, now, states FROM {prefix}_decide_1(\
                 '{{{}}}','{{{}}}','{{{shape}}}',{},{},{patience})",
                action.policy().name(),
                Hexadecimal(key.as_bytes()),
                action.times(),
                moment(action)
            );
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
        let Keys { policies, names, counts, writes, .. } = keys;
        format!(
            "SELECT place, granted, now, states FROM {prefix}_decide_many_1(\
             '{{{policies}}}','{{{names}}}','{{{counts}}}','{{{writes}}}','{{{}}}','{{{asked}}}',{patience})",
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
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The keys of a batch: each once, with the number of its actions.
#[derive(Default)]
struct Keys<'b> {
    policies: List,
    names: List,
    counts: List,
    writes: List,
    last: Option<Action<'b>>,
    count: u32,
    may_write: bool,
}

impl<'b> Keys<'b> {
    fn add(&mut self, action: &Action<'b>) {
        let name = |action: &Action<'b>| (action.policy().name().clone(), action.key());
        if self.last.as_ref().map(name) != Some(name(action)) {
            self.end();
            self.policies.push(action.policy().name());
            self.names.push(Hexadecimal(stored_key(action.key()).as_bytes()));
            self.last = Some(*action);
        }
        self.count += 1;
        self.may_write |= may_write(action);
    }

    fn end(&mut self) {
        if self.count > 0 {
            self.counts.push(self.count);
            self.writes.push(if self.may_write { 't' } else { 'f' });
        }
        (self.count, self.may_write) = (0, false);
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

/// In quotes, since nothing at all is a key too.
struct Hexadecimal<'b>(&'b [u8]);

impl Display for Hexadecimal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('"')?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_char('"')
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
    numbers.push(u64::from(is_simple(action)));
    numbers.push(u64::try_from(action.expiry_margin().as_micros()).unwrap_or(u64::MAX));
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

/// Whether it charges one bucket and nothing else.
fn is_simple(action: &Action<'_>) -> bool {
    matches!(action.policy().rules(), [rule] if matches!(rule.kernel(), Kernel::Bucket(_)))
        && action.operand() == Operand::Consume
        && action.cost() > 0
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

/// Reads one row of the answer.
fn read(row: &PgRow, action: &Action<'_>) -> Result<Outcome, PostgresError> {
    let unread = |_| PostgresError::answer("a column is missing");
    let Some(granted) = row.try_get::<Option<i64>, _>(1).map_err(unread)? else {
        return Err(PostgresError::Corrupt(DataError::Corrupt { reason: "the row holds no state" }));
    };
    let granted = u32::try_from(granted).map_err(|_| PostgresError::answer("a count is out of range"))?;
    let now = row.try_get::<i64, _>(2).ok().and_then(|now| u64::try_from(now).ok());
    let now = now.and_then(|now| Timestamp::from_micros(now).ok());
    let now = now.ok_or_else(|| PostgresError::answer("a time is out of range"))?;
    let states = row.try_get_unchecked::<Option<&str>, _>(3).map_err(unread)?.unwrap_or("{}");
    read_states(states, granted, now, action)
}

fn read_states(
    text: &str,
    granted: u32,
    now: Timestamp,
    action: &Action<'_>,
) -> Result<Outcome, PostgresError> {
    let unread = || PostgresError::answer("the states are not readable");
    let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).ok_or_else(unread)?;
    let mut numbers = text.split(',').filter(|number| !number.is_empty()).map(str::parse::<u64>);
    let mut next = || numbers.next().transpose().ok().flatten();
    let mut states = Vec::with_capacity(action.policy().rules().len());
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
