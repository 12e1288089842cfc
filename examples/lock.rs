//! Two workers, one task: a distributed lock, and what a late holder meets.
//!
//! `cargo run --example lock -- [URL]`, such as `redis://127.0.0.1` with the feature `redis`.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use throttle::lock::{Fence, LockNamespace, LockTerms, ResourceError};

/// What the lock protects: it refuses who is late.
#[derive(Debug, Default)]
struct Ledger {
    highest: Option<Fence>,
    entries: Vec<&'static str>,
}

impl Ledger {
    fn write(&mut self, fence: Fence, entry: &'static str) -> Result<(), &'static str> {
        if Some(fence) < self.highest {
            return Err("a later holder was here");
        }
        self.highest = Some(fence);
        self.entries.push(entry);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let store = Arc::new(throttle::connect_with_locks(&url).await?);
    let terms = LockTerms::default().ttl(Duration::from_millis(200))?;
    let tasks = LockNamespace::on("task", Arc::clone(&store)).with_terms(terms.clone());
    let run = tasks.resource(17).busy_text("task 17 runs already");

    // The body takes longer than the time to live: the lock is prolonged meanwhile.
    let worker = tokio::spawn({
        let run = run.clone();
        async move {
            run.with(async |lease| (tokio::time::sleep(Duration::from_millis(500)).await, lease.is_valid()))
                .await
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    match run.with(async |_| ()).await {
        Err(ResourceError::Busy(busy)) => println!("{busy}"),
        other => return Err(format!("two at once: {other:?}").into()),
    }
    let ((), is_valid) = worker.await??;
    assert!(is_valid, "held for more than two times to live");

    // A holder that is stopped for too long has lost the lock, and what it writes is refused.
    let mut ledger = Ledger::default();
    let asleep = tasks.clone().with_terms(terms.without_renewal()).resource(17).acquire().await?;
    println!("lost: {}", asleep.lost().await);
    let next = run.waiting(Duration::from_secs(1)).acquire().await?;
    ledger.write(next.fence(), "the next holder")?;
    let refused = ledger.write(asleep.fence(), "too late");
    println!("refused: {refused:?}");
    assert_eq!(refused, Err("a later holder was here"));
    assert_eq!(ledger.entries, ["the next holder"]);
    println!("released: {:?}, {:?}", asleep.release().await?, next.release().await?);
    Ok(())
}
