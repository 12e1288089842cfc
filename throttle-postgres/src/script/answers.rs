//! What comes back: rows of a position and an answer.

use std::num::NonZeroU64;

use smallvec::SmallVec;
use sqlx::Row;
use sqlx::postgres::PgRow;
use throttle_core::kernel::{BucketState, FixedWindowState, LogSummary, RuleState, SlidingWindowState};
use throttle_core::{Action, DataError, Outcome, Timestamp};

use crate::PostgresError;

/// Reads one row of the answer: granted, the time, and the states.
pub(super) fn read(row: &PgRow, action: &Action<'_>) -> Result<Outcome, PostgresError> {
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

    #[test]
    fn no_answer_panics() {
        let policy = Policy::new("p", ["gcra 10/s".parse::<Rule>().unwrap()]).unwrap();
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
