//! A rate limiter in a dozen lines: ten requests a second for each client, twenty at once.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::Duration;

use throttle::memory::MemoryBackend;
use throttle::{Policy, Quota, RateLimiter, Rule};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rule = Rule::gcra(Quota::per_second(10).burst(20))?;
    let limiter = RateLimiter::new(Policy::new("api", [rule])?, MemoryBackend::default());

    for request in 1..=22 {
        let decision = limiter.check("198.51.100.7").await?;
        assert_eq!(
            decision.is_allowed(),
            request <= 20,
            "twenty at once, and a tenth of a second for one more"
        );
        match decision.retry_after() {
            None => println!("request {request}: allowed, {} left", decision.remaining()),
            Some(wait) => println!("request {request}: denied, retry in {wait:?}"),
        }
    }

    // Waiting instead of being turned away, within a deadline.
    let decision = limiter.acquire("198.51.100.7", Duration::from_secs(1)).await?;
    assert!(decision.is_allowed());
    println!("waited for one more, and got it");
    Ok(())
}
