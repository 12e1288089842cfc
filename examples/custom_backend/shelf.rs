//! A store of bytes with versions: all that a backend's author writes.

use std::collections::HashMap;
use std::convert::Infallible;

use parking_lot::Mutex;
use throttle::{CasOutcome, CasStore, Exchange, Timestamp, Versioned};

#[derive(Debug, Default)]
pub(crate) struct Shelf(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    /// The last version given to any value.
    last: u64,
    /// Values by key, each with the time at which it goes.
    values: HashMap<String, (Versioned<u64>, Timestamp)>,
}

impl CasStore for Shelf {
    type BaseError = Infallible;
    type Version = u64;

    fn name(&self) -> &'static str {
        "shelf"
    }

    async fn get(&self, key: &str) -> Result<Option<Versioned<u64>>, Infallible> {
        let (now, values) = (self.now(), &mut self.0.lock().values);
        // What is never asked for again stays: a real store would sweep.
        if values.get(key).is_some_and(|(_, goes)| *goes <= now) {
            values.remove(key);
        }
        Ok(values.get(key).map(|(value, _)| value.clone()))
    }

    async fn compare_exchange(&self, new: &Exchange<'_, u64>) -> Result<CasOutcome<u64>, Infallible> {
        let (now, mut shelf) = (self.now(), self.0.lock());
        let current = shelf.values.get(new.key).filter(|(_, goes)| *goes > now).map(|(value, _)| value);
        if current.map(|value| &value.version) != new.expected {
            return Ok(CasOutcome::Conflict(current.cloned()));
        }
        shelf.last += 1;
        let value = Versioned { version: shelf.last, value: new.value.to_owned() };
        shelf.values.insert(new.key.to_owned(), (value, now.saturating_add(new.ttl)));
        Ok(CasOutcome::Stored(shelf.last))
    }

    async fn remove(&self, key: &str) -> Result<bool, Infallible> {
        Ok(self.0.lock().values.remove(key).is_some_and(|(_, goes)| goes > self.now()))
    }

    async fn remove_prefix(&self, prefix: &str) -> Result<u64, Infallible> {
        let (now, mut shelf) = (self.now(), self.0.lock());
        let removed =
            shelf.values.extract_if(|key, _| key.starts_with(prefix)).filter(|(_, (_, goes))| *goes > now);
        Ok(removed.count() as u64)
    }
}
