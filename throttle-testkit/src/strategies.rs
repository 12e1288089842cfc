//! Generators of rules and of what happens to keys, for properties over any store.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use throttle_core::{Action, Algorithm, Operand, Policy, Quota, Rule, Timestamp};

const SECOND: u64 = 1_000_000;

/// What happens to one key under one policy.
#[derive(Debug, Clone)]
pub struct Story {
    /// The rules of the policy.
    pub rules: Vec<Rule>,
    /// What is asked, in order.
    pub steps: Vec<Step>,
}

/// One question, after a time.
#[derive(Debug, Clone)]
pub struct Step {
    /// How the clock moves before it.
    pub gap: Gap,
    /// What is done with the cost.
    pub operand: Operand,
    /// Units one request takes.
    pub cost: u32,
    /// Up to how many identical requests.
    pub times: u32,
    /// How long the caller would wait in a queue, in microseconds.
    pub max_wait_micros: u64,
}

/// How a clock moves between two steps, in microseconds; it may go back.
#[derive(Debug, Clone, Copy)]
pub enum Gap {
    /// By so many.
    By(i64),
    /// By the time from one unit to the next of a rule, and a rest.
    Interval {
        /// Which rule, modulo their number.
        rule: usize,
        /// More or less than that.
        rest: i64,
    },
    /// By a number of periods of a rule, and a rest.
    Periods {
        /// Which rule, modulo their number.
        rule: usize,
        /// How many.
        periods: i64,
        /// More or less than that.
        rest: i64,
    },
    /// To the last answer's `retry_after`, and a rest.
    Retry(i64),
    /// To the last answer's `reset_after`, and a rest.
    Reset(i64),
}

impl Step {
    /// The step as a question about `key` at `now`.
    #[must_use]
    pub fn action<'a>(&self, policy: &'a Policy, key: &'a str, now: Timestamp) -> Action<'a> {
        let action = match self.operand {
            Operand::Consume => Action::consume(policy, key),
            Operand::Peek => Action::peek(policy, key),
            Operand::Refund => Action::refund(policy, key),
        };
        let wait = Duration::from_micros(self.max_wait_micros);
        action.with_cost(self.cost).with_times(self.times).with_max_wait(wait).at(Some(now))
    }
}

/// Any algorithm.
pub fn algorithm() -> impl Strategy<Value = Algorithm> {
    select(&Algorithm::ALL[..])
}

/// One of the bucket algorithms.
pub fn bucket_algorithm() -> impl Strategy<Value = Algorithm> {
    select(&[Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::Gcra][..])
}

/// A rule of any algorithm, with periods from a microsecond to a day and limits from 1 to five million; buckets with
/// any burst, and sometimes a queue.
pub fn rule() -> impl Strategy<Value = Rule> {
    algorithm().prop_flat_map(rule_of)
}

/// A rule of one algorithm.
pub fn rule_of(algorithm: Algorithm) -> impl Strategy<Value = Rule> {
    let queue = prop_oneof![4 => Just(0), 1 => select(&[1, 1_000, SECOND, 21 * SECOND][..])];
    (limit(), period(), any::<u8>(), queue).prop_filter_map(
        "no store counts that far",
        move |(limit, period, burst, queue)| {
            let limit = if algorithm == Algorithm::SlidingWindowLog { limit.min(1_000) } else { limit };
            let quota = Quota::per(limit, Duration::from_micros(period));
            if !algorithm.is_bucket() {
                return Rule::new(algorithm, quota).ok();
            }
            let rule = Rule::new(algorithm, quota.burst(burst_of(limit, burst)));
            rule.and_then(|rule| rule.max_queue(Duration::from_micros(queue))).ok()
        },
    )
}

fn burst_of(limit: u32, choice: u8) -> u32 {
    match choice % 6 {
        0 => 1,
        1 => 2,
        2 => 5,
        3 => limit.saturating_mul(10),
        4 => (limit / 2).max(1),
        _ => limit,
    }
}

fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![
        select(&[1, 2, 3, 5, 7, 10, 60, 90, 997, 1_000, 99_991, 1_000_000, 5_000_000][..]),
        1..=30_u32,
    ]
}

fn period() -> impl Strategy<Value = u64> {
    let usual = select(&[1, 1_000, 999_983, SECOND, 7 * SECOND, 60 * SECOND, 3_600 * SECOND][..]);
    prop_oneof![4 => usual, 1 => Just(86_400 * SECOND), 1 => 2..10 * SECOND]
}

