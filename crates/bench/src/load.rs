//! Drives a Redis backend and prints the result in one line of JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum, value_parser};
use tollgate_core::{Algorithm, Backend, Call, Charge, Key, Mode, Quota, Scope};
use tollgate_redis::{RedisBackend, Stats};

use crate::Result;

#[derive(Args)]
pub(crate) struct Load {
    /// The server: redis://[user:password@]host[:port][/database]
    #[arg(long)]
    url: String,
    /// Callers that take turns, with a budget each
    #[arg(long, default_value_t = 1_024, value_parser = value_parser!(u64).range(1..))]
    keys: u64,
    /// Requests under way at any time
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u64).range(1..=65_536))]
    in_flight: u64,
    /// Requests in all
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u64).range(1..))]
    requests: u64,
    /// The quota of each caller, such as 10/s or 1000000/day
    #[arg(long)]
    quota: Quota,
    /// The time that a request waits for its decision, in milliseconds
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..))]
    deadline_ms: u64,
    /// Requests a second, if not as many as there can be
    #[arg(long, value_parser = value_parser!(u64).range(1..=1_000_000))]
    per_second: Option<u64>,
    /// Ask the server about each request, also while a denial is known
    #[arg(long)]
    ask_every_denial: bool,
    /// The way to count, if not the quota's own
    #[arg(long)]
    algorithm: Option<Counting>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Counting {
    Gcra,
    FixedWindow,
    SlidingWindow,
    /// Ten parts of the period
    RollingWindow,
    SlidingLog,
    IntervalRefill,
}

impl Counting {
    fn algorithm(self) -> Algorithm {
        match self {
            Self::Gcra => Algorithm::Gcra,
            Self::FixedWindow => Algorithm::FixedWindow {
                offset: Duration::ZERO,
            },
            Self::SlidingWindow => Algorithm::SlidingWindow,
            Self::RollingWindow => Algorithm::RollingWindow { buckets: 10 },
            Self::SlidingLog => Algorithm::SlidingLog,
            Self::IntervalRefill => Algorithm::IntervalRefill {
                offset: Duration::ZERO,
            },
        }
    }
}

/// The state that all callers share.
struct Run {
    backend: RedisBackend,
    quota: Quota,
    keys: u64,
    requests: u64,
    per_second: Option<u64>,
    started: Instant,
    next: AtomicU64,
}

impl Run {
    /// Waits for the time of this request. One that comes late catches up.
    async fn paces(&self, request: u64) {
        if let Some(per_second) = self.per_second {
            let micros = u128::from(request) * 1_000_000 / u128::from(per_second);
            let after = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
            if after > self.started.elapsed() {
                tokio::time::sleep_until((self.started + after).into()).await;
            }
        }
    }
}

/// The results of one caller.
#[derive(Default)]
struct Seen {
    allowed: u64,
    denied: u64,
    failed: u64,
    latencies: Vec<Duration>,
}

impl Load {
    pub(crate) fn run(&self) -> Result<()> {
        let quota = self.resolved()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.drive(quota))
    }

    fn resolved(&self) -> Result<Quota> {
        let Some(algorithm) = self.algorithm.map(Counting::algorithm) else {
            return Ok(self.quota);
        };
        if algorithm == self.quota.algorithm() {
            return Ok(self.quota);
        }
        if self.quota.capacity() != self.quota.limit() {
            return Err(format!("--quota {}: only gcra has a burst", self.quota).into());
        }
        Ok(self.quota.try_using(algorithm)?)
    }

    async fn drive(&self, quota: Quota) -> Result<()> {
        let deadline = Duration::from_millis(self.deadline_ms);
        let mut builder = RedisBackend::builder(&self.url)
            .deadline(deadline)
            .connect_deadline(deadline.max(Duration::from_secs(2)));
        if self.ask_every_denial {
            builder = builder.ask_every_denial();
        }
        let backend = builder.connect().await.map_err(|error| explained(&error))?;
        let before = backend.stats();
        let run = Arc::new(Run {
            backend,
            quota,
            keys: self.keys,
            requests: self.requests,
            per_second: self.per_second,
            started: Instant::now(),
            next: AtomicU64::new(0),
        });
        let callers: Vec<_> = (0..self.in_flight)
            .map(|_| tokio::spawn(caller(Arc::clone(&run))))
            .collect();
        let mut seen = Seen::default();
        for caller in callers {
            seen.add(caller.await?);
        }
        let took = run.started.elapsed();
        seen.latencies.sort_unstable();
        println!("{}", seen.line(took, before, run.backend.stats()));
        Ok(())
    }
}

async fn caller(run: Arc<Run>) -> Seen {
    let mut seen = Seen::default();
    let scope = Scope::of("load", 0, &run.quota);
    loop {
        let n = run.next.fetch_add(1, Ordering::Relaxed);
        if n >= run.requests {
            return seen;
        }
        run.paces(n).await;
        let key = Key::from(n % run.keys);
        let charge = Charge {
            scope,
            quota: &run.quota,
            key: &key,
            cost: 1,
            mode: Mode::Enforce,
        };
        let started = Instant::now();
        let decision = run.backend.decide(Call::of(&[charge])).await;
        seen.latencies.push(started.elapsed());
        match decision {
            Ok(decision) if decision.is_admitted() => seen.allowed += 1,
            Ok(_) => seen.denied += 1,
            Err(_) => seen.failed += 1,
        }
    }
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.failed += other.failed;
        self.latencies.extend(other.latencies);
    }

    /// Latencies are sorted by now.
    fn line(&self, took: Duration, before: Stats, after: Stats) -> serde_json::Value {
        let at = |per_mille: usize| {
            let index = self.latencies.len() * per_mille / 1_000;
            self.latencies.get(index).map_or(0, Duration::as_micros)
        };
        serde_json::json!({
            "requests": self.latencies.len(),
            "allowed": self.allowed,
            "denied": self.denied,
            "failed": self.failed,
            "seconds": took.as_secs_f64(),
            "p50_us": at(500),
            "p99_us": at(990),
            "p999_us": at(999),
            "known_denials": after.known_denials - before.known_denials,
            "script_calls": after.calls - before.calls,
            "bytes_out": after.bytes_out - before.bytes_out,
            "bytes_in": after.bytes_in - before.bytes_in,
        })
    }
}

/// An error with its causes, in one line.
fn explained(error: &tollgate_redis::ConnectError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
