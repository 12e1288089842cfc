//! Holders that do not come back.

use std::sync::Arc;
use std::time::Duration;

use throttle_core::LockBackend;
use throttle_core::lock::{Acquisition, LockTtl, Owner};

use super::super::check::{Checked, ensure, equal};
use super::super::group::{Case, Group, trials};
use super::super::lab::Lab;
use super::super::variant::Variant;
use super::subject::{LONG, Stopwatch, Subject, grew};

pub(super) fn cases<B: LockBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "locks").measuring_time();
        a_lock_expires_when_its_time_has_passed_and_not_before,
        an_extended_lock_is_held_from_then_on,
        who_asks_again_has_the_whole_time_anew,
        an_extension_may_be_shorter_than_what_was_left,
        what_has_expired_cannot_be_extended,
        the_shortest_time_to_live_is_one,
        fences_grow_past_what_has_expired,
        o_87_a_holder_that_was_blocked_has_the_lower_fence,
        o_88_extending_after_others_had_it_is_refused,
        o_89_who_is_late_frees_nobodys_lock,
    )
    .into_cases()
}

/// Obligation 4, both ways. Measured from before it was asked for, so that a slow machine makes it no shorter.
async fn expires_within<B: LockBackend>(lock: &Subject<B>, watch: &Stopwatch, ttl: Duration) -> Checked {
    let (step, mut passed) = (ttl / 16, Duration::ZERO);
    let set_after = watch.elapsed(passed).1;
    loop {
        let (before, _) = watch.elapsed(passed);
        let answer = lock.acquire(Owner::random(), LONG).await?;
        let (_, after) = watch.elapsed(passed);
        match answer {
            Acquisition::Held(_) => {
                return ensure(after >= ttl, || format!("free after {after:?}, held for {ttl:?}"));
            }
            Acquisition::Busy { .. } => {
                let latest = set_after + ttl + lock.lab.lock_lag();
                ensure(before <= latest, || format!("still held after {before:?}, for {ttl:?}"))?;
            }
        }
        lock.lab.pass(step).await;
        passed += step;
    }
}

async fn a_lock_expires_when_its_time_has_passed_and_not_before<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, ttl) = (Subject::new(&lab), lab.lock_ttl());
    let watch = Stopwatch::start(&lab);
    lock.take(Owner::random(), ttl).await?;
    expires_within(&lock, &watch, ttl).await
}

async fn an_extended_lock_is_held_from_then_on<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner, ttl) = (Subject::new(&lab), Owner::random(), lab.lock_ttl());
    let fence = lock.take(owner, 2 * ttl).await?;
    lab.pass(ttl / 2).await;
    let watch = Stopwatch::start(&lab);
    lock.extended(owner, 2 * ttl, true).await?;
    equal("the fence", &lock.take(owner, 2 * ttl).await?, &fence)?;
    expires_within(&lock, &watch, 2 * ttl).await
}

/// Obligation 3: the client counts from before it asked again.
async fn who_asks_again_has_the_whole_time_anew<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner, ttl) = (Subject::new(&lab), Owner::random(), lab.lock_ttl());
    let fence = lock.take(owner, 2 * ttl).await?;
    lab.pass(ttl).await;
    let watch = Stopwatch::start(&lab);
    equal("the fence", &lock.take(owner, 2 * ttl).await?, &fence)?;
    expires_within(&lock, &watch, 2 * ttl).await
}

async fn an_extension_may_be_shorter_than_what_was_left<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner, ttl) = (Subject::new(&lab), Owner::random(), lab.lock_ttl());
    lock.take(owner, LONG).await?;
    let watch = Stopwatch::start(&lab);
    lock.extended(owner, ttl, true).await?;
    expires_within(&lock, &watch, ttl).await
}

async fn what_has_expired_cannot_be_extended<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner) = (Subject::new(&lab), Owner::random());
    lock.take(owner, lab.lock_ttl()).await?;
    lock.outlive().await;
    lock.extended(owner, LONG, false).await?;
    lock.free().await.map(drop)
}

/// It may be longer, by the store's lag, but it ends.
async fn the_shortest_time_to_live_is_one<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, owner) = (Subject::new(&lab), Owner::random());
    lock.take(owner, LockTtl::MIN.as_duration()).await?;
    lock.outlive().await;
    lock.released(owner, false).await?;
    lock.free().await.map(drop)
}

/// Obligation 2.
async fn fences_grow_past_what_has_expired<B: LockBackend>(lab: Lab<B>) -> Checked {
    let lock = Subject::new(&lab);
    let first = lock.take(Owner::random(), lab.lock_ttl()).await?;
    lock.outlive().await;
    let second = lock.take(Owner::random(), lab.lock_ttl()).await?;
    grew(first, second)?;
    lock.outlive().await;
    grew(second, lock.free().await?)
}

/// O-87: a holder that was stopped for longer than its time comes back, and another one is there.
async fn o_87_a_holder_that_was_blocked_has_the_lower_fence<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, blocked, next) = (Subject::new(&lab), Owner::random(), Owner::random());
    let old = lock.take(blocked, lab.lock_ttl()).await?;
    lock.outlive().await;
    let new = lock.take(next, LONG).await?;
    grew(old, new)?;
    lock.extended(blocked, LONG, false).await?;
    lock.released(blocked, false).await?;
    lock.released(next, true).await
}

/// O-88: it expires, another one takes it and frees it; the first one extends, and does not have it.
async fn o_88_extending_after_others_had_it_is_refused<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, first, other) = (Subject::new(&lab), Owner::random(), Owner::random());
    lock.take(first, lab.lock_ttl()).await?;
    lock.outlive().await;
    lock.take(other, LONG).await?;
    lock.extended(first, LONG, false).await?;
    lock.released(other, true).await?;
    lock.extended(first, LONG, false).await?;
    lock.free().await.map(drop)
}

/// O-89: A works for longer than its time, B acquires, A releases: B keeps it.
async fn o_89_who_is_late_frees_nobodys_lock<B: LockBackend>(lab: Lab<B>) -> Checked {
    let (lock, a, b) = (Subject::new(&lab), Owner::random(), Owner::random());
    lock.take(a, lab.lock_ttl()).await?;
    lock.outlive().await;
    let fence = lock.take(b, LONG).await?;
    lock.released(a, false).await?;
    lock.busy().await?;
    equal("the fence of B", &lock.take(b, LONG).await?, &fence)?;
    lock.released(b, true).await
}
