//! The translation: exchanges into transactions, and what etcd says to them into outcomes.

use etcd_client::{
    Compare, CompareOp, GetResponse, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use throttle_core::{CasOutcome, Exchange, Versioned};

use crate::EtcdError;
use crate::store::Revision;

/// The most bytes in one transaction. The server's own `--max-request-bytes` is 1.5 MiB, and its wrapping takes some.
pub(crate) const MAX_BYTES: usize = 1 << 20;

pub(crate) const NO_HEADER: EtcdError = EtcdError::Answer("an answer has no header");

/// An exchange, and the lease that its value gets.
pub(crate) type Leased<'a> = (&'a Exchange<'a, Revision>, i64);

/// One exchange: if the key has the revision that is expected, the value is put; else it is read. A key that is absent
/// has the revision 0.
pub(crate) fn exchange(leased: &Leased<'_>) -> Txn {
    Txn::new().when([compare(leased)]).and_then([put(leased)]).or_else([TxnOp::get(leased.0.key, None)])
}

fn compare((exchange, _): &Leased<'_>) -> Compare {
    let expected = exchange.expected.map_or(0, |version| version.revision);
    Compare::mod_revision(exchange.key, CompareOp::Equal, expected)
}

fn put((exchange, lease): &Leased<'_>) -> TxnOp {
    TxnOp::put(exchange.key, exchange.value, Some(PutOptions::new().with_lease(*lease)))
}

/// Several exchanges in one transaction, each a transaction in it: one in conflict keeps no other from being stored.
pub(crate) fn exchanges(all: &[Leased<'_>]) -> Txn {
    Txn::new().and_then(each(all))
}

/// Several exchanges, all or none: the least work, and nothing stored if any of them is in conflict.
pub(crate) fn all_exchanges(all: &[Leased<'_>]) -> Txn {
    let (compares, puts): (Vec<_>, Vec<_>) = all.iter().map(|leased| (compare(leased), put(leased))).unzip();
    Txn::new().when(compares).and_then(puts)
}

/// All of them at once, or else each by itself.
pub(crate) fn all_or_each(all: &[Leased<'_>]) -> Txn {
    all_exchanges(all).or_else(each(all))
}

fn each(all: &[Leased<'_>]) -> Vec<TxnOp> {
    all.iter().map(|leased| TxnOp::txn(exchange(leased))).collect()
}

/// Several reads in one transaction, which changes nothing.
pub(crate) fn reads(keys: &[&str]) -> Txn {
    Txn::new().and_then(keys.iter().map(|key| TxnOp::get(*key, None)).collect::<Vec<_>>())
}

/// What a transaction of [`exchange`] came to.
pub(crate) fn outcome(response: &TxnResponse, lease: i64) -> Result<CasOutcome<Revision>, EtcdError> {
    let revision = response.header().map(etcd_client::ResponseHeader::revision);
    outcome_at(response, lease, revision)
}

/// What a transaction of [`all_exchanges`] came to: none if they were not stored all at once.
pub(crate) fn all_outcomes(
    response: &TxnResponse,
    all: &[Leased<'_>],
) -> Result<Option<Vec<CasOutcome<Revision>>>, EtcdError> {
    if !response.succeeded() {
        return Ok(None);
    }
    let revision = response.header().ok_or(NO_HEADER)?.revision();
    let stored = |(_, lease): &Leased<'_>| CasOutcome::Stored(Revision { revision, lease: *lease });
    Ok(Some(all.iter().map(stored).collect()))
}

/// What a transaction of [`exchanges`] came to, or one of [`all_or_each`] that did each by itself, in order.
pub(crate) fn outcomes(
    response: &TxnResponse,
    all: &[Leased<'_>],
) -> Result<Vec<CasOutcome<Revision>>, EtcdError> {
    let answers = response.op_responses();
    if answers.len() != all.len() {
        return Err(EtcdError::Answer("there are not as many answers as exchanges"));
    }
    let revision = response.header().map(etcd_client::ResponseHeader::revision);
    let outcome = |(answer, (_, lease)): (TxnOpResponse, &Leased<'_>)| match answer {
        TxnOpResponse::Txn(txn) => outcome_at(&txn, *lease, revision),
        _ => Err(EtcdError::Answer("the answer to a transaction is none")),
    };
    answers.into_iter().zip(all).map(outcome).collect()
}

/// Everything that one transaction puts gets its revision, which the header tells.
fn outcome_at(
    response: &TxnResponse,
    lease: i64,
    revision: Option<i64>,
) -> Result<CasOutcome<Revision>, EtcdError> {
    if response.succeeded() {
        let revision = revision.ok_or(NO_HEADER)?;
        return Ok(CasOutcome::Stored(Revision { revision, lease }));
    }
    match response.op_responses().into_iter().next() {
        Some(TxnOpResponse::Get(get)) => Ok(CasOutcome::Conflict(value(get))),
        _ => Err(EtcdError::Answer("a conflict does not show the value")),
    }
}

/// The answers to a transaction of [`reads`], in order.
pub(crate) fn values(
    response: &TxnResponse,
    asked: usize,
) -> Result<Vec<Option<Versioned<Revision>>>, EtcdError> {
    let answers = response.op_responses();
    if answers.len() != asked {
        return Err(EtcdError::Answer("there are not as many answers as keys"));
    }
    let value = |answer| match answer {
        TxnOpResponse::Get(get) => Ok(value(get)),
        _ => Err(EtcdError::Answer("the answer to a read is none")),
    };
    answers.into_iter().map(value).collect()
}

/// The one value of an answer, if there is any.
pub(crate) fn value(mut response: GetResponse) -> Option<Versioned<Revision>> {
    response.take_kvs().into_iter().next().map(|pair: KeyValue| Versioned {
        version: Revision { revision: pair.mod_revision(), lease: pair.lease() },
        value: pair.into_key_value().1,
    })
}

/// How many bytes an exchange takes in [`all_or_each`], but for the wrapping.
pub(crate) fn most_bytes(exchange: &Exchange<'_, Revision>) -> usize {
    exchange.key.len() * 5 + exchange.value.len() * 2
}

/// Cuts what is to go together into transactions: at most so many each, and not too many bytes.
pub(crate) fn chunks<T>(all: &[T], most: usize, bytes: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let (mut chunks, mut rest) = (Vec::new(), all);
    while !rest.is_empty() {
        let mut sum = 0_usize;
        let fits = |item: &&T| {
            sum = sum.saturating_add(bytes(item));
            sum <= MAX_BYTES
        };
        let count = rest.iter().take(most.max(1)).take_while(fits).count().max(1);
        let (chunk, left) = rest.split_at(count);
        chunks.push(chunk);
        rest = left;
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_bounded_in_operations_and_bytes() {
        let lengths = |sizes: &[usize], most| -> Vec<usize> {
            chunks(sizes, most, |size| *size).iter().map(|chunk| chunk.len()).collect()
        };
        assert!(lengths(&[], 3).is_empty());
        assert_eq!(lengths(&[1; 7], 3), [3, 3, 1]);
        assert_eq!(lengths(&[MAX_BYTES / 2, MAX_BYTES / 2, 1], 3), [2, 1]);
        assert_eq!(lengths(&[MAX_BYTES * 2, MAX_BYTES * 2], 3), [1, 1], "what is too large goes alone");
        assert_eq!(lengths(&[usize::MAX, usize::MAX], 0), [1, 1]);
    }
}
