//! Failures: wrapped, harmless to repeat, and clear about what they did.

use std::sync::Arc;

use libtest_mimic::Failed;
use throttle_core::lock::{LockTtl, Owner};
use throttle_core::{
    AnyLockStore, BaseErrorSet, Effect, ErrorKind, Guarded, LockBackend, LockStore, Operation,
    StoreUnavailableError,
};

use super::super::cancellation::{POLLS, abandon};
use super::super::check::{Checked, ensure, equal};
use super::super::errors::is_wrapped;
use super::super::group::{Case, Group, trials};
use super::super::lab::{Lab, told};
use super::super::variant::Variant;
use super::subject::{LONG, Subject, ttl};
use crate::{Fault, FaultyBackend, InjectedError};

type Faulty<B> = FaultyBackend<Arc<B>>;

pub(super) fn cases<B: LockBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    let wrapped =
        Operation::LOCKS.iter().fold(Group::new(variant, "locks").measuring_time(), |group, operation| {
            let (plain, any) =
                (format!("{}_is_wrapped", operation.name()), format!("any_{}_is_wrapped", operation.name()));
            group
                .trial(plain, |lab| wraps_every_member(lab, *operation))
                .trial(any, |lab| any_store_wraps_every_member(lab, *operation))
        });
    trials!(wrapped;
        what_was_refused_changed_nothing,
        a_lost_reply_to_an_acquisition_is_found_again,
        a_lost_reply_to_a_release_frees_no_later_holder,
        a_lost_reply_to_an_extension_does_no_harm,
        any_store_answers_as_the_backend_does,
        a_dropped_acquisition_is_held_or_not,
        a_dropped_release_is_done_or_not,
    )
    .into_cases()
}

/// Obligation 6, through `Guarded`.
async fn wraps_every_member<B: LockBackend>(lab: Lab<B>, operation: Operation) -> Checked {
    let faulty = FaultyBackend::new(lab.backend());
    let store = Guarded::new(faulty.clone());
    every_member(&lab, &faulty, &store, operation).await
}

/// The same through `AnyLockStore`.
async fn any_store_wraps_every_member<B: LockBackend>(lab: Lab<B>, operation: Operation) -> Checked {
    let faulty = FaultyBackend::new(lab.backend());
    let store = AnyLockStore::from(faulty.clone());
    every_member(&lab, &faulty, &store, operation).await
}

async fn every_member<B: LockBackend>(
    lab: &Lab<B>,
    faulty: &Faulty<B>,
    store: &impl LockStore,
    operation: Operation,
) -> Checked {
    let lock = Subject::new(lab);
    for sample in InjectedError::<B::BaseError>::samples() {
        faulty.faults().inject(Fault::fail_with(sample.clone()).on(operation));
        let failure = call(store, operation, &lock.name, Owner::random()).await?;
        let error = failure.ok_or_else(|| format!("{operation:?} did not fail with {sample:?}"))?;
        is_wrapped(&error, &sample, lab.backend().name(), operation)?;
    }
    Ok(())
}

/// How `operation` failed, if it did.
async fn call(
    store: &impl LockStore,
    operation: Operation,
    name: &str,
    owner: Owner,
) -> Result<Option<StoreUnavailableError>, Failed> {
    let ttl = ttl(LONG)?;
    match operation {
        Operation::Acquire => Ok(store.acquire(name, owner, ttl).await.err()),
        Operation::Extend => Ok(store.extend(name, owner, ttl).await.err()),
        Operation::Release => Ok(store.release(name, owner).await.err()),
        other => Err(format!("the suite does not know how to call {other:?}").into()),
    }
}

/// Calls `operation` where `fault` strikes it.
async fn struck<B: LockBackend>(
    lock: &Subject<B>,
    fault: Fault<B::BaseError>,
    operation: Operation,
    owner: Owner,
) -> Result<Effect, Failed> {
    let faulty = FaultyBackend::new(lock.lab.backend());
    faulty.faults().inject(fault.on(operation));
    let failure = call(&Guarded::new(faulty), operation, &lock.name, owner).await?;
    Ok(failure.ok_or("it did not fail")?.effect())
}

