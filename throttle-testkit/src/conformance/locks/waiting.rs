//! Those who wait for a lock, those who go away, and those who die.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use throttle_core::lock::{LockTerms, Owner};
use throttle_core::{Clock, LockBackend, StoreUnavailableError, SystemClock};
use tokio::task::JoinSet;

use super::super::cancellation::{POLLS, abandon};
use super::super::check::{Checked, ensure, equal};
use super::super::group::{Case, Group, trials};
use super::super::lab::{Lab, told};
use super::super::variant::Variant;
use super::guards::{lock_on, taken};
use super::subject::{LONG, Subject, done_within};

/// Tells a child process which lock it is to hold.
const HOLD: &str = "THROTTLE_TESTKIT_HOLD";

/// Tells it which process it is a child of, for backends whose names depend on that.
const PARENT: &str = "THROTTLE_TESTKIT_PARENT";

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn cases<B: LockBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    let here = trials!(Group::new(variant, "locks").measuring_time();
        sixteen_waiters_all_get_it,
        a_deadline_of_waiting_is_kept,
        a_dropped_acquisition_leaks_nothing,
        a_waiter_that_leaves_is_in_nobodys_way,
    );
    let across = here.only_if(variant.across_processes, "the backend is of one process");
    trials!(across; the_lock_of_a_killed_process_is_free_within_its_time_to_live).into_cases()
}

async fn sixteen_waiters_all_get_it<B: LockBackend>(lab: Lab<B>) -> Checked {
    let subject = Subject::new(&lab);
    let lock = lock_on(&subject).with_terms(LockTerms::default().ttl(LONG)?.poll(Duration::from_millis(20))?);
    let first = taken(&lock).await?;
    let mut waiters = JoinSet::new();
    for _ in 0..16 {
        let lock = lock.clone();
        waiters.spawn(async move {
            let Some(guard) = lock.acquire_within(PATIENCE).await? else { return Ok(false) };
            tokio::time::sleep(Duration::from_millis(2)).await;
            guard.release().await.map(|_| true)
        });
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(first);
    let mut served = 0;
    while let Some(done) = waiters.join_next().await {
        served += usize::from(done?.map_err(|error: StoreUnavailableError| told(&error))?);
    }
    equal("served", &served, &16)
}

/// Within 50 ms.
async fn a_deadline_of_waiting_is_kept<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (subject, within) = (Subject::new(&lab), Duration::from_millis(400));
    let slack = Duration::from_millis(50);
    subject.take(Owner::random(), LONG).await?;
    done_within(within + slack, async || {
        let started = SystemClock.now();
        let guard = lock_on(&subject).acquire_within(within).await.map_err(|error| told(&error))?;
        let took = SystemClock.now().saturating_since(started);
        ensure(guard.is_none(), || "two hold it".to_owned())?;
        ensure(took + slack >= within, || format!("gave up after {took:?} of {within:?}"))?;
        Ok(took)
    })
    .await
}

async fn a_dropped_acquisition_leaks_nothing<B: LockBackend>(lab: Lab<B>) -> Checked {
    for polls in POLLS {
        let subject = Subject::new(&lab);
        let lock = lock_on(&subject).with_terms(LockTerms::default().ttl(LONG)?);
        abandon(lock.try_acquire(), polls).await;
        let next = lock.acquire_within(PATIENCE).await.map_err(|error| told(&error))?;
        ensure(next.is_some(), || format!("it stays held after {polls} polls"))?;
    }
    Ok(())
}

/// O-87, as users see it.
async fn a_waiter_that_leaves_is_in_nobodys_way<B: LockBackend>(lab: Lab<B>) -> Checked {
    let subject = Subject::new(&lab);
    let lock = lock_on(&subject).with_terms(LockTerms::default().ttl(LONG)?.poll(Duration::from_millis(5))?);
    let guard = taken(&lock).await?;
    let leaves = tokio::time::timeout(Duration::from_millis(100), lock.acquire_within(PATIENCE)).await;
    ensure(leaves.is_err(), || "two hold it".to_owned())?;
    drop(guard);
    let next = lock.acquire_within(PATIENCE).await.map_err(|error| told(&error))?;
    ensure(next.is_some(), || "it stays held after a waiter has gone".to_owned())
}

/// The child is this very trial, in a process of its own, which is killed while it holds the lock and prolongs it.
async fn the_lock_of_a_killed_process_is_free_within_its_time_to_live<B: LockBackend>(
    lab: Lab<B>,
) -> Checked {
    let ttl = 4 * lab.lock_ttl();
    let terms = LockTerms::default().ttl(ttl)?.poll(ttl / 50)?;
    if let Ok(name) = std::env::var(HOLD) {
        let subject = Subject { lab: lab.clone(), name };
        let _guard = taken(&lock_on(&subject).with_terms(terms)).await?;
        writeln!(std::io::stdout(), "\nheld")?;
        tokio::time::sleep(PATIENCE).await;
        return Err("nobody killed the holder".into());
    }
    let subject = Subject::new(&lab);
    let trial = "the_lock_of_a_killed_process_is_free_within_its_time_to_live";
    let (trial, name) = (format!("{}::locks::{trial}", lab.variant_name()), subject.name.clone());
    let mut child = tokio::task::spawn_blocking(move || holder(&trial, &name)).await??;
    tokio::time::sleep(ttl).await;
    let is_busy = subject.busy().await;
    child.kill()?;
    child.wait()?;
    is_busy?;
    let killed = SystemClock.now();
    let guard = lock_on(&subject).with_terms(terms).acquire_within(PATIENCE).await;
    let took = SystemClock.now().saturating_since(killed);
    ensure(guard.map_err(|error| told(&error))?.is_some(), || "it is not free".to_owned())?;
    ensure(took <= ttl + lab.lock_lag(), || format!("free {took:?} after its holder was killed, not {ttl:?}"))
}

/// A process that holds the lock, and has said so.
fn holder(trial: &str, name: &str) -> Result<Child, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", trial]).env(HOLD, name).env(PARENT, std::process::id().to_string());
    command.stdout(Stdio::piped()).stdin(Stdio::null());
    let mut child = command.spawn()?;
    let output = BufReader::new(child.stdout.take().ok_or("no output")?);
    for line in output.lines() {
        if line?.trim() == "held" {
            return Ok(child);
        }
    }
    Err(format!("the holder ended: {}", child.wait()?).into())
}
