//! [`EtcdStore`]: values that can be replaced on condition, on etcd.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, DeleteOptions, GetOptions, GetResponse, KvClient, Txn, TxnResponse};
use futures_util::future::join;
use throttle_core::{CasOutcome, CasStore, Clock, Exchange, Results, Timestamp, Versioned};

use crate::EtcdError;
use crate::config::{EtcdConfig, Settings};
use crate::connection::{Connection, Repeat};
use crate::lanes::{Contended, Outlook};
use crate::leases::{Lease, Leases};
use crate::txn;

/// How many keys one step of a removal takes.
const REMOVE_STEP: i64 = 1_000;

/// The most bytes in one answer: a full transaction of the largest values there are.
const MAX_ANSWER: usize = 256 << 20;

/// Single values on etcd: what [`EtcdBackend`](crate::EtcdBackend) stands on.
///
/// A version is the revision of the cluster at which the value was put. Several keys go in one transaction, as far as the
/// server takes it, and one in conflict keeps no other from being stored. Only the first conflict in an hour costs a round
/// trip for those that go with it: until then they go all or none, which is less work for etcd. Time is that of the client's
/// clock.
#[derive(Debug)]
pub struct EtcdStore {
    connection: Arc<Connection>,
    leases: Leases,
    contended: Contended,
    prefix: String,
    max_txn_ops: usize,
    clock: Arc<dyn Clock>,
}

/// What tells one value of a key from every other: the revision of the cluster at which it was put. With it comes the
/// lease that the value has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revision {
    pub(crate) revision: i64,
    pub(crate) lease: i64,
}

impl EtcdStore {
    pub(crate) fn new(config: EtcdConfig) -> Self {
        let Settings { prefix, max_txn_ops, clock, .. } = config.settings.clone();
        Self {
            connection: Connection::new(config),
            leases: Leases::new(Arc::clone(&clock)),
            contended: Contended::new(),
            prefix,
            max_txn_ops,
            clock,
        }
    }