/// One to three rules.
pub fn rules() -> impl Strategy<Value = Vec<Rule>> {
    prop_oneof![3 => vec(rule(), 1), 2 => vec(rule(), 2..=3)]
}

/// Any key: mostly plain ones, some with whatever a string can hold.
pub fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9]{0,12}",
        "[a-z:{}#/|\\\\* ]{0,12}",
        any::<String>(),
        (190..230_usize).prop_map(|length| "k".repeat(length)),
    ]
}

/// Up to 24 steps under any rules, with a clock that steps back and forth.
pub fn story() -> impl Strategy<Value = Story> {
    story_of(rules(), 24)
}

/// Up to `most` steps under rules of a kind.
pub fn story_of(rules: impl Strategy<Value = Vec<Rule>>, most: usize) -> impl Strategy<Value = Story> {
    rules.prop_flat_map(move |rules| {
        let steps = vec(step_under(&rules, gap().boxed()), 1..=most);
        (Just(rules), steps).prop_map(|(rules, steps)| Story { rules, steps })
    })
}

/// The same with a clock that never steps back.
pub fn forward_story_of(
    rules: impl Strategy<Value = Vec<Rule>>,
    most: usize,
) -> impl Strategy<Value = Story> {
    rules.prop_flat_map(move |rules| {
        let steps = vec(step_under(&rules, forward_gap().boxed()), 1..=most);
        (Just(rules), steps).prop_map(|(rules, steps)| Story { rules, steps })
    })
}

/// A story whose steps go round two to five keys.
pub fn crowd() -> impl Strategy<Value = (Story, Vec<String>)> {
    let keys = proptest::collection::hash_set(key(), 2..=5);
    (story(), keys).prop_map(|(story, keys)| (story, keys.into_iter().collect()))
}

/// Two or three stories of one key, under rules that change from one to the next.
pub fn changing_story() -> impl Strategy<Value = Vec<Story>> {
    vec(story_of(rules(), 10), 2..=3)
}

/// A step whose cost and waiting time fit the rules: mostly one unit, sometimes all, or one more than that.
fn step_under(
    rules: &[Rule],
    gap: proptest::strategy::BoxedStrategy<Gap>,
) -> impl Strategy<Value = Step> + use<> {
    let capacity = rules.iter().map(Rule::capacity).min().unwrap_or(1);
    let period = rules.iter().map(|rule| rule.quota().period()).max().unwrap_or_default();
    let patient = u64::try_from(period.as_micros()).unwrap_or(u64::MAX).saturating_mul(10);
    let cost = prop_oneof![
        4 => Just(1),
        1 => select(vec![0, 2, 3, (capacity / 2).max(1), capacity, capacity, capacity.saturating_add(1)]),
    ];
    let operand = prop_oneof![
        16 => Just(Operand::Consume),
        2 => Just(Operand::Peek),
        2 => Just(Operand::Refund),
    ];
    let times = prop_oneof![5 => Just(1), 1 => 2..=12_u32, 1 => select(vec![1_000, capacity, 1 << 20])];
    let wait = prop_oneof![2 => Just(0), 2 => select(vec![1, 1_000, SECOND, patient, u64::MAX])];
    (gap, operand, cost, times, wait).prop_map(|(gap, operand, cost, times, max_wait_micros)| Step {
        gap,
        operand,
        cost,
        times,
        max_wait_micros,
    })
}

fn gap() -> impl Strategy<Value = Gap> {
    let back = prop_oneof![
        (-10 * 1_000_000..0_i64).prop_map(Gap::By),
        Just(Gap::By(-3_600_000_000)),
        (0..3_usize, -5..0_i64, -1..=1_i64).prop_map(|(rule, periods, rest)| Gap::Periods {
            rule,
            periods,
            rest
        }),
    ];
    prop_oneof![9 => forward_gap(), 1 => back]
}

fn forward_gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        3 => select(&[0, 0, 1][..]).prop_map(Gap::By),
        2 => (0..3_usize, 0..=1_i64).prop_map(|(rule, rest)| Gap::Interval { rule, rest }),
        2 => (0..20_000_000_i64).prop_map(Gap::By),
        1 => (0..3_usize, 0..=3_i64, 0..=1_i64)
            .prop_map(|(rule, periods, rest)| Gap::Periods { rule, periods, rest }),
        2 => (0..=1_i64).prop_map(Gap::Retry),
        1 => (0..=1_i64).prop_map(Gap::Reset),
    ]
}
