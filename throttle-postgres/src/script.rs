//! The function that decides, and the form in which a batch goes to it and outcomes come back. `sql/decide.sql` and
//! `sql/any_rules.sql` say what the numbers are.
//!
//! Everything is written into the statement as numbers and hexadecimal digits, which need no escaping.

mod answers;
mod shapes;

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

use sqlx::Row;
use sqlx::postgres::PgRow;
use throttle_core::kernel::{Bucket, Kernel};
use throttle_core::{Action, Operand, Outcome, stored_key};

use crate::PostgresError;

use self::answers::read;
use self::shapes::{Shapes, margin, spans};

/// A batch as the functions take it: by key, those on one key in order.
pub(crate) struct Batch<'b> {
    actions: &'b [Action<'b>],
    /// Positions in `actions`, in the order in which they are asked and answered.
    order: Vec<usize>,
    /// Whether each is one request of a bucket on a key of its own, and none was asked yet: rows that are there already,
    /// and that nobody else writes just now, need no lock.
    is_hopeful: bool,
}

/// Outcomes of a batch, each with the position of its action.
pub(crate) type Answers = Vec<(usize, Result<Outcome, PostgresError>)>;

impl<'b> Batch<'b> {
    pub(crate) fn new(actions: &'b [Action<'b>]) -> Self {
        let mut order: Vec<_> = (0..actions.len()).collect();
        order.sort_by_cached_key(|at| actions.get(*at).map(stored_name));
        let mut batch = Self { actions, order, is_hopeful: false };
        let is_plain = |nth| {
            batch.action(nth).is_some_and(|action| one_request_of_a_bucket(action).is_some())
                && batch.name(nth) != batch.name(nth + 1)
        };
        batch.is_hopeful = batch.order.len() > 1 && (0..batch.order.len()).all(is_plain);
        batch
    }

    fn action(&self, nth: usize) -> Option<&'b Action<'b>> {
        self.actions.get(*self.order.get(nth)?)
    }

    fn name(&self, nth: usize) -> Option<(&'b str, &'b str)> {
        self.action(nth).map(name)
    }

    /// The statement that decides it, with waits for rows of others of at most `patience`, in milliseconds.
    pub(crate) fn statement(&self, prefix: &str, patience: u128) -> String {
        if let [at] = self.order.as_slice()
            && let Some(action) = self.actions.get(*at)
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
        let function = if self.is_hopeful { "buckets" } else { "many" };
        format!(
            "SELECT place, answer FROM {prefix}_decide_{function}_1(\
             '{{{policies}}}','{{{names}}}','{{{kinds}}}','{{{firsts}}}','{{{}}}','{{{asked}}}',{patience})",
            shapes.numbers
        )
    }

    /// What the rows answer, and what they leave to be asked another way.
    pub(crate) fn answers(&self, rows: &[PgRow]) -> (Answers, Option<Self>) {
        let mut answers = Answers::with_capacity(self.order.len());
        let mut left: Vec<_> = self.order.iter().copied().map(Some).collect();
        for row in rows {
            let place = row.try_get::<i32, _>(0).ok().and_then(|place| usize::try_from(place).ok());
            let Some(nth) = place.and_then(|place| place.checked_sub(1)) else { continue };
            if let Some(at) = left.get_mut(nth).and_then(Option::take)
                && let Some(action) = self.actions.get(at)
            {
                answers.push((at, read(row, action)));
            }
        }
        let left: Vec<_> = left.into_iter().flatten().collect();
        let rest = Self { actions: self.actions, order: left, is_hopeful: false };
        (answers, (self.is_hopeful && !rest.order.is_empty()).then_some(rest))
    }

    /// The same answer for all of it.
    pub(crate) fn failed(&self, error: &PostgresError) -> Answers {
        self.order.iter().map(|at| (*at, Err(error.clone()))).collect()
    }
}

/// What is stored in a row, in whose order all that lock several rows do so: batches, and the removal of a policy.
fn stored_name<'b>(action: &Action<'b>) -> (&'b str, Cow<'b, str>) {
    (action.policy().name().as_str(), stored_key(action.key()))
}

/// What a row is found by.
fn name<'b>(action: &Action<'b>) -> (&'b str, &'b str) {
    (action.policy().name().as_str(), action.key())
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

    /// As `reset_step` does: they would wait for each other in a circle otherwise.
    #[test]
    fn rows_are_locked_in_the_order_of_what_is_stored() {
        let (window, long) = (policy("fixed_window 10/s"), "z".repeat(300));
        let [long, short] = [&long, "b"].map(|key| Action::consume(&window, key));
        let hashed = Hexadecimal(stored_key(long.key()).as_bytes()).to_string();
        assert!(hashed.starts_with("23"), "of #");
        for actions in [[short, long], [long, short]] {
            let statement = Batch::new(&actions).statement("s.t", 500);
            assert!(statement.contains(&format!("'{{\"{hashed}\",\"62\"}}'")), "{statement}");
        }
    }

    #[test]
    fn only_requests_of_buckets_on_keys_of_their_own_are_asked_without_locks() {
        let (bucket, window) = (policy("gcra 10/s"), policy("fixed_window 10/s"));
        let one = |key| Action::consume(&bucket, key);
        let function = |actions: &[Action<'_>]| {
            let statement = Batch::new(actions).statement("s.t", 500);
            statement.split(['.', '(']).nth(1).unwrap().to_owned()
        };
        assert_eq!(function(&[one("b"), one("a").with_cost(2)]), "t_decide_buckets_1");
        for other in [
            one("b"),
            one("a").with_times(2),
            Action::peek(&bucket, "a"),
            Action::refund(&bucket, "a"),
            Action::consume(&window, "a"),
        ] {
            assert_eq!(function(&[one("b"), one("c"), other]), "t_decide_many_1", "{other:?}");
        }
    }

    #[test]
    fn what_a_hopeful_batch_leaves_is_asked_once_more() {
        let bucket = policy("gcra 10/s");
        let keys = ["c", "a", "b"];
        let actions = keys.map(|key| Action::consume(&bucket, key));
        let (answers, rest) = Batch::new(&actions).answers(&[]);
        let rest = rest.unwrap();
        assert!(answers.is_empty());
        assert_eq!(rest.order, [1, 2, 0]);
        let statement = rest.statement("s.t", 500);
        assert!(statement.contains("t_decide_many_1"), "{statement}");
        assert!(rest.answers(&[]).1.is_none());
    }
}
