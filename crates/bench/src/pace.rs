//! The pace of decisions on one hot caller out of leased blocks, beside that of budgets in memory.

use std::time::{Duration, Instant};

use clap::Args;
use tokio::task::yield_now;
use tollgate::{Lease, Limiter, Policy, Quota, RedisBackend};

use crate::Result;
use crate::measure::median;

/// More than any machine decides on.
const PER_SECOND: u64 = 1_000_000_000;

/// The decisions of a turn, and those between which the runtime does its other work.
const DECISIONS: u32 = 500_000;
const AT_A_TIME: u32 = 100;

type SendError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Args)]
pub(crate) struct Pace {
    /// The server: redis://[user:password@]host[:port][/database]
    #[arg(long)]
    url: String,
    /// The turns of each limiter
    #[arg(long, default_value_t = 20)]
    turns: usize,
}

impl Pace {
    /// Prints the paces, the ratio of the paces at the median of all turns, and what was asked of the server.
    pub(crate) fn run(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let (url, turns) = (self.url.clone(), self.turns);
        // A task, as each connection of a service is one.
        let measuring = runtime.spawn(async move { measure(&url, turns).await });
        let measured = runtime
            .block_on(measuring)?
            .map_err(|error| error.to_string())?;
        println!("{measured}");
        Ok(())
    }
}

async fn measure(url: &str, turns: usize) -> std::result::Result<serde_json::Value, SendError> {
    let backend = RedisBackend::connect(url).await?;
    let policy = || Policy::new("hot", Quota::per_second(PER_SECOND)).on_demand();
    let lease = Lease::up_to(PER_SECOND);
    let leased = Limiter::builder()
        .policy(policy().lease(lease))
        .backend(backend.clone())
        .build()?;
    let in_memory = Limiter::builder().policy(policy()).build()?;
    for _ in 0..2 {
        turn(&leased).await?;
    }
    let (before, mut took) = (backend.stats(), Duration::ZERO);
    let (mut by_lease, mut in_process, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..turns {
        let (memory, leased) = (turn(&in_memory).await?, turn(&leased).await?);
        ratios.push(memory.as_secs_f64() / leased.as_secs_f64());
        took += leased;
        in_process.push(per_second(memory));
        by_lease.push(per_second(leased));
    }
    let after = backend.stats();
    Ok(serde_json::json!({
        "memory_per_second": median(in_process).round(),
        "leased_per_second": median(by_lease).round(),
        "leased_by_memory": median(ratios),
        "calls_per_second": (after.calls - before.calls) as f64 / took.as_secs_f64(),
        // The questions for blocks, what was given back, and the decisions without a block.
        "asked": after.requests - before.requests,
        "decisions": DECISIONS as usize * turns,
    }))
}

async fn turn(limiter: &Limiter) -> std::result::Result<Duration, SendError> {
    let started = Instant::now();
    for _ in 0..DECISIONS / AT_A_TIME {
        for _ in 0..AT_A_TIME {
            let report = limiter.check("hot", "alice").await?;
            if !report.is_allowed() {
                return Err("a request within its budget was denied".into());
            }
        }
        yield_now().await;
    }
    Ok(started.elapsed())
}

fn per_second(took: Duration) -> f64 {
    f64::from(DECISIONS) / took.as_secs_f64()
}
