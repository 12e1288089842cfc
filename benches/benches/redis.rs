//! What a decision through Redis costs, in ratios: our script against one that only asks for the time, gets and sets; the
//! backend against the same script called bare. All on one server, in turns.

#![allow(clippy::print_stdout, clippy::float_arithmetic, clippy::unwrap_used, reason = "a bench prints")]
#![allow(clippy::cast_precision_loss, clippy::indexing_slicing, reason = "a bench counts")]

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use throttle_core::{Action, Policy, Rule, StoreBackend};
use throttle_redis::{RedisBackend, RedisConfig};

const SERVER: &str = "THROTTLE_TEST_REDIS_URL";
const KEYS: u64 = 1_000;
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 9;

const DECIDE: &str = concat!(
    include_str!("../../throttle-redis/src/scripts/prelude.lua"),
    include_str!("../../throttle-redis/src/scripts/bucket.lua"),
    include_str!("../../throttle-redis/src/scripts/fixed_window.lua"),
    include_str!("../../throttle-redis/src/scripts/sliding_window.lua"),
    include_str!("../../throttle-redis/src/scripts/sliding_log.lua"),
    include_str!("../../throttle-redis/src/scripts/any_rules.lua"),
    include_str!("../../throttle-redis/src/scripts/decide.lua"),
);

const THREE_CALLS: &str = "
redis.call('TIME')
local value = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], string.sub(ARGV[1], 1, 19), 'PX', 60000)
return value
";

/// Decisions per second of `callers` at once, for one round.
async fn rate<F>(callers: usize, call: impl Fn(u64) -> F + Clone + Send + 'static) -> f64
where
    F: Future<Output = u64> + Send + 'static,
{
    let done = std::sync::Arc::new(AtomicU64::new(0));
    let since = Instant::now();
    let tasks: Vec<_> = (0..callers as u64)
        .map(|caller| {
            let (call, done) = (call.clone(), done.clone());
            tokio::spawn(async move {
                let mut turn = caller * 7_919;
                while since.elapsed() < ROUND {
                    done.fetch_add(call(turn % KEYS).await, Ordering::Relaxed);
                    turn += 1;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    done.load(Ordering::Relaxed) as f64 / since.elapsed().as_secs_f64()
}

/// One request of `gcra 1000000/s burst 1000000000`, as `script.rs` packs it.
fn packed() -> Vec<u8> {
    let mut packed = Vec::new();
    packed.extend(0_u64.to_be_bytes());
    packed.extend(1_000_000_u32.to_be_bytes());
    packed.extend(1_u32.to_be_bytes());
    packed.extend(1_u64.to_be_bytes());
    packed.extend(0_u32.to_be_bytes());
    packed.extend(1_000_000_000_u64.to_be_bytes());
    packed.extend(0_u32.to_be_bytes());
    packed
}

async fn bare(mut connection: MultiplexedConnection, hash: &str, key: u64) -> u64 {
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash).arg(1).arg(format!("bench-{hash}:1:p:{key}")).arg(packed());
    let value = connection.send_packed_command(&command).await.unwrap();
    assert!(!matches!(value, redis::Value::ServerError(_)), "{value:?}");
    1
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let Ok(url) = std::env::var(SERVER) else {
        println!("{SERVER} is not set: nothing to measure");
        return;
    };
    let client = redis::Client::open(url.as_str()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let load = async |script: &str| -> String {
        redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection.clone()).await.unwrap()
    };
    let (decide, three_calls) = (load(DECIDE).await, load(THREE_CALLS).await);
    let backend =
        RedisBackend::connect(RedisConfig::new(&url).unwrap().prefix("bench").unwrap()).await.unwrap();
    let policy = Policy::new("p", [Rule::gcra("1000000/s burst 1000000000").unwrap()]).unwrap();
    for callers in [1, 64] {
        let mut rates = vec![Vec::new(); 4];
        for _ in 0..ROUNDS {
            for (subject, hash) in [&three_calls, &decide].into_iter().enumerate() {
                let (connection, hash) = (connection.clone(), hash.clone());
                let call = move |key| {
                    let (connection, hash) = (connection.clone(), hash.clone());
                    async move { bare(connection, &hash, key).await }
                };
                rates[subject].push(rate(callers, call).await);
            }
            let (store, rules) = (backend.clone(), policy.clone());
            let one = move |key: u64| {
                let (store, rules) = (store.clone(), rules.clone());
                async move {
                    let key = key.to_string();
                    u64::from(store.decide(&Action::consume(&rules, &key)).await.unwrap().granted())
                }
            };
            rates[2].push(rate(callers, one).await);
            let (store, rules) = (backend.clone(), policy.clone());
            let many = move |key: u64| {
                let (store, rules) = (store.clone(), rules.clone());
                async move {
                    let keys: Vec<_> = (0..64).map(|more| (key + more).to_string()).collect();
                    let actions: Vec<_> = keys.iter().map(|key| Action::consume(&rules, key)).collect();
                    store.decide_many(&actions).await.len() as u64
                }
            };
            rates[3].push(rate(callers.div_ceil(16), many).await);
        }
        let median = |subject: usize| {
            let mut sorted = rates[subject].clone();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        };
        let [three, script, one, many] = [0, 1, 2, 3].map(median);
        println!("{callers} callers, {KEYS} keys: decisions per second");
        println!("  TIME, GET, SET, bare      {three:9.0}");
        println!("  the script, bare          {script:9.0}  {:.2} of that", script / three);
        println!("  the backend               {one:9.0}  {:.2} of the script bare", one / script);
        println!("  the backend, 64 in a call {many:9.0}  {:.2} of one in a call", many / one);
    }
}
