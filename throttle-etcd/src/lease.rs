//! One lease: granted, kept alive, revoked.

use std::sync::Arc;

use etcd_client::{Client, Error, LeaseGrantOptions};

use crate::EtcdError;
use crate::connection::{Connection, Repeat};
use crate::error::is_granted_already;

/// An id that nobody else has.
pub(crate) fn new_id() -> i64 {
    rand::random_range(1..=i64::MAX)
}

/// Grants the lease with this id for so many seconds. Asked again, it is the same lease.
pub(crate) async fn grant(connection: &Arc<Connection>, id: i64, secs: i64) -> Result<(), EtcdError> {
    let request = |mut client: Client| async move {
        match client.lease_grant(secs, Some(LeaseGrantOptions::new().with_id(id))).await {
            Err(error) if is_granted_already(&error) => Ok(()),
            answer => answer.map(drop),
        }
    };
    connection.send(Repeat::Freely, request).await.map_err(|error| EtcdError::NoLease(Box::new(error)))
}

/// Lets it live for all of its time from now; false if it is gone.
pub(crate) async fn keep_alive(connection: &Arc<Connection>, id: i64) -> Result<bool, EtcdError> {
    let request = |mut client: Client| async move {
        match client.lease_keep_alive(id).await {
            // The driver says nothing else with this member: the answer came, and had no time in it.
            Err(Error::LeaseKeepAliveError(_)) => Ok(false),
            answer => answer.map(|_| true),
        }
    };
    connection.send(Repeat::Never, request).await
}

/// Ends it, and what it holds. If that fails, it ends by itself when its time has passed.
pub(crate) async fn revoke(connection: &Arc<Connection>, id: i64) {
    let request = |mut client: Client| async move { client.lease_revoke(id).await };
    let _ = connection.send(Repeat::Freely, request).await;
}
