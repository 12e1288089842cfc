//! The embedded store against `governor` keyed (`DashMap`), on the same `String` keys.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use governor::{DefaultKeyedRateLimiter, RateLimiter as Governor};
use throttle_bench::{race, rate};
use throttle_core::{Guarded, Policy, Quota, RateLimiter, Rule};
use throttle_memory::MemoryBackend;

/// One unit per period, and so many at once: every decision admits, stores, and leaves a state that is still wanted when
/// its key comes up again. Both count this rate exactly.
const PERIOD: Duration = Duration::from_secs(30);
const BURST: u32 = 150_000_000;
/// Decisions per thread and round.
const DECISIONS: usize = 400_000;
const ROUNDS: usize = 21;

type Ours = RateLimiter<Guarded<MemoryBackend>>;
type Theirs = DefaultKeyedRateLimiter<String>;

fn main() {
    let mut criterion = Criterion::default()
        .configure_from_args()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .without_plots();
    // First, while no memory that others gave back is there to be used again.
    bytes_per_key();
    for keys in [1_u32, 10_000, 1_000_000] {
        let names: Vec<String> = (0..keys).map(|key| format!("client-{key:09}")).collect();
        let orders = [order(&names, 1), order(&names, 2)];
        let (ours, theirs) = (ours(), theirs());
        let of = |thread: usize| orders.get(thread).unwrap();
        // Every key is known to both before the first is timed.
        check_ours(&ours, &names);
        check_theirs(&theirs, &names);
        alone(&mut criterion, keys, &ours, &theirs, of(0));
        for threads in [1, 2] {
            race(
                &format!("memory_check_{keys}_keys_{threads}_threads"),
                ROUNDS,
                || rate(threads, DECISIONS, |thread| check_ours(&ours, of(thread))),
                || rate(threads, DECISIONS, |thread| check_theirs(&theirs, of(thread))),
            );
        }
    }
    criterion.final_summary();
}

fn ours() -> Ours {
    let rule = Rule::gcra(Quota::per(1, PERIOD).burst(BURST)).unwrap();
    RateLimiter::new(Policy::new("bench", [rule]).unwrap(), MemoryBackend::default())
}

fn theirs() -> Theirs {
    let burst = NonZeroU32::new(BURST).unwrap();
    Governor::keyed(governor::Quota::with_period(PERIOD).unwrap().allow_burst(burst))
}

fn check_ours(limiter: &Ours, order: &[String]) {
    pollster::block_on(async {
        for key in order {
            black_box(limiter.check(key).await.unwrap().is_allowed());
        }
    });
}

fn check_theirs(limiter: &Theirs, order: &[String]) {
    for key in order {
        black_box(limiter.check_key(key).is_ok());
    }
}

fn alone(criterion: &mut Criterion, keys: u32, ours: &Ours, theirs: &Theirs, order: &[String]) {
    let mut group = criterion.benchmark_group("check");
    let mut next = order.iter().cycle();
    group.bench_function(BenchmarkId::new("throttle", keys), |bencher| {
        bencher.iter(|| pollster::block_on(ours.check(next.next().unwrap())).unwrap().is_allowed());
    });
    let mut next = order.iter().cycle();
    group.bench_function(BenchmarkId::new("governor", keys), |bencher| {
        bencher.iter(|| theirs.check_key(next.next().unwrap()).is_ok());
    });
}

/// Uniform keys, the same sequence for both contenders (xorshift, Marsaglia 2003), each laid out where it is used: a
/// server has just read the key of a request, and does not go looking for its text in memory.
fn order(names: &[String], seed: u64) -> Vec<String> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        names.get(usize::try_from(state >> 32).unwrap() % names.len()).unwrap().clone()
    };
    (0..DECISIONS).map(|_| draw()).collect()
}

/// Resident memory of a million keys of 16 bytes, as the operating system counts it.
fn bytes_per_key() {
    const KEYS: usize = 1_000_000;
    let limiter = ours();
    let before = resident_bytes();
    pollster::block_on(async {
        for key in 0..KEYS {
            let _ = limiter.check(&format!("client-{key:09}")).await.unwrap();
        }
    });
    let store = limiter.store().get_ref();
    println!("memory: {} keys, {} bytes in tables", store.len(), store.allocated_bytes());
    println!("bytes_per_key {}", (resident_bytes() - before) / KEYS);
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}
