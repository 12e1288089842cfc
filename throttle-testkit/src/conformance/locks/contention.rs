//! Many who want the same lock at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::Failed;
use parking_lot::Mutex;
use throttle_core::lock::{Acquisition, Fence, Owner};
use throttle_core::{LockBackend, LockStore, StoreUnavailableError};
use tokio::task::JoinSet;

use super::super::check::{Checked, ensure, equal};
use super::super::group::{Case, Group, trials};
use super::super::lab::{Lab, told};
use super::super::variant::Variant;
use super::subject::{LONG, Subject, ttl};

const CONTENDERS: usize = 32;
const ENTRIES_EACH: usize = 3;

pub(super) fn cases<B: LockBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "locks").measuring_time();
        thirty_two_contenders_exclude_each_other,
        of_many_at_once_one_gets_it,
        one_owner_asking_many_times_at_once_has_one_fence,
    )
    .into_cases()
}

/// What the lock protects.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    most: AtomicUsize,
    entries: Mutex<Vec<Fence>>,
}

impl Room {
    async fn visit(&self, fence: Fence) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.entries.lock().push(fence);
        tokio::time::sleep(Duration::from_micros(200)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Obligations 1 and 2: nobody meets anybody, and the numbers grow in order of entry.
async fn thirty_two_contenders_exclude_each_other<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, room, ttl) = (Subject::new(&lab), Arc::new(Room::default()), ttl(LONG)?);
    let mut contenders = JoinSet::new();
    for contender in 0..CONTENDERS {
        let (store, name, room) = (lab.store(), lock.name.clone(), Arc::clone(&room));
        contenders.spawn(async move {
            let mut entries = 0;
            while entries < ENTRIES_EACH {
                let owner = Owner::random();
                if let Acquisition::Held(fence) = store.acquire(&name, owner, ttl).await? {
                    room.visit(fence).await;
                    entries += usize::from(store.release(&name, owner).await?);
                }
                let pause = 1_000 + 37 * u64::try_from(contender).unwrap_or(0);
                tokio::time::sleep(Duration::from_micros(pause)).await;
            }
            Ok(())
        });
    }
    while let Some(done) = contenders.join_next().await {
        done?.map_err(|error: StoreUnavailableError| told(&error))?;
    }
    equal("inside at once", &room.most.load(Ordering::SeqCst), &1)?;
    let entries = room.entries.lock().clone();
    equal("entries", &entries.len(), &(CONTENDERS * ENTRIES_EACH))?;
    ensure(entries.is_sorted_by(|earlier, later| earlier < later), || format!("not in order: {entries:?}"))
}

/// Each round with a lock that nobody has used.
async fn of_many_at_once_one_gets_it<B: LockBackend>(lab: Lab<B>) -> Checked {
    for _ in 0..20 {
        let lock = Subject::new(&lab);
        let held = at_once(&lock, (0..8).map(|_| Owner::random()).collect()).await?;
        equal("holders", &held.len(), &1)?;
    }
    Ok(())
}

/// Obligation 3, also when it asks again before the first answer is there.
async fn one_owner_asking_many_times_at_once_has_one_fence<B: LockBackend>(lab: Lab<B>) -> Checked {
    for _ in 0..20 {
        let (lock, owner) = (Subject::new(&lab), Owner::random());
        let mut held = at_once(&lock, vec![owner; 4]).await?;
        equal("answers", &held.len(), &4)?;
        held.dedup();
        equal("different fences", &held.len(), &1)?;
        lock.released(owner, true).await?;
        lock.free().await?;
    }
    Ok(())
}

/// The fences of those who got it.
async fn at_once<B: LockBackend>(lock: &Subject<B>, owners: Vec<Owner>) -> Result<Vec<Fence>, Failed> {
    let mut callers = JoinSet::new();
    for owner in owners {
        let (store, name, ttl) = (lock.lab.store(), lock.name.clone(), ttl(LONG)?);
        callers.spawn(async move { store.acquire(&name, owner, ttl).await });
    }
    let mut held = Vec::new();
    while let Some(done) = callers.join_next().await {
        held.extend(done?.map_err(|error| told(&error))?.fence());
    }
    Ok(held)
}
