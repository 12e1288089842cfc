//! Taking, keeping and giving back, by one caller after the other.

use std::sync::Arc;
use std::time::Duration;

use throttle_core::LockBackend;
use throttle_core::lock::{Acquisition, LockTtl, Owner};

use super::super::check::{Checked, ensure, equal};
use super::super::group::{Case, Group, trials};
use super::super::lab::Lab;
use super::super::variant::Variant;
use super::subject::{LONG, Subject, grew};

pub(super) fn cases<B: LockBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "locks").measuring_time();
        one_holder_at_a_time,
        a_release_frees_it_at_once,
        who_asks_again_has_what_it_had,
        who_is_not_the_holder_changes_nothing,
        fences_grow_from_holder_to_holder,
        an_owner_that_comes_back_is_a_new_acquisition,
        a_busy_lock_says_for_how_long_at_most,
        the_longest_time_to_live_is_kept,
        o_87_who_did_not_get_it_leaves_nothing,
    )
    .into_cases()
}

/// Obligation 1.
async fn one_holder_at_a_time<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner) = (Subject::new(&lab), Owner::random());
    lock.take(owner, LONG).await?;
    lock.busy().await?;
    lock.extended(owner, LONG, true).await?;
    lock.busy().await
}

async fn a_release_frees_it_at_once<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner) = (Subject::new(&lab), Owner::random());
    for _ in 0..3 {
        lock.take(owner, LONG).await?;
        lock.released(owner, true).await?;
        lock.free().await?;
    }
    Ok(())
}

/// Obligation 3.
async fn who_asks_again_has_what_it_had<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner) = (Subject::new(&lab), Owner::random());
    let fence = lock.take(owner, LONG).await?;
    equal("the fence", &lock.take(owner, LONG).await?, &fence)?;
    lock.busy().await?;
    lock.released(owner, true).await?;
    lock.released(owner, false).await?;
    lock.free().await.map(drop)
}

/// Nor does it become the holder by that.
async fn who_is_not_the_holder_changes_nothing<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner, stranger) = (Subject::new(&lab), Owner::random(), Owner::random());
    lock.extended(stranger, LONG, false).await?;
    lock.released(stranger, false).await?;
    let fence = lock.take(owner, LONG).await?;
    lock.extended(stranger, LONG, false).await?;
    lock.released(stranger, false).await?;
    lock.busy().await?;
    equal("the fence", &lock.take(owner, LONG).await?, &fence)?;
    lock.released(owner, true).await
}

/// Obligation 2.
async fn fences_grow_from_holder_to_holder<B: LockBackend>(lab: Lab<B>) -> Checked {
    let lock = Subject::new(&lab);
    let mut last = lock.free().await?;
    for _ in 0..20 {
        let next = lock.free().await?;
        grew(last, next)?;
        last = next;
    }
    Ok(())
}

/// Obligation 2, although it is the same owner.
async fn an_owner_that_comes_back_is_a_new_acquisition<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner) = (Subject::new(&lab), Owner::random());
    let first = lock.take(owner, LONG).await?;
    lock.released(owner, true).await?;
    grew(first, lock.take(owner, LONG).await?)
}

async fn a_busy_lock_says_for_how_long_at_most<B: LockBackend>(lab: Lab<B>) -> Checked {
    let lock = Subject::new(&lab);
    lock.take(Owner::random(), LONG).await?;
    match lock.acquire(Owner::random(), LONG).await? {
        Acquisition::Busy { expires_in: None } => Ok(()),
        Acquisition::Busy { expires_in: Some(left) } => {
            let is_right = left <= LONG + lab.lock_lag() && left > LONG - Duration::from_secs(120);
            ensure(is_right, || format!("held for {LONG:?}, and said to be free in {left:?}"))
        }
        Acquisition::Held(_) => Err("two hold it".into()),
    }
}

/// A year is more than some stores count in their smallest unit.
async fn the_longest_time_to_live_is_kept<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner) = (Subject::new(&lab), Owner::random());
    let year = LockTtl::MAX.as_duration();
    lock.take(owner, year).await?;
    lock.busy().await?;
    lock.extended(owner, year, true).await?;
    lock.busy().await?;
    lock.released(owner, true).await
}

/// O-87: a waiter that has gone is in nobody's way.
async fn o_87_who_did_not_get_it_leaves_nothing<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner) = (Subject::new(&lab), Owner::random());
    lock.take(owner, LONG).await?;
    for _ in 0..10 {
        lock.busy().await?;
    }
    lock.released(owner, true).await?;
    lock.free().await.map(drop)
}
