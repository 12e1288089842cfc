//! The packed form of what is stored for a key, for stores that keep bytes.
//!
//! A version byte, the number of rules, then for each rule a tag and its numbers, big-endian:
//!
//! | tag | state | numbers |
//! |---|---|---|
//! | 0 | fresh | none |
//! | 1 | bucket | TAT u64, fraction u32, denominator u32 |
//! | 2 | fixed window | period u64, index u64, count u32 |
//! | 3 | sliding window | period u64, index u64, current u32, previous u32 |
//! | 4 | sliding window log | period u64, entries u32, then each: time u64, cost u32 |

use super::{
    BucketState, FixedWindowState, LogEntry, PolicyState, SlidingLogState, SlidingWindowState, StoredState,
};
use crate::{DataError, policy::MAX_RULES, rule::MAX_LOG_LIMIT};

const VERSION: u8 = 1;
const FRESH: u8 = 0;
const BUCKET: u8 = 1;
const FIXED_WINDOW: u8 = 2;
const SLIDING_WINDOW: u8 = 3;
const SLIDING_LOG: u8 = 4;

/// Times in stored states stay below what a Lua number counts exactly.
const MAX_STORED: u64 = 1 << 53;

impl PolicyState {
    /// The packed form.
    ///
    /// ```
    /// use throttle_core::kernel::{PolicyState, StoredState};
    ///
    /// let state = PolicyState::new(vec![StoredState::Fresh]);
    /// assert_eq!(PolicyState::from_bytes(&state.to_bytes())?, state);
    /// assert!(PolicyState::from_bytes(b"something else").is_err());
    /// # Ok::<(), throttle_core::DataError>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let states = self.states();
        let mut bytes = vec![VERSION, u8::try_from(states.len()).unwrap_or(u8::MAX)];
        for state in states {
            write(state, &mut bytes);
        }
        bytes
    }

    /// Reads the packed form.
    ///
    /// # Errors
    ///
    /// [`DataError::Corrupt`] for anything that [`to_bytes`](Self::to_bytes) does not write.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DataError> {
        let mut reader = Reader { bytes };
        if reader.byte()? != VERSION {
            return Err(corrupt("the version is not 1"));
        }
        let count = usize::from(reader.byte()?);
        if count == 0 || count > MAX_RULES {
            return Err(corrupt("the number of rules is out of range"));
        }
        let mut states = Vec::with_capacity(count);
        for _ in 0..count {
            states.push(reader.state()?);
        }
        if !reader.bytes.is_empty() {
            return Err(corrupt("there are more bytes than states"));
        }
        Ok(Self::new(states))
    }
}

