//! Names as they come: any string is one, and no two are the same; nor is one the key of a policy.

use std::collections::HashSet;
use std::sync::Arc;

use libtest_mimic::Failed;
use throttle_core::lock::{Acquisition, Owner};
use throttle_core::{Action, LockBackend, LockStore, Store, stored_key};

use super::super::check::{Checked, ensure, equal};
use super::super::group::{Case, Group, trials};
use super::super::keys::plain_keys;
use super::super::lab::{Lab, at, told};
use super::super::variant::Variant;
use super::subject::{LONG, Subject, ttl};

pub(super) fn cases<B: LockBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "locks").measuring_time();
        hostile_names_work_and_are_distinct,
        long_names_are_not_cut,
        locks_and_keys_are_apart,
    )
    .into_cases()
}

/// All are held at once, each by its own owner, and each is freed by it. Names are short or the same in every run, so
/// what an earlier run left is freed first: its owners are the same.
async fn distinct<B: LockBackend>(lab: &Lab<B>, names: &[String]) -> Checked {
    equal("names in this trial", &names.iter().collect::<HashSet<_>>().len(), &names.len())?;
    let store = lab.store();
    let mut held = Vec::new();
    for name in names {
        let owner = Owner::random();
        let answer = store.acquire(name, owner, ttl(LONG)?).await.map_err(|error| told(&error))?;
        ensure(answer.fence().is_some(), || format!("{name:?} is the name of another lock"))?;
        held.push((name, owner));
    }
    for (name, owner) in held {
        let released = store.release(name, owner).await.map_err(|error| told(&error))?;
        ensure(released, || format!("{name:?} was held by somebody else"))?;
    }
    Ok(())
}

/// Each hostile text at the end of a name of this run, and at its start.
async fn hostile_names_work_and_are_distinct<B: LockBackend>(lab: Lab<B>) -> Checked {
    let base = crate::name::fresh();
    let long = "k".repeat(300);
    let hashed = ["#".to_owned(), stored_key(&long).into_owned(), stored_key("#").into_owned(), long];
    let texts = plain_keys().map(str::to_owned).chain(hashed);
    let names = texts.flat_map(|text| [format!("{base}{text}"), format!("{text}{base}")]);
    let names: HashSet<_> = names.collect();
    distinct(&lab, &names.into_iter().collect::<Vec<_>>()).await
}

async fn long_names_are_not_cut<B: LockBackend>(lab: Lab<B>) -> Checked {
    let base = crate::name::fresh();
    let names = [63, 64, 65, 199, 200, 201, 255, 256, 300, 512, 10_000].iter().flat_map(|length| {
        ["a", "b"].map(|last| format!("{base}{}{last}", "k".repeat(length - 1 - base.len())))
    });
    distinct(&lab, &names.collect::<Vec<_>>()).await
}

/// Obligation 5: what forgets keys frees no lock, and what is a lock is counted under no policy.
async fn locks_and_keys_are_apart<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (policy, owner) = (lab.policy("gcra 5/h")?, Owner::random());
    let lock = Subject { lab: lab.clone(), name: policy.name().to_string() };
    lab.outcome(&Action::consume(&policy, &lock.name).at(Some(at(0)))).await?;
    let fence = lock.take(owner, LONG).await?;
    let store = lab.store();
    let is_reset = store.reset(policy.name(), &lock.name).await.map_err(|error| told(&error))?;
    equal("a key of the name of the lock", &is_reset, &true)?;
    let forgotten = store.reset_policy(policy.name()).await.map_err(|error| told(&error))?;
    equal("keys of the policy", &forgotten, &0)?;
    held_with(&lock, owner, fence.get()).await?;
    lock.released(owner, true).await
}

async fn held_with<B: LockBackend>(lock: &Subject<B>, owner: Owner, fence: u64) -> Result<(), Failed> {
    match lock.acquire(owner, LONG).await? {
        Acquisition::Held(held) => equal("the fence", &held.get(), &fence),
        Acquisition::Busy { .. } => Err("the holder is another".into()),
    }
}
