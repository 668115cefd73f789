//! Points that are measured: real limiters before one real Redis on this machine.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fastrand::Rng;
use tokio::runtime::{Handle, Runtime};
use tollgate::{Lease, Limiter, Policy, RedisBackend};
use tollgate_testkit::Standalone;

use crate::excess::excess;
use crate::load::Load;
use crate::outcome::Pass;
use crate::runs::{LONG, Row, TAU, pulses, rounded};

/// An error of a measurement.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The least time before anything is counted, and the time that is.
const WARM_UP: Duration = Duration::from_millis(1_500);
const RUN: Duration = Duration::from_secs(6);

/// The time that is counted if there are few requests in it, or few blocks.
const LONG_RUN: Duration = Duration::from_secs(12);

/// The longest time by which a request may begin late, and by which the server's clock may leave ours. A machine that stops for
/// longer says more about itself: passes that are heard of together seem to be above the bound.
const STALL: Duration = Duration::from_millis(20);

/// The times that a point is measured, until one is without a stall.
const ATTEMPTS: u32 = 8;

/// A measurement.
struct Measurement {
    table: &'static str,
    line: &'static str,
    x: f64,
    limiters: u32,
    load: Load,
    lease: Option<Lease>,
}

/// Measures each point: the calls by the server's own account, and the requests by the limiters' answers.
///
/// # Errors
///
/// If there is no runtime or no server, or if the machine stalls each time that a point is measured.
pub fn all() -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let lines = [
        ("no lease", None),
        ("leases of 100 ms", Some(TAU)),
        ("leases of 1 s", Some(LONG)),
    ];
    let mut rows = Vec::new();
    for (line, lease) in lines {
        let of = |table, x, limiters, load| Measurement {
            table,
            line,
            x,
            limiters,
            load,
            lease,
        };
        let mut points: Vec<_> = [10.0, 30.0, 100.0, 1_000.0]
            .map(|rate| of("company", rate, 4, Load::of_one(4.0 * rate)))
            .into();
        let one = Load::of_one(10_000.0);
        points.extend([1, 4].map(|n| of("processes", n.into(), n, one.clone())));
        // There is no such curve of the longest leases.
        if lease != Some(LONG) {
            points.push(of("processes above the limit", 4.0, 4, one.using(2.0)));
        }
        points.push(of("bound", 4.0, 4, pulses(lease)));
        for point in points {
            rows.push(point.without_a_stall(&runtime)?);
        }
    }
    Ok(rows)
}

/// The counts of all requests.
#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    failed: AtomicU64,
    /// The longest time by which a request began late.
    late_us: AtomicU64,
    passes: Mutex<Vec<Pass>>,
}

impl Measurement {
    fn warm_up(&self) -> Duration {
        WARM_UP.max(5 * self.lease.unwrap_or(TAU).time())
    }

    fn run(&self) -> Duration {
        if self.lease == Some(LONG) || self.load.rate < 1_000.0 {
            LONG_RUN
        } else {
            RUN
        }
    }

    fn without_a_stall(&self, runtime: &Runtime) -> Result<Row> {
        for _ in 0..ATTEMPTS {
            if let Some(row) = self.figures(runtime)? {
                return Ok(row);
            }
        }
        let (table, line, x) = (self.table, self.line, self.x);
        let stalls = format!("{table}, {line}, {x}: the machine stalls for more than {STALL:?}");
        Err(stalls.into())
    }

