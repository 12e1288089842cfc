//! What a decision through Redis costs, in ratios: our script against one that only asks for the time, gets and sets; the
//! backend against the same script called bare. All on one server, in turns.

#![allow(clippy::print_stdout, clippy::float_arithmetic, clippy::unwrap_used, reason = "a bench prints")]
#![allow(clippy::cast_precision_loss, clippy::indexing_slicing, reason = "a bench counts")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use throttle_core::{Action, GroupCommit, Policy, Rule, StoreBackend};
use throttle_redis::{RedisBackend, RedisConfig};

const SERVER: &str = "THROTTLE_TEST_REDIS_URL";
const KEYS: u64 = 1_000;
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 15;

const DECIDE: &str = concat!(
    include_str!("../throttle-redis/src/scripts/prelude.lua"),
    include_str!("../throttle-redis/src/scripts/bucket.lua"),
    include_str!("../throttle-redis/src/scripts/fixed_window.lua"),
    include_str!("../throttle-redis/src/scripts/sliding_window.lua"),
    include_str!("../throttle-redis/src/scripts/sliding_log.lua"),
    include_str!("../throttle-redis/src/scripts/any_rules.lua"),
    include_str!("../throttle-redis/src/scripts/decide.lua"),
);

const THREE_CALLS: &str = "
redis.call('TIME')
local value = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], string.sub(ARGV[1], 1, 19), 'PX', 60000)
return value
";

/// Decisions per second of `callers` at once, for one round.
async fn rate(callers: usize, call: Call) -> f64 {
    let done = Arc::new(AtomicU64::new(0));
    let since = Instant::now();
    let tasks: Vec<_> = (0..callers as u64)
        .map(|caller| {
            let (call, done) = (Arc::clone(&call), Arc::clone(&done));
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
    packed.extend(1_u32.to_be_bytes());
    packed.extend(1_u64.to_be_bytes());
    packed.extend(0_u32.to_be_bytes());
    packed.extend(1_000_000_000_u64.to_be_bytes());
    packed.extend(0_u32.to_be_bytes());
    packed.extend(1_u32.to_be_bytes());
    packed
}

async fn bare(mut connection: MultiplexedConnection, hash: &str, key: u64) -> u64 {
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash).arg(1).arg(format!("bench-{hash}:1:p:{key}")).arg(packed());
    let value = connection.send_packed_command(&command).await.unwrap();
    assert!(!matches!(value, redis::Value::ServerError(_)), "{value:?}");
    1
}

/// The median of each subject's rates, measured in turns.
async fn medians(subjects: &[Subject], callers: usize) -> Vec<f64> {
    let mut rates = vec![Vec::new(); subjects.len()];
    for _ in 0..ROUNDS {
        for (subject, rates) in subjects.iter().zip(&mut rates) {
            rates.push(rate(callers.div_ceil(subject.share), subject.call.clone()).await);
        }
    }
    rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
    rates.iter().map(|rates| rates[rates.len() / 2]).collect()
}

type Call = Arc<dyn Fn(u64) -> Pin<Box<dyn Future<Output = u64> + Send>> + Send + Sync>;

struct Subject {
    name: &'static str,
    call: Call,
    /// How many callers are one here.
    share: usize,
}

fn subject<F>(name: &'static str, call: impl Fn(u64) -> F + Send + Sync + 'static) -> Subject
where
    F: Future<Output = u64> + Send + 'static,
{
    Subject { name, call: Arc::new(move |key| Box::pin(call(key))), share: 1 }
}

fn script(name: &'static str, connection: &MultiplexedConnection, hash: &str) -> Subject {
    let (connection, hash) = (connection.clone(), hash.to_owned());
    subject(name, move |key| {
        let (connection, hash) = (connection.clone(), hash.clone());
        async move { bare(connection, &hash, key).await }
    })
}

fn store(name: &'static str, store: &Arc<impl StoreBackend>, policy: &Policy, keys: u64) -> Subject {
    let (store, policy) = (store.clone(), policy.clone());
    subject(name, move |key| {
        let (store, policy) = (store.clone(), policy.clone());
        async move {
            let key = (key % keys).to_string();
            u64::from(store.decide(&Action::consume(&policy, &key)).await.unwrap().granted())
        }
    })
}

fn many(name: &'static str, store: &Arc<impl StoreBackend>, policy: &Policy) -> Subject {
    let (store, policy) = (store.clone(), policy.clone());
    let subject = subject(name, move |key| {
        let (store, policy) = (store.clone(), policy.clone());
        async move {
            let keys: Vec<_> = (0..64).map(|more| (key + more).to_string()).collect();
            let actions: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
            store.decide_many(&actions).await.iter().filter(|outcome| outcome.is_ok()).count() as u64
        }
    });
    Subject { share: 16, ..subject }
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
    let config = RedisConfig::new(&url).unwrap().prefix("bench").unwrap();
    let config = config.response_deadline(Duration::from_secs(10)).unwrap();
    let backend = Arc::new(RedisBackend::connect(config).await.unwrap());
    let grouped = Arc::new(GroupCommit::new(RedisBackend::clone(&backend)));
    let policy = Policy::new("p", [Rule::gcra("1000000/s burst 1000000000").unwrap()]).unwrap();
    let subjects = [
        script("TIME, GET, SET, bare", &connection, &three_calls),
        script("the script, bare", &connection, &decide),
        store("the backend", &backend, &policy, KEYS),
        store("in groups", &grouped, &policy, KEYS),
        many("64 in a call", &backend, &policy),
        store("one key", &backend, &policy, 1),
        store("one key, in groups", &grouped, &policy, 1),
    ];
    for callers in [1, 64] {
        println!("{callers} callers, {KEYS} keys: decisions per second, and to the first");
        let medians = medians(&subjects, callers).await;
        for (subject, rate) in subjects.iter().zip(&medians) {
            println!("  {:22}{rate:9.0} {:6.2}", subject.name, rate / medians[0]);
        }
        for (name, ours, other) in [
            ("script_to_three_calls", 1, 0),
            ("backend_to_script", 2, 1),
            ("many_keys_in_groups_to_one_by_one", 3, 2),
            ("one_key_in_groups_to_one_by_one", 6, 5),
            ("one_key_in_groups_to_script", 6, 1),
        ] {
            println!("ratio redis_{callers}_callers_{name} {:.3}", medians[ours] / medians[other]);
        }
    }
}