fn write(state: &StoredState, bytes: &mut Vec<u8>) {
    match state {
        StoredState::Fresh => bytes.push(FRESH),
        StoredState::Bucket(bucket) => {
            bytes.push(BUCKET);
            bytes.extend(bucket.tat_micros.to_be_bytes());
            bytes.extend(bucket.fraction.to_be_bytes());
            bytes.extend(bucket.denominator.to_be_bytes());
        }
        StoredState::FixedWindow(window) => {
            bytes.push(FIXED_WINDOW);
            bytes.extend(window.period.to_be_bytes());
            bytes.extend(window.index.to_be_bytes());
            bytes.extend(window.count.to_be_bytes());
        }
        StoredState::SlidingWindow(window) => {
            bytes.push(SLIDING_WINDOW);
            bytes.extend(window.period.to_be_bytes());
            bytes.extend(window.index.to_be_bytes());
            bytes.extend(window.current.to_be_bytes());
            bytes.extend(window.previous.to_be_bytes());
        }
        StoredState::SlidingLog(log) => {
            bytes.push(SLIDING_LOG);
            bytes.extend(log.period().to_be_bytes());
            bytes.extend(u32::try_from(log.entries().len()).unwrap_or(u32::MAX).to_be_bytes());
            for entry in log.entries() {
                bytes.extend(entry.time.to_be_bytes());
                bytes.extend(entry.cost.to_be_bytes());
            }
        }
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
}

impl Reader<'_> {
    fn state(&mut self) -> Result<StoredState, DataError> {
        match self.byte()? {
            FRESH => Ok(StoredState::Fresh),
            BUCKET => self.bucket().map(StoredState::Bucket),
            FIXED_WINDOW => {
                let (period, index) = (self.period()?, self.long()?);
                Ok(StoredState::FixedWindow(FixedWindowState { period, index, count: self.short()? }))
            }
            SLIDING_WINDOW => {
                let (period, index, current) = (self.period()?, self.long()?, self.short()?);
                let previous = self.short()?;
                Ok(StoredState::SlidingWindow(SlidingWindowState { period, index, current, previous }))
            }
            SLIDING_LOG => self.log().map(|log| StoredState::SlidingLog(Box::new(log))),
            _ => Err(corrupt("a tag is unknown")),
        }
    }

    fn bucket(&mut self) -> Result<BucketState, DataError> {
        let state =
            BucketState { tat_micros: self.long()?, fraction: self.short()?, denominator: self.short()? };
        if state.fraction >= state.denominator {
            return Err(corrupt("a fraction is not below its denominator"));
        }
        Ok(state)
    }

    fn log(&mut self) -> Result<SlidingLogState, DataError> {
        let (mut log, count) = (SlidingLogState::new(self.period()?), self.short()?);
        let mut units = 0;
        for _ in 0..count {
            let entry = LogEntry { time: self.long()?, cost: self.short()? };
            if log.entries().back().is_some_and(|newest| newest.time >= entry.time) {
                return Err(corrupt("log entries are out of order"));
            }
            units += u64::from(entry.cost);
            if entry.cost == 0 || units > u64::from(MAX_LOG_LIMIT) {
                return Err(corrupt("log entries are out of range"));
            }
            log.push(entry);
        }
        Ok(log)
    }

    fn period(&mut self) -> Result<u64, DataError> {
        match self.long()? {
            0 => Err(corrupt("a period is zero")),
            period => Ok(period),
        }
    }

    fn byte(&mut self) -> Result<u8, DataError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn short(&mut self) -> Result<u32, DataError> {
        self.take().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Result<u64, DataError> {
        match u64::from_be_bytes(self.take()?) {
            number if number < MAX_STORED => Ok(number),
            _ => Err(corrupt("a time is out of range")),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DataError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(corrupt("bytes are missing"))?;
        self.bytes = rest;
        Ok(*taken)
    }
}

const fn corrupt(reason: &'static str) -> DataError {
    DataError::Corrupt { reason }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn states() -> impl Strategy<Value = StoredState> {
        let long = 0..MAX_STORED;
        prop_oneof![
            Just(StoredState::Fresh),
            (long.clone(), any::<u32>(), 1..=u32::MAX).prop_map(|(tat_micros, fraction, denominator)| {
                StoredState::Bucket(BucketState { tat_micros, fraction: fraction % denominator, denominator })
            }),
            (1..MAX_STORED, long.clone(), any::<u32>()).prop_map(|(period, index, count)| {
                StoredState::FixedWindow(FixedWindowState { period, index, count })
            }),
            (1..MAX_STORED, long, any::<u32>(), any::<u32>()).prop_map(
                |(period, index, current, previous)| {
                    StoredState::SlidingWindow(SlidingWindowState { period, index, current, previous })
                }
            ),
            (1..MAX_STORED, prop::collection::btree_map(0..MAX_STORED, 1..100_u32, 0..50)).prop_map(
                |(period, entries)| {
                    let mut log = SlidingLogState::new(period);
                    entries.into_iter().for_each(|(time, cost)| log.push(LogEntry { time, cost }));
                    StoredState::SlidingLog(Box::new(log))
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(states in prop::collection::vec(states(), 1..=MAX_RULES)) {
            let state = PolicyState::new(states);
            let bytes = state.to_bytes();
            prop_assert_eq!(PolicyState::from_bytes(&bytes), Ok(state));
            for end in 0..bytes.len() {
                prop_assert!(PolicyState::from_bytes(&bytes[..end]).is_err());
            }
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, mut tail: Vec<u8>) {
            let _ = PolicyState::from_bytes(&bytes);
            tail.splice(0..0, [VERSION, 1]);
            let _ = PolicyState::from_bytes(&tail);
        }
    }
}