    /// The figures of one run; `None` if the machine has stalled.
    fn figures(&self, runtime: &Runtime) -> Result<Option<Row>> {
        let server = Standalone::start();
        let quota = self.load.quota(0, 1);
        let (mut backends, mut limiters) = (Vec::new(), Vec::new());
        for _ in 0..self.limiters {
            let backend = runtime.block_on(RedisBackend::connect(&server.url()))?;
            let mut policy = Policy::new("api", quota).on_demand();
            if let Some(lease) = self.lease {
                policy = policy.lease(lease);
            }
            let builder = Limiter::builder().policy(policy).backend(backend.clone());
            limiters.push(builder.build()?);
            backends.push(backend);
        }
        let counts = Arc::new(Counts::default());
        let (warm_up, run) = (self.warm_up(), self.run());
        let ends = warm_up + run + Duration::from_millis(100);
        let (start, date) = (Instant::now(), SystemTime::now());
        let times = [start, start + ends];
        let drivers = limiters.into_iter().zip(0..).map(|(limiter, seed)| {
            let load = self.load.at(self.load.rate / f64::from(self.limiters));
            let (handle, counts) = (runtime.handle().clone(), Arc::clone(&counts));
            thread::spawn(move || drive(&limiter, &load, &handle, &counts, times, seed))
        });
        let drivers: Vec<_> = drivers.collect();
        thread::sleep(warm_up.saturating_sub(start.elapsed()));
        let before = (stats(&server), counts.requests.load(Ordering::Relaxed));
        let asked = || backends.iter().map(|it| it.stats().requests).sum::<u64>();
        let asked_before = asked();
        thread::sleep(run);
        let after = (stats(&server), counts.requests.load(Ordering::Relaxed));
        let asked = asked() - asked_before;
        for driver in drivers {
            driver
                .join()
                .map_err(|_| io::Error::other("a driver has panicked"))?;
        }

        let passed = date.elapsed().unwrap_or_default();
        let stall = Duration::from_micros(counts.late_us.load(Ordering::Relaxed));
        if stall.max(passed.abs_diff(start.elapsed())) > STALL {
            return Ok(None);
        }

        let seconds = run.as_secs_f64();
        let requests = (after.1 - before.1) as f64;
        let calls = (after.0[0] - before.0[0]) as f64;
        let busy_us = (after.0[1] - before.0[1]) as f64;
        let mut passes = counts.passes.lock().unwrap_or_else(PoisonError::into_inner);
        passes.sort_unstable();
        let time = self.lease.unwrap_or(TAU).time().as_secs_f64();
        let above = excess(&quota, &passes, 0) / (quota.limit() as f64 * time);
        Ok(Some(Row {
            table: self.table.to_owned(),
            line: self.line.to_owned(),
            x: self.x,
            requests: rounded(requests / seconds),
            calls: rounded(calls / seconds),
            calls_per_decision: rounded(calls / requests),
            waiting: rounded(asked as f64 / requests),
            failed: rounded(counts.failed.load(Ordering::Relaxed) as f64 / requests),
            excess: rounded(above.max(0.0)),
            hottest: rounded(busy_us / run.as_micros() as f64),
            nodes_in_use: 1,
            ..Row::default()
        }))
    }
}

/// Makes one limiter's requests at their times, from a thread of its own: a runtime's timer would gather those of a millisecond.
fn drive(
    limiter: &Limiter,
    load: &Load,
    handle: &Handle,
    counts: &Arc<Counts>,
    [start, end]: [Instant; 2],
    seed: u64,
) {
    let mut random = Rng::with_seed(seed);
    let mut next_ns = 0.0;
    loop {
        next_ns = load.next(next_ns, &mut random);
        let next = start + Duration::from_nanos(next_ns as u64);
        if next > end {
            return;
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let (limiter, counts) = (limiter.clone(), Arc::clone(counts));
        let _detached = handle.spawn(async move {
            let late_us = next.elapsed().as_micros() as u64;
            counts.late_us.fetch_max(late_us, Ordering::Relaxed);
            let answer = limiter.check("api", "one").await;
            let at_us = start.elapsed().as_micros() as u64;
            counts.requests.fetch_add(1, Ordering::Relaxed);
            match answer {
                Ok(answer) if answer.is_allowed() => {
                    let mut passes = counts.passes.lock().unwrap_or_else(PoisonError::into_inner);
                    passes.push(Pass { at_us, cost: 1 });
                }
                Ok(_) => {}
                Err(_) => {
                    counts.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
}

/// The server's own account: the calls of scripts, and the microseconds that they took.
fn stats(server: &Standalone) -> [u64; 2] {
    let stats = server.command(&["INFO", "commandstats"]);
    let mut lines = stats.lines();
    let line = lines.find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    let figure = |name| {
        let mut parts = line.unwrap_or_default().split(',');
        let part = parts.find_map(|part| part.strip_prefix(name));
        part.and_then(|figure| figure.parse().ok()).unwrap_or(0)
    };
    [figure("calls="), figure("usec=")]
}
