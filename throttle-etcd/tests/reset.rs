//! Resets while others decide.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::own::Own;
use etcd_client::{GetOptions, PutOptions, Txn, TxnOp};
use futures_util::future::join_all;
use throttle_core::{PolicyName, StoreBackend, storage_key, storage_prefix};

const QUIET: usize = 2_500;
const BUSY: usize = 16;

async fn put_all(own: &Own, keys: impl Iterator<Item = String>) {
    let puts: Vec<_> = keys.map(|key| TxnOp::put(key, "", None::<PutOptions>)).collect();
    let mut client = own.client().await;
    for some in puts.chunks(100) {
        client.txn(Txn::new().and_then(some)).await.unwrap();
    }
}

/// Keys that are stored again all the time are removed once, and the reset ends; those of others stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_under_traffic_ends() {
    let own = Own::start(&[]).await;
    let (backend, policy) = (own.backend().await, PolicyName::new("p").unwrap());
    let key = |key: String| storage_key("throttle", &policy, &key);
    put_all(&own, (0..QUIET).map(|nth| key(format!("quiet-{nth}")))).await;
    let others = ["other:1:p:a", "throttle:1:o:a", "throttle:1:p", "throttle:1:pp:a", "throttle:1:q:a"];
    put_all(&own, others.iter().map(|key| (*key).to_owned())).await;
    // They come before the others, where a removal starts.
    let busy: Vec<_> = (0..BUSY).map(|nth| key(format!("busy-{nth}"))).collect();
    put_all(&own, busy.iter().cloned()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let clients = join_all(busy.iter().map(async |_| own.client().await)).await;
    let writers: Vec<_> = busy
        .into_iter()
        .zip(clients)
        .map(|(key, mut client)| {
            let is_over = Arc::clone(&is_over);
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    client.put(&*key, "", None).await.unwrap();
                }
            })
        })
        .collect();
    let reset = tokio::time::timeout(Duration::from_secs(30), backend.reset_policy(&policy)).await;
    is_over.store(true, Ordering::Relaxed);
    join_all(writers).await.into_iter().for_each(|writer| writer.unwrap());

    let removed = usize::try_from(reset.expect("it ends").unwrap()).unwrap();
    assert!((QUIET..=QUIET + BUSY).contains(&removed), "{removed}");
    let mut client = own.client().await;
    let count = async |client: &mut etcd_client::Client, prefix: &str| {
        client.get(prefix, Some(GetOptions::new().with_prefix().with_count_only())).await.unwrap().count()
    };
    assert!(count(&mut client, &storage_prefix("throttle", &policy)).await <= i64::try_from(BUSY).unwrap());
    for other in others {
        assert_eq!(client.get(other, None).await.unwrap().count(), 1, "{other}");
    }
    let left = backend.reset_policy(&policy).await.unwrap();
    assert!(left <= BUSY as u64, "{left}");
    assert_eq!(count(&mut client, &storage_prefix("throttle", &policy)).await, 0);
}
