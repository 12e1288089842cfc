//! What users have of a lock: guards that prolong it, tell its loss, and give it back.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use throttle_core::lock::{Lock, LockGuard, LockNamespace, LockTerms, Loss, Owner, Released, ResourceError};
use throttle_core::{Clock, ErrorKind, Guarded, LockBackend, LockStore, Operation, SystemClock};

use super::super::check::{Checked, ensure, equal};
use super::super::group::{Case, Group, trials};
use super::super::lab::{Lab, told};
use super::super::variant::Variant;
use super::subject::{LONG, Subject, done_within, grew};
use crate::{Fault, Faults, FaultyBackend};

/// By how much a loss may be told late.
const SLACK: Duration = Duration::from_millis(50);

type Faulty<B> = Guarded<FaultyBackend<Arc<B>>>;

pub(super) fn cases<B: LockBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "locks").measuring_time();
        a_guard_holds_the_lock_until_it_is_released,
        a_dropped_guard_gives_the_lock_back,
        work_of_three_times_the_time_to_live_is_safe_under_renewal,
        a_renewal_that_fails_for_a_moment_is_tried_again,
        a_renewal_that_stops_is_lost_within_the_time_to_live,
        an_answer_that_comes_too_late_is_no_acquisition,
        o_88_a_lock_is_held_for_no_longer_than_it_may_be,
        o_89_a_late_release_says_that_the_lock_was_lost,
        a_body_is_stopped_when_its_lock_is_lost,
        busy_is_not_an_outage,
    )
    .into_cases()
}

pub(super) fn lock_on<B: LockBackend>(subject: &Subject<B>) -> Lock<Guarded<Arc<B>>> {
    Lock::on(Arc::new(subject.lab.store()), &subject.name)
}

/// The same lock through a backend under control.
fn faulty_lock<B: LockBackend>(subject: &Subject<B>) -> (Lock<Faulty<B>>, Faults<B::BaseError>) {
    let faulty = FaultyBackend::new(subject.lab.backend());
    let faults = faulty.faults();
    (Lock::new(faulty, &subject.name), faults)
}

/// Long enough that a busy machine does not lose it between two renewals.
fn renewed<B: LockBackend>(lab: &Lab<B>) -> Result<(LockTerms, Duration), Failed> {
    let ttl = 4 * lab.lock_ttl();
    Ok((LockTerms::default().ttl(ttl)?, ttl))
}

pub(super) async fn taken<S: LockStore>(lock: &Lock<S>) -> Result<LockGuard<S>, Failed> {
    let guard = lock.try_acquire().await.map_err(|error| told(&error))?;
    guard.ok_or_else(|| "the lock is busy, and should be free".into())
}

async fn a_guard_holds_the_lock_until_it_is_released<B: LockBackend>(lab: Lab<B>) -> Checked {
    let subject = Subject::new(&lab);
    let lock = lock_on(&subject);
    let guard = taken(&lock).await?;
    ensure(guard.is_valid(), || "a new guard is not valid".to_owned())?;
    subject.busy().await?;
    let second = lock.try_acquire().await.map_err(|error| told(&error))?;
    ensure(second.is_none(), || "the same program holds it twice".to_owned())?;
    let fence = guard.fence();
    equal("released", &guard.release().await.map_err(|error| told(&error))?, &Released::Freed)?;
    grew(fence, subject.free().await?)
}

async fn a_dropped_guard_gives_the_lock_back<B: LockBackend>(lab: Lab<B>) -> Checked {
    let subject = Subject::new(&lab);
    let lock = lock_on(&subject).with_terms(LockTerms::default().ttl(LONG)?);
    drop(taken(&lock).await?);
    let next = lock.acquire_within(Duration::from_secs(10)).await.map_err(|error| told(&error))?;
    ensure(next.is_some(), || "it is held after its guard was dropped".to_owned())
}

async fn work_of_three_times_the_time_to_live_is_safe_under_renewal<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (subject, (terms, ttl)) = (Subject::new(&lab), renewed(&lab)?);
    let guard = taken(&lock_on(&subject).with_terms(terms)).await?;
    for _ in 0..18 {
        tokio::time::sleep(ttl / 6).await;
        ensure(guard.is_valid(), || "it is lost under renewal".to_owned())?;
        subject.busy().await?;
    }
    equal("released", &guard.release().await.map_err(|error| told(&error))?, &Released::Freed)
}

/// The first two renewals fail, and one reply is lost.
async fn a_renewal_that_fails_for_a_moment_is_tried_again<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (subject, (terms, ttl)) = (Subject::new(&lab), renewed(&lab)?);
    let (lock, faults) = faulty_lock(&subject);
    faults.inject(Fault::refuse(ErrorKind::Connection).on(Operation::Extend));
    faults.inject(Fault::lose_reply(ErrorKind::Timeout).on(Operation::Extend).nth(2));
    let guard = taken(&lock.with_terms(terms)).await?;
    tokio::time::sleep(ttl + ttl / 2).await;
    ensure(guard.is_valid(), || "two failures in a row lost the lock".to_owned())?;
    equal("released", &guard.release().await.map_err(|error| told(&error))?, &Released::Freed)
}

