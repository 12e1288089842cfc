//! Denied traffic: with remembered denials, against asking Redis each time. Both on one server, in turns.

#![allow(clippy::print_stdout, clippy::float_arithmetic, clippy::unwrap_used, reason = "a bench prints")]
#![allow(clippy::cast_precision_loss, reason = "a bench counts")]

use std::time::{Duration, Instant};

use throttle_bench::race;
use throttle_core::{Guarded, Policy, RateLimiter, Rule, StoreBackend};
use throttle_memory::DenyCache;
use throttle_redis::{RedisBackend, RedisConfig};
use tokio::runtime::Runtime;

const SERVER: &str = "THROTTLE_TEST_REDIS_URL";
const KEYS: usize = 100;
const CALLERS: usize = 64;
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 5;

/// Denials per second that callers at once are told, for one round.
fn denials<B: StoreBackend>(runtime: &Runtime, limiter: &RateLimiter<Guarded<B>>) -> f64 {
    let since = Instant::now();
    let caller = |caller: usize| {
        let limiter = limiter.clone();
        runtime.spawn(async move {
            let keys: Vec<_> = (0..KEYS).map(|key| ((key + caller) % KEYS).to_string()).collect();
            let mut denied = 0_u64;
            while since.elapsed() < ROUND {
                for key in &keys {
                    denied += u64::from(!limiter.check(key).await.unwrap().is_allowed());
                }
                tokio::task::yield_now().await;
            }
            denied
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(caller).collect();
    let denied: u64 = callers.into_iter().map(|caller| runtime.block_on(caller).unwrap()).sum();
    denied as f64 / since.elapsed().as_secs_f64()
}

fn main() {
    let Ok(url) = std::env::var(SERVER) else {
        println!("{SERVER} is not set: nothing to measure");
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = RedisConfig::new(&url).unwrap().prefix("bench-deny").unwrap();
    let config = config.response_deadline(Duration::from_secs(10)).unwrap();
    let backend = runtime.block_on(RedisBackend::connect(config)).unwrap();
    let policy = Policy::new("p", [Rule::gcra("1/h").unwrap()]).unwrap();
    let bare = RateLimiter::new(policy.clone(), backend.clone());
    let cached = RateLimiter::new(policy, DenyCache::new(backend));
    race(
        "denials through Redis, remembered against asked",
        ROUNDS,
        || denials(&runtime, &cached),
        || denials(&runtime, &bare),
    );
    println!("{} of the remembered kind", cached.store().get_ref().hits());
}