    pub(crate) const fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub(crate) const fn contended(&self) -> &Contended {
        &self.contended
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Waits for the first answer of any member, and then looks for the leader.
    pub(crate) async fn connect(&self, deadline: Duration) -> Result<(), EtcdError> {
        let key = format!("{}:ping", self.prefix);
        let request = |client| {
            let key = key.clone();
            async move { kv(&client).get(key, None).await }
        };
        self.connection.send_within(deadline, Repeat::Freely, request).await?;
        self.connection.prefer_leader().await;
        Ok(())
    }

    /// Exchanges that fit into one transaction.
    async fn exchange(&self, all: &[Exchange<'_, Revision>]) -> Result<Vec<CasOutcome<Revision>>, EtcdError> {
        match self.try_exchange(all).await {
            // Nothing was stored, and the lease is forgotten: once more with another.
            Err(EtcdError::LeaseGone(_)) => self.try_exchange(all).await,
            outcomes => outcomes,
        }
    }

    async fn try_exchange(
        &self,
        all: &[Exchange<'_, Revision>],
    ) -> Result<Vec<CasOutcome<Revision>>, EtcdError> {
        let choose = |exchange: &Exchange<'_, Revision>| {
            self.leases.choose(exchange.ttl, exchange.expected.map(|version| version.lease))
        };
        let leases: Vec<Lease> = all.iter().map(choose).collect();
        self.leases.get(&leases, &self.connection).await?;
        let leased: Vec<_> =
            all.iter().zip(&leases).map(|(exchange, lease)| (exchange, lease.id())).collect();
        let ahead = self.leases.get_ahead(&leases, &self.connection);
        let (outcomes, ()) = join(self.commit(&leased), ahead).await;
        if let Err(EtcdError::LeaseGone(_)) = outcomes {
            leases.iter().for_each(|lease| self.leases.forget(lease.id()));
        }
        outcomes
    }

    async fn commit(&self, leased: &[txn::Leased<'_>]) -> Result<Vec<CasOutcome<Revision>>, EtcdError> {
        if let [one] = leased {
            let response = self.transact(Repeat::Never, || txn::exchange(one)).await?;
            return Ok(vec![txn::outcome(&response, one.1)?]);
        }
        let outlook = self.contended.outlook();
        let all = match outlook {
            Outlook::Alone => txn::all_exchanges,
            Outlook::Calm => txn::all_or_each,
            Outlook::Contended => return self.commit_each(leased).await,
        };
        let response = self.transact(Repeat::Never, || all(leased)).await?;
        if let Some(outcomes) = txn::all_outcomes(&response, leased)? {
            return Ok(outcomes);
        }
        self.contended.note_surprise();
        match outlook {
            Outlook::Alone => self.commit_each(leased).await,
            _ => txn::outcomes(&response, leased),
        }
    }

    async fn commit_each(&self, leased: &[txn::Leased<'_>]) -> Result<Vec<CasOutcome<Revision>>, EtcdError> {
        let response = self.transact(Repeat::Never, || txn::exchanges(leased)).await?;
        txn::outcomes(&response, leased)
    }

    pub(crate) async fn transact(
        &self,
        repeat: Repeat,
        txn: impl Fn() -> Txn,
    ) -> Result<TxnResponse, EtcdError> {
        let request = |client| {
            let txn = txn();
            async move { kv(&client).txn(txn).await }
        };
        self.connection.send(repeat, request).await
    }

    /// What there is of one key, as it is now: a majority agrees.
    pub(crate) async fn look_up(&self, key: &str) -> Result<GetResponse, EtcdError> {
        let request = |client| async move { kv(&client).get(key, None).await };
        self.connection.send(Repeat::Freely, request).await
    }

    async fn read(&self, keys: &[&str]) -> Result<Vec<Option<Versioned<Revision>>>, EtcdError> {
        let response = self.transact(Repeat::Freely, || txn::reads(keys)).await?;
        txn::values(&response, keys.len())
    }

    /// The keys from `from` to before `end`, the first step of them.
    async fn keys(&self, from: &[u8], end: &[u8]) -> Result<GetResponse, EtcdError> {
        let request = |client| async move {
            let options = GetOptions::new().with_range(end).with_keys_only().with_limit(REMOVE_STEP);
            kv(&client).get(from, Some(options)).await
        };
        self.connection.send(Repeat::Freely, request).await
    }

    /// Removes the keys from `from` to before `end`; how many there were. Repeated after a lost answer, it would count wrong.
    async fn remove_range(&self, from: &[u8], end: &[u8]) -> Result<u64, EtcdError> {
        let request = |client| async move {
            kv(&client).delete(from, Some(DeleteOptions::new().with_range(end))).await
        };
        let response = self.connection.send(Repeat::Never, request).await?;
        Ok(u64::try_from(response.deleted()).unwrap_or(0))
    }
}

fn kv(client: &Client) -> KvClient {
    client.kv_client().max_decoding_message_size(MAX_ANSWER)
}

impl CasStore for EtcdStore {
    type BaseError = EtcdError;
    type Version = Revision;

    fn name(&self) -> &'static str {
        "etcd"
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn get(&self, key: &str) -> Result<Option<Versioned<Revision>>, EtcdError> {
        self.look_up(key).await.map(txn::value)
    }

    async fn get_many(&self, keys: &[&str]) -> Results<Option<Versioned<Revision>>, EtcdError> {
        let mut values = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(self.max_txn_ops) {
            values.extend(for_each(self.read(chunk).await, chunk.len()));
        }
        values
    }

    async fn compare_exchange(
        &self,
        exchange: &Exchange<'_, Revision>,
    ) -> Result<CasOutcome<Revision>, EtcdError> {
        let outcome = self.compare_exchange_many(std::slice::from_ref(exchange)).await.pop();
        outcome.unwrap_or(Err(EtcdError::Answer("there is no answer to an exchange")))
    }

    async fn compare_exchange_many(
        &self,
        exchanges: &[Exchange<'_, Revision>],
    ) -> Results<CasOutcome<Revision>, EtcdError> {
        let mut outcomes = Vec::with_capacity(exchanges.len());
        // The server counts the transaction around them as one operation.
        let most = self.max_txn_ops.saturating_sub(1);
        for chunk in txn::chunks(exchanges, most, txn::most_bytes) {
            outcomes.extend(for_each(self.exchange(chunk).await, chunk.len()));
        }
        // A key that is gone has expired: nobody else changes it.
        let conflicts = exchanges.iter().zip(&outcomes);
        let conflicts = conflicts.filter(|(_, outcome)| matches!(outcome, Ok(CasOutcome::Conflict(Some(_)))));
        self.contended.note(conflicts.map(|(exchange, _)| exchange.key));
        outcomes
    }

    async fn remove(&self, key: &str) -> Result<bool, EtcdError> {
        self.remove_range(key.as_bytes(), &next_key(key.as_bytes())).await.map(|removed| removed > 0)
    }

    /// Once from the first key to the last: what others store behind it stays, so it ends however busy the keys are.
    async fn remove_prefix(&self, prefix: &str) -> Result<u64, EtcdError> {
        let (mut from, end) = prefix_range(prefix);
        let mut removed = 0;
        loop {
            let page = self.keys(&from, &end).await?;
            let Some(last) = page.kvs().last() else { return Ok(removed) };
            let next = next_key(last.key());
            removed += self.remove_range(&from, &next).await?;
            if !page.more() {
                return Ok(removed);
            }
            from = next;
        }
    }

    async fn ping(&self) -> Result<(), EtcdError> {
        let key = format!("{}:ping", self.prefix);
        self.get(&key).await.map(drop)
    }
}

/// The first key that is greater.
fn next_key(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The first key that may have this prefix, and the end of them. etcd takes the key 0 for the least, and the end 0 for none.
/// No byte of UTF-8 is 255.
fn prefix_range(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let Some((last, rest)) = prefix.as_bytes().split_last() else { return (vec![0], vec![0]) };
    (prefix.into(), [rest, &[last.saturating_add(1)]].concat())
}

/// What came of several at once, for each of them.
fn for_each<T>(all: Result<Vec<T>, EtcdError>, count: usize) -> Results<T, EtcdError> {
    match all {
        Ok(all) => all.into_iter().map(Ok).collect(),
        Err(error) => std::iter::repeat_with(|| Err(error.clone())).take(count).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_has_the_prefix_and_nothing_else() {
        let (from, end) = prefix_range("throttle:1:p:");
        let is_in = |key: &[u8]| *from <= *key && *key < *end;
        assert!(
            ["throttle:1:p:", "throttle:1:p:a", "throttle:1:p:\u{10ffff}"]
                .iter()
                .all(|key| is_in(key.as_bytes()))
        );
        assert!(
            ["throttle:1:p", "throttle:1:p;", "throttle:1:pp:a", ""].iter().all(|key| !is_in(key.as_bytes()))
        );
        assert_eq!(prefix_range(""), (vec![0], vec![0]), "all there are");
    }
}
