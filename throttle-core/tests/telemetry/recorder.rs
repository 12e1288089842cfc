//! A recorder that keeps what it is given.

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parking_lot::Mutex;

#[derive(Default, Clone)]
pub(crate) struct Recorded(Arc<Mutex<BTreeMap<String, Cell>>>);

#[derive(Clone)]
enum Cell {
    Count(u64),
    Level(f64),
    Values(Vec<f64>),
}

impl Recorded {
    /// One line for each metric, with its labels in order.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |(name, cell): (&String, &Cell)| match cell {
            Cell::Count(count) => format!("{name}: {count}"),
            Cell::Level(level) => format!("{name}: {level}"),
            Cell::Values(values) => format!("{name}: {} values", values.len()),
        };
        self.0.lock().iter().map(line).collect()
    }

    /// All values of a histogram, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        let all = self.0.lock();
        let cells = all.iter().filter(|(full, _)| full.starts_with(name));
        cells
            .flat_map(|(_, cell)| if let Cell::Values(values) = cell { values.clone() } else { panic!() })
            .collect()
    }

    fn entry(&self, key: &Key) -> Arc<Entry> {
        let mut labels: Vec<_> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        labels.sort();
        Arc::new(Entry { all: self.clone(), name: format!("{} {}", key.name(), labels.join(" ")) })
    }
}

struct Entry {
    all: Recorded,
    name: String,
}

impl CounterFn for Entry {
    fn increment(&self, by: u64) {
        let mut all = self.all.0.lock();
        match all.entry(self.name.clone()).or_insert(Cell::Count(0)) {
            Cell::Count(count) => *count += by,
            _ => panic!("{} is no counter", self.name),
        }
    }

    fn absolute(&self, _: u64) {
        panic!("counters are incremented");
    }
}

impl GaugeFn for Entry {
    fn increment(&self, _: f64) {
        panic!("gauges are set");
    }

    fn decrement(&self, _: f64) {
        panic!("gauges are set");
    }

    fn set(&self, level: f64) {
        self.all.0.lock().insert(self.name.clone(), Cell::Level(level));
    }
}

impl HistogramFn for Entry {
    fn record(&self, value: f64) {
        let mut all = self.all.0.lock();
        match all.entry(self.name.clone()).or_insert_with(|| Cell::Values(Vec::new())) {
            Cell::Values(values) => values.push(value),
            _ => panic!("{} is no histogram", self.name),
        }
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.entry(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.entry(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.entry(key))
    }
}