/// Obligation 6.
async fn what_was_refused_changed_nothing<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner) = (Subject::new(&lab), Owner::random());
    let refuse = || Fault::refuse(ErrorKind::Connection);
    equal("effect", &struck(&lock, refuse(), Operation::Acquire, owner).await?, &Effect::NotApplied)?;
    lock.free().await?;
    let fence = lock.take(owner, LONG).await?;
    equal("effect", &struck(&lock, refuse(), Operation::Release, owner).await?, &Effect::NotApplied)?;
    equal("the fence", &lock.take(owner, LONG).await?, &fence)?;
    lock.released(owner, true).await
}

/// Obligation 3: who does not know whether it holds the lock asks again.
async fn a_lost_reply_to_an_acquisition_is_found_again<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner) = (Subject::new(&lab), Owner::random());
    let lost = Fault::lose_reply(ErrorKind::Timeout);
    equal("effect", &struck(&lock, lost, Operation::Acquire, owner).await?, &Effect::Unknown)?;
    lock.busy().await?;
    let fence = lock.take(owner, LONG).await?;
    equal("the fence", &lock.take(owner, LONG).await?, &fence)?;
    lock.released(owner, true).await
}

/// A release that is asked for again, since its first reply was lost, is about its own acquisition only.
async fn a_lost_reply_to_a_release_frees_no_later_holder<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, first, second) = (Subject::new(&lab), Owner::random(), Owner::random());
    lock.take(first, LONG).await?;
    let lost = Fault::lose_reply(ErrorKind::Timeout);
    equal("effect", &struck(&lock, lost, Operation::Release, first).await?, &Effect::Unknown)?;
    lock.take(second, LONG).await?;
    lock.released(first, false).await?;
    lock.busy().await?;
    lock.released(second, true).await
}

async fn a_lost_reply_to_an_extension_does_no_harm<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner) = (Subject::new(&lab), Owner::random());
    lock.take(owner, LONG).await?;
    let lost = Fault::lose_reply(ErrorKind::Timeout);
    equal("effect", &struck(&lock, lost, Operation::Extend, owner).await?, &Effect::Unknown)?;
    lock.extended(owner, LONG, true).await?;
    lock.released(owner, true).await
}

/// The erased face adds nothing and takes nothing away; as a store without locks it is the same store.
async fn any_store_answers_as_the_backend_does<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (any, lock, owner) = (AnyLockStore::new(lab.store()), Subject::new(&lab), Owner::random());
    let acquired = any.acquire(&lock.name, owner, LockTtl::MAX).await.map_err(|error| told(&error))?;
    equal("the fence", &acquired.fence(), &Some(lock.take(owner, LONG).await?))?;
    let store = throttle_core::AnyStore::from(any.clone());
    equal("name", &throttle_core::Store::backend_name(&store), &lab.backend().name())?;
    for expected in [true, false] {
        let released = any.release(&lock.name, owner).await.map_err(|error| told(&error))?;
        equal("released", &released, &expected)?;
    }
    Ok(())
}

/// What a dropped call has left behind comes to rest within a moment.
async fn settle() {
    tokio::time::sleep(std::time::Duration::from_millis(30)).await;
}

/// Obligation 7 of stores: and whoever was dropped can free what it may have.
async fn a_dropped_acquisition_is_held_or_not<B: LockBackend>(lab: Lab<B>) -> Checked {
    for polls in POLLS {
        let (lock, owner) = (Subject::new(&lab), Owner::random());
        abandon(lab.store().acquire(&lock.name, owner, ttl(LONG)?), polls).await;
        settle().await;
        let released = lab.store().release(&lock.name, owner).await.map_err(|error| told(&error))?;
        ensure(!released || polls > 0, || "a future that was never polled took the lock".to_owned())?;
        lock.free().await?;
    }
    Ok(())
}

async fn a_dropped_release_is_done_or_not<B: LockBackend>(lab: Lab<B>) -> Checked {
    for polls in POLLS {
        let (lock, owner) = (Subject::new(&lab), Owner::random());
        let fence = lock.take(owner, LONG).await?;
        abandon(lab.store().release(&lock.name, owner), polls).await;
        settle().await;
        let again = lock.take(owner, LONG).await?;
        ensure(again >= fence, || format!("{again:?} after {fence:?}"))?;
        lock.released(owner, true).await?;
    }
    Ok(())
}
