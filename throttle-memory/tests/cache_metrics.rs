//! What is answered without asking the store is counted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use throttle_core::observe::metrics::CACHE_HITS;
use throttle_core::{Action, Policy, Rule, StoreBackend};
use throttle_memory::{DenyCache, Leased};
use throttle_testkit::ReferenceBackend;

/// Takes the one counter there may be.
#[derive(Default)]
struct Hits(Arc<AtomicU64>);

impl Recorder for Hits {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: Vec<_> = key.labels().map(|label| (label.key(), label.value())).collect();
        assert_eq!((key.name(), labels), (CACHE_HITS, vec![("backend", "reference")]));
        Counter::from_arc(Arc::clone(&self.0))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("{key}")
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("{key}")
    }
}

fn counted(what: impl FnOnce()) -> u64 {
    let hits = Hits::default();
    metrics::with_local_recorder(&hits, what);
    hits.0.load(Ordering::Relaxed)
}

fn policy(rule: &str) -> Policy {
    Policy::new("api", [rule.parse::<Rule>().unwrap()]).unwrap()
}

#[test]
fn a_denial_that_is_remembered_is_a_hit_on_every_way_to_it() {
    let (cache, policy) = (DenyCache::new(ReferenceBackend::default()), policy("gcra 1/h"));
    let action = Action::consume(&policy, "alice");
    let hits = counted(|| {
        for _ in 0..5 {
            pollster::block_on(cache.decide(&action)).unwrap();
        }
        pollster::block_on(cache.decide_many(&[action, action]));
    });
    assert_eq!((hits, cache.hits()), (5, 5));
}

#[test]
fn what_is_served_from_a_portion_is_a_hit_and_what_was_waited_for_is_none() {
    let (leased, policy) = (Leased::new(ReferenceBackend::default()), policy("fixed_window 100000/d"));
    let action = Action::consume(&policy, "alice");
    let hits = counted(|| {
        for _ in 0..500 {
            pollster::block_on(leased.decide(&action)).unwrap();
        }
    });
    assert!(leased.asked() > 0 && hits > 0);
    assert_eq!(hits + leased.asked(), 500);
}