/// Whether the store refuses, or does not answer at all.
async fn a_renewal_that_stops_is_lost_within_the_time_to_live<B: LockBackend>(lab: Lab<B>) -> Checked {
    for fault in [Fault::refuse(ErrorKind::Connection), Fault::hang()] {
        let ttl = 4 * lab.lock_ttl();
        let fault = fault.on(Operation::Extend).always();
        done_within(ttl + SLACK, async || lost_after(&lab, fault.clone()).await).await?;
    }
    Ok(())
}

/// How long it takes until a lock is lost that a fault keeps from being prolonged.
async fn lost_after<B: LockBackend>(lab: &Lab<B>, fault: Fault<B::BaseError>) -> Result<Duration, Failed> {
    let (subject, (terms, ttl)) = (Subject::new(lab), renewed(lab)?);
    let (lock, faults) = faulty_lock(&subject);
    faults.inject(fault);
    let started = SystemClock.now();
    let guard = taken(&lock.with_terms(terms)).await?;
    equal("loss", &guard.lost().await, &Loss::Expired)?;
    let took = SystemClock.now().saturating_since(started);
    ensure(took >= ttl / 2, || format!("lost after {took:?}, with a time to live of {ttl:?}"))?;
    ensure(!guard.is_valid() && guard.remaining().is_zero(), || "lost, and valid".to_owned())?;
    Ok(took)
}

/// It is decided late, and has almost all of its time left then; but its holder counts from before it asked.
async fn an_answer_that_comes_too_late_is_no_acquisition<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (subject, ttl) = (Subject::new(&lab), lab.lock_ttl());
    let (lock, faults) = faulty_lock(&subject);
    faults.inject(Fault::delay(ttl + ttl / 10).on(Operation::Acquire));
    let lock = lock.with_terms(LockTerms::default().ttl(ttl)?);
    let late = lock.try_acquire().await;
    let is_timeout = late.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout);
    ensure(is_timeout, || format!("an answer later than the time to live is {late:?}"))?;
    ensure(faults.seen().len() >= 2, || "what came too late is not given back".to_owned())
}

/// O-88: renewal has an end, and says so.
async fn o_88_a_lock_is_held_for_no_longer_than_it_may_be<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (terms, ttl) = renewed(&lab)?;
    let most = ttl + ttl / 2;
    let terms = terms.max_hold(most)?;
    done_within(most + SLACK, async || {
        let started = SystemClock.now();
        let guard = taken(&lock_on(&Subject::new(&lab)).with_terms(terms.clone())).await?;
        equal("loss", &guard.lost().await, &Loss::HeldTooLong)?;
        let took = SystemClock.now().saturating_since(started);
        ensure(took >= ttl, || format!("lost after {took:?}, and may be held for {most:?}"))?;
        Ok(took)
    })
    .await
}

/// O-89: A works for longer than its time, B acquires, A releases: A is told, and B keeps it.
async fn o_89_a_late_release_says_that_the_lock_was_lost<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (subject, b) = (Subject::new(&lab), Owner::random());
    let terms = LockTerms::default().ttl(lab.lock_ttl())?.without_renewal();
    let a = taken(&lock_on(&subject).with_terms(terms.clone())).await?;
    a.lost().await;
    subject.outlive().await;
    subject.take(b, LONG).await?;
    equal("released", &a.release().await.map_err(|error| told(&error))?, &Released::AlreadyLost)?;
    equal("failures", &terms.release_failures(), &1)?;
    subject.busy().await?;
    subject.released(b, true).await
}

async fn a_body_is_stopped_when_its_lock_is_lost<B: LockBackend>(lab: Lab<B>) -> Checked {
    let faulty = FaultyBackend::new(lab.backend());
    faulty.faults().inject(Fault::refuse(ErrorKind::Connection).on(Operation::Extend).always());
    let terms = LockTerms::default().ttl(lab.lock_ttl())?;
    let tasks = LockNamespace::new(crate::name::fresh(), faulty).with_terms(terms);
    let endless = tasks.resource("run").with(|_| std::future::pending::<()>()).await;
    let is_lost = matches!(endless, Err(ResourceError::Lost(Loss::Expired)));
    ensure(is_lost, || format!("{endless:?}"))?;
    equal("what a body returns", &tasks.part("run", 1).with(async |_| 7).await.ok(), &Some(7))
}

async fn busy_is_not_an_outage<B: LockBackend>(lab: Lab<B>) -> Checked {
    let faulty = FaultyBackend::new(lab.backend());
    let faults = faulty.faults();
    let tasks = LockNamespace::new(crate::name::fresh(), faulty);
    let run = tasks.resource(17).busy_text("somebody else has it");
    let guard = run.acquire().await.map_err(|error| error.to_string())?;
    match run.acquire().await {
        Err(ResourceError::Busy(busy)) => {
            equal("text", &busy.to_string(), &"somebody else has it".to_owned())?;
            ensure(std::error::Error::source(&busy).is_some(), || "the cause is lost".to_owned())?;
        }
        other => return Err(format!("{other:?}").into()),
    }
    faults.inject(Fault::refuse(ErrorKind::Connection).on(Operation::Acquire));
    let outage = run.acquire().await;
    ensure(matches!(outage, Err(ResourceError::Unavailable(_))), || format!("{outage:?}"))?;
    drop(guard);
    Ok(())
}
