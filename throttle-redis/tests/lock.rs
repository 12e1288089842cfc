//! Locks on one server, and what becomes of them when it loses something, is full, or stalls.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::own::Own;
use throttle_core::lock::{Acquisition, Fence, Lock, LockTerms, LockTtl, Loss, Owner};
use throttle_core::{BaseErrorSet, Effect, ErrorKind, LockBackend};
use throttle_redis::{RedisBackend, RedisError};

const NAME: &str = "lock:task:17";

fn minute() -> LockTtl {
    LockTtl::new(Duration::from_secs(60)).unwrap()
}

async fn take(backend: &RedisBackend, owner: Owner) -> Fence {
    backend.acquire(NAME, owner, minute()).await.unwrap().fence().unwrap()
}

async fn keys(server: &Own) -> Vec<String> {
    server.ask("KEYS *").await
}

#[tokio::test]
async fn a_lock_is_a_key_that_expires_and_leaves_nothing_but_a_counter_of_its_slot() {
    let server = Own::start(&[]).await;
    let backend = server.backend().await;
    let owner = Owner::from_u128(0xabc);
    let fence = take(&backend, owner).await;
    let lock = keys(&server).await.into_iter().find(|key| key.ends_with(NAME)).unwrap();
    assert!(lock.starts_with("throttle:1:{lock-"), "{lock}");
    let value: String = server.ask(&format!("GET {lock}")).await;
    assert_eq!(value, format!("1:{:032x}:{fence}", 0xabc));
    let left: i64 = server.ask(&format!("PTTL {lock}")).await;
    assert!((1..=60_000).contains(&left), "{left} ms");
    assert!(backend.release(NAME, owner).await.unwrap());
    let left = keys(&server).await;
    assert_eq!(left, [lock.strip_suffix(&format!(":{NAME}")).unwrap()]);
}

#[tokio::test]
async fn numbers_grow_when_the_counter_is_lost_or_ahead_and_the_script_forgotten() {
    let server = Own::start(&[]).await;
    let backend = server.backend().await;
    let owner = Owner::random();
    let first = take(&backend, owner).await;
    let _: () = server.ask("FLUSHALL").await;
    let _: () = server.ask("SCRIPT FLUSH").await;
    let second = take(&backend, owner).await;
    assert!(second > first, "{second} after {first}");
    assert!(backend.release(NAME, owner).await.unwrap());
    let counter = keys(&server).await.pop().unwrap();
    let ahead = second.get() + 1_000_000_000_000;
    let _: () = server.ask(&format!("SET {counter} {ahead}")).await;
    assert_eq!(take(&backend, owner).await.get(), ahead + 1, "the clock was set back");
}

#[tokio::test]
async fn what_is_no_lock_is_left_alone() {
    let server = Own::start(&[]).await;
    let backend = server.backend().await;
    let owner = Owner::random();
    take(&backend, owner).await;
    let lock = keys(&server).await.into_iter().find(|key| key.ends_with(NAME)).unwrap();
    for put in [format!("SET {lock} something"), format!("SET {lock} 2:0:0"), format!("SET {lock} 1:0:")] {
        let _: () = server.ask(&put).await;
        let error = backend.acquire(NAME, owner, minute()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::NotApplied), "{put}");
        backend.extend(NAME, owner, minute()).await.unwrap_err();
        backend.release(NAME, owner).await.unwrap_err();
    }
    let _: i64 = server.ask(&format!("DEL {lock}")).await;
    let _: i64 = server.ask(&format!("RPUSH {lock} something")).await;
    assert!(matches!(backend.release(NAME, owner).await, Err(RedisError::WrongType(_))));
}

#[tokio::test]
async fn a_full_server_gives_no_lock_and_takes_one_back() {
    let server = Own::start(&[]).await;
    let backend = server.backend().await;
    let (owner, other) = (Owner::random(), Owner::random());
    take(&backend, owner).await;
    let _: () = server.ask("CONFIG SET maxmemory 1").await;
    let error = backend.acquire("another", other, minute()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::StorageFull, Effect::NotApplied));
    assert!(backend.extend(NAME, owner, minute()).await.unwrap());
    assert!(backend.release(NAME, owner).await.unwrap());
    let _: () = server.ask("CONFIG SET maxmemory 0").await;
    assert!(matches!(backend.acquire("another", other, minute()).await, Ok(Acquisition::Held(_))));
}

#[tokio::test]
async fn o_87_a_holder_cut_off_from_its_server_knows_in_time_and_the_next_one_has_the_higher_number() {
    let server = Own::start(&[]).await;
    let backend = server.backend().await;
    let ttl = Duration::from_millis(600);
    let lock = Lock::new(backend, NAME).with_terms(LockTerms::default().ttl(ttl).unwrap());
    let asked = Instant::now();
    let guard = lock.try_acquire().await.unwrap().unwrap();
    let _: () = server.ask("CLIENT PAUSE 1500 ALL").await;
    assert_eq!(guard.lost().await, Loss::Expired);
    let took = asked.elapsed();
    assert!(took <= ttl + Duration::from_millis(200), "{took:?}");
    assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Timeout, "slow is not busy");
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let next = lock.acquire_within(Duration::from_secs(10)).await.unwrap().unwrap();
    assert!(next.fence() > guard.fence());
    guard.release().await.unwrap();
    assert!(next.is_valid() && lock.try_acquire().await.unwrap().is_none(), "a late release frees nothing");
}
