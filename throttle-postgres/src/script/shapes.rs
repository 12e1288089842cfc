//! What actions ask for, as numbers: `sql/any_rules.sql` and `sql/rules.sql` say what they are.

use std::collections::HashMap;

use throttle_core::kernel::{Bucket, Kernel};
use throttle_core::{Action, Operand};

use super::List;

/// Spans at least this long fit nowhere; the function still counts them.
const ENDLESS: (u64, u32) = ((1 << 53) - 1, 0);

/// What actions ask for, each different thing once.
#[derive(Default)]
pub(super) struct Shapes<'b> {
    pub(super) numbers: List,
    count: usize,
    found: HashMap<String, usize>,
    /// The last action, and where its shape begins.
    last: Option<(Action<'b>, usize)>,
}

impl<'b> Shapes<'b> {
    /// Where the shape of this action begins, counted from 1.
    pub(super) fn find_or_add(&mut self, action: &Action<'b>) -> usize {
        let at = match self.last {
            Some((last, at)) if is_alike(&last, action) => at,
            _ => self.search_or_add(action),
        };
        self.last = Some((*action, at));
        at
    }

    fn search_or_add(&mut self, action: &Action<'_>) -> usize {
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

/// Whether they surely have one shape.
fn is_alike(one: &Action<'_>, other: &Action<'_>) -> bool {
    std::ptr::eq(one.policy().rules(), other.policy().rules())
        && one.operand() == other.operand()
        && one.cost() == other.cost()
        && one.max_wait_micros() == other.max_wait_micros()
        && one.expiry_margin() == other.expiry_margin()
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
pub(super) fn spans(bucket: &Bucket, action: &Action<'_>) -> [(u64, u32); 3] {
    let full = bucket.span_of(u64::from(bucket.capacity()));
    let patience = action.max_wait_micros().min(bucket.queue_micros());
    let cost = bucket.span_of(u64::from(action.cost()));
    let is_hopeless = action.operand() != Operand::Refund && action.cost() > bucket.capacity();
    let cost = if is_hopeless || cost.micros > ENDLESS.0 { ENDLESS } else { (cost.micros, cost.ticks) };
    [cost, (full.micros + bucket.queue_micros(), full.ticks), (full.micros + patience, full.ticks)]
}

pub(super) fn margin(action: &Action<'_>) -> u64 {
    u64::try_from(action.expiry_margin().as_micros()).unwrap_or(u64::MAX)
}
