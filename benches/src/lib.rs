//! Side-by-side measuring: two contenders in turn, round by round, on the same machine in the same run.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Runs both contenders `rounds` times in turn and prints their median rates, then `ratio NAME VALUE`: the median of
/// the rounds' own ratios, ours over the other's, so that more is better and a slow spell of the machine hits both.
///
/// Each contender returns how many decisions per second it made in one round.
#[expect(clippy::print_stdout, clippy::float_arithmetic, reason = "reports")]
pub fn race(name: &str, rounds: usize, mut ours: impl FnMut() -> f64, mut other: impl FnMut() -> f64) {
    black_box((ours(), other()));
    let pairs: Vec<(f64, f64)> = (0..rounds).map(|_| (ours(), other())).collect();
    let our_rate = median(pairs.iter().map(|pair| pair.0));
    let other_rate = median(pairs.iter().map(|pair| pair.1));
    println!("{name}: {our_rate:.0}/s against {other_rate:.0}/s");
    println!("ratio {name} {:.3}", median(pairs.iter().map(|pair| pair.0 / pair.1)));
}

/// Decisions per second of `threads` that each do `work`, which makes `decisions` of them, from a common start.
#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "reports")]
pub fn rate(threads: usize, decisions: usize, work: impl Fn(usize) + Sync) -> f64 {
    let (barrier, work) = (Barrier::new(threads), &work);
    let slowest = std::thread::scope(|scope| {
        let run = |thread| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                let start = Instant::now();
                work(thread);
                start.elapsed()
            })
        };
        let handles: Vec<_> = (0..threads).map(run).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).max().unwrap_or(Duration::MAX)
    });
    (threads * decisions) as f64 / slowest.as_secs_f64()
}

/// The middle value; the upper one of two.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
