//! How do I ask Redis less often? A caller with many requests, of which Redis hears few.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1/ cargo run -p examples --example leases
//! ```
//!
//! Two processes share a budget of 30,000. Each takes blocks of it, spends them by itself, and gives back what is left.

#![expect(clippy::print_stdout, reason = "a program that tells what it does")]

use std::env;
use std::error::Error;
use std::time::Duration;

use tokio::time::sleep;
use tollgate::{CheckError, Lease, Limiter, Policy, Quota, RedisBackend};

const BUDGET: u64 = 30_000;

fn api() -> Policy {
    // It hardly refills while the example runs.
    Policy::new("api", Quota::per_day(1_000).burst(BUDGET))
}

/// A process of the fleet, and its view of Redis.
struct Process {
    limiter: Limiter,
    backend: RedisBackend,
}

impl Process {
    async fn start(url: &str) -> Result<Self, Box<dyn Error>> {
        let backend = RedisBackend::connect(url).await?;
        let policy = api().lease(Lease::up_to(1_000).within(Duration::from_millis(100)));
        let limiter = Limiter::builder()
            .policy(policy)
            .backend(backend.clone())
            .build()?;
        Ok(Self { limiter, backend })
    }
}

/// Alice asks the processes in turn. Returns the number of her requests that pass.
async fn ask(fleet: &[Process], requests: usize) -> Result<usize, CheckError> {
    let mut passed = 0;
    for process in fleet.iter().cycle().take(requests) {
        passed += usize::from(process.limiter.check("api", "alice").await?.is_allowed());
    }
    Ok(passed)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let others = Limiter::builder()
        .policy(api())
        .backend(RedisBackend::connect(&url).await?)
        .build()?;
    others.reset("api", "alice").await?;
    let fleet = [Process::start(&url).await?, Process::start(&url).await?];

    let passed = ask(&fleet, 20_000).await?;
    let asked: u64 = fleet
        .iter()
        .map(|process| process.backend.stats().requests)
        .sum();
    println!("{passed} of 20000 requests passed; Redis was asked about {asked}");

    // A limiter that ends gives its blocks back, and so does the end of each block.
    drop(fleet);
    sleep(Duration::from_millis(500)).await;
    let left = others.check("api", "alice").probe().await?.remaining();
    println!("the processes have ended: the others see {left}");

    let fleet = [Process::start(&url).await?, Process::start(&url).await?];
    println!(
        "{} of 20000 more requests passed",
        ask(&fleet, 20_000).await?
    );
    Ok(())
}
