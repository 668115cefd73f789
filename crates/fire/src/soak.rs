//! Long and heavy use without faults, to find resources that grow.

mod asking;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

use self::asking::Asking;
use crate::Result;

/// The settings.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// The number of decisions in all.
    pub decisions: u64,
    /// The number that wait at any time.
    pub in_flight: u64,
    /// The number of callers. They take turns.
    pub identities: u64,
    /// True to ask over HTTP, through a server with the layer around it, and not the backend itself.
    pub over_http: bool,
}

/// The resources of the process at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Memory, in KiB.
    pub memory_kib: u64,
    /// Open files and sockets.
    pub descriptors: usize,
    /// Tasks of the runtime that have not ended.
    pub tasks: usize,
}

/// The result.
#[derive(Clone, Debug, Default)]
pub struct SoakReport {
    /// The duration.
    pub took: Duration,
    /// Decisions that failed.
    pub failed: u64,
    /// Half of all answers came within this.
    pub median: Duration,
    /// 99 of 100 answers came within this.
    pub p99: Duration,
    /// The time that each would have waited if all had waited equally long.
    pub turn: Duration,
    /// The resources after the first quarter, when everything has been used and nothing is under way.
    pub early: Held,
    /// The resources at the end, when nothing is under way.
    pub late: Held,
}

/// A deadline that never matters: late decisions should be counted, not refused.
const PATIENT: Duration = Duration::from_secs(20);

impl Soak {
    /// Runs, against a server of its own.
    ///
    /// # Errors
    ///
    /// If the server cannot be used.
    pub async fn run(self, progress: impl Fn(u64)) -> Result<SoakReport> {
        let server = Standalone::start();
        let backend = RedisBackend::builder(&server.url())
            .deadline(PATIENT)
            .max_waiting(usize::try_from(self.in_flight)?)
            .connect()
            .await?;
        let asking = if self.over_http {
            Asking::over_http(backend, self.in_flight).await?
        } else {
            Asking::directly(backend)
        };
        let started_at = Instant::now();
        let mut soaked = SoakReport::default();
        let latencies = Arc::new(Latencies::default());
        for quarter in 0..4 {
            soaked.failed += self.quarter(&asking, quarter, &latencies).await?;
            if quarter == 0 {
                soaked.early = Held::now()?;
            }
            progress((quarter + 1) * self.decisions / 4);
        }
        soaked.took = started_at.elapsed();
        soaked.late = Held::now()?;
        let turns = u32::try_from(self.decisions / self.in_flight.max(1))?;
        soaked.turn = soaked.took / turns.max(1);
        soaked.median = latencies.within(50);
        soaked.p99 = latencies.within(99);
        Ok(soaked)
    }

    /// The number of failed decisions.
    async fn quarter(
        self,
        asking: &Asking,
        quarter: u64,
        latencies: &Arc<Latencies>,
    ) -> Result<u64> {
        let from = quarter * self.decisions / 4;
        let to = (quarter + 1) * self.decisions / 4;
        let next = Arc::new(AtomicU64::new(from));
        let workers = (0..self.in_flight).map(|worker| {
            let (asking, next) = (asking.of_worker(worker), Arc::clone(&next));
            let latencies = Arc::clone(latencies);
            tokio::spawn(async move {
                let mut failed = 0;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= to {
                        return failed;
                    }
                    let caller = format!("caller-{}", number % self.identities);
                    let asked_at = Instant::now();
                    failed += u64::from(!asking.is_decided(&caller).await);
                    latencies.count(asked_at.elapsed());
                }
            })
        });
        let workers: Vec<_> = workers.collect();
        let mut failed = 0;
        for worker in workers {
            failed += worker.await?;
        }
        Ok(failed)
    }
}

/// The number of answers by millisecond. It takes constant memory, because only the backend should grow.
#[derive(Debug)]
struct Latencies(Vec<AtomicU64>);

impl Default for Latencies {
    fn default() -> Self {
        let longest_ms = PATIENT.as_secs() * 1_000 + 1_000;
        Self((0..longest_ms).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Latencies {
    fn count(&self, took: Duration) {
        let ms = usize::try_from(took.as_millis()).unwrap_or(usize::MAX);
        let last = self.0.len() - 1;
        self.0[ms.min(last)].fetch_add(1, Ordering::Relaxed);
    }

    /// The time within which this percentage came, rounded up to a millisecond.
    fn within(&self, percent: u64) -> Duration {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        let wanted = counts.clone().sum::<u64>() * percent / 100;
        let sums = counts.scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let ms = sums.take_while(|sum| *sum < wanted).count();
        Duration::from_millis(u64::try_from(ms + 1).unwrap_or(u64::MAX))
    }
}

impl Held {
    /// Reads the resources, from within a runtime.
    ///
    /// # Errors
    ///
    /// If the system does not tell, as only Linux does.
    pub fn now() -> Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        Ok(Self {
            memory_kib: kib.ok_or("no resident size")?.parse()?,
            descriptors: std::fs::read_dir("/proc/self/fd")?.count(),
            tasks: Handle::current().metrics().num_alive_tasks(),
        })
    }
}
