//! Decides every request of a log, in batches, and counts.

use std::collections::HashMap;

use serde_json::json;
use throttle::{Action, AnyStore, Decision, Policy, Store, StoreUnavailableError};

use crate::log::Log;

/// Requests that one call of the store decides.
const BATCH: usize = 256;

/// What became of the requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Requests in the log.
    pub(crate) requests: usize,
    /// Different client addresses.
    pub(crate) clients: usize,
    /// Requests within the policy.
    pub(crate) admitted: usize,
    /// Requests beyond it.
    pub(crate) denied: usize,
    /// Numbers of the lines that are no requests.
    pub(crate) malformed: Vec<usize>,
    /// The five clients denied most, most first.
    pub(crate) most_denied: Vec<(String, usize)>,
}

impl Report {
    /// One object, as other programs like it.
    pub(crate) fn to_json(&self) -> String {
        json!({
            "requests": self.requests, "clients": self.clients, "admitted": self.admitted, "denied": self.denied,
            "malformed": self.malformed.len(), "malformed_lines": self.first_malformed(),
            "most_denied": self.most_denied,
        })
        .to_string()
    }

    /// The numbers of the first few.
    pub(crate) fn first_malformed(&self) -> Vec<usize> {
        self.malformed.iter().copied().take(10).collect()
    }
}

/// Limits each client of `log` by `policy`, at the log's time, from a fresh start.
pub(crate) async fn replay(
    log: &Log,
    policy: &Policy,
    store: &AnyStore,
    mut progress: impl FnMut(u64),
) -> Result<Report, StoreUnavailableError> {
    store.reset_policy(policy.name()).await?;
    let mut denied: HashMap<&str, usize> = HashMap::new();
    let mut done = 0;
    for batch in log.requests.chunks(BATCH) {
        let actions: Vec<_> =
            batch.iter().map(|(time, client)| Action::consume(policy, client).at(Some(*time))).collect();
        for (action, outcome) in actions.iter().zip(store.decide_many(&actions).await) {
            let count = denied.entry(action.key()).or_default();
            *count += usize::from(!Decision::of(action, &outcome?, 0).is_allowed());
        }
        done += batch.len();
        progress(done as u64);
    }
    Ok(report(log, &denied))
}

fn report(log: &Log, denied: &HashMap<&str, usize>) -> Report {
    let total: usize = denied.values().sum();
    let mut most: Vec<_> = denied.iter().filter(|(_, count)| **count > 0).collect();
    most.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    Report {
        requests: log.requests.len(),
        clients: denied.len(),
        admitted: log.requests.len() - total,
        denied: total,
        malformed: log.malformed.clone(),
        most_denied: most.into_iter().take(5).map(|(client, count)| ((*client).to_owned(), *count)).collect(),
    }
}
