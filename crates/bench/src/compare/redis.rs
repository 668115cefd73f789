//! On a Redis server of its own: decisions per second, their latency, and their cost to the server and the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_testkit::Standalone;

use super::part;
use super::report::{HeldCost, InFlight, Pace, ServerCost, Sizes};
use crate::Result;
use crate::contender::{Contender, NAMES};
use crate::measure::median;
use crate::redis_instructions::{self, Server};

/// The requests under way, the callers that take turns, and the number of contenders that can take part: one hot caller spends
/// more than the last contender can be told to allow.
const POINTS: [(usize, u64, usize); 7] = [
    (1, CALLERS, 3),
    (16, CALLERS, 3),
    (64, CALLERS, 3),
    (128, CALLERS, 3),
    (256, CALLERS, 3),
    (1_024, CALLERS, 3),
    (256, 1, 2),
];
const CALLERS: u64 = 1_024;

/// The number of rounds in which all take turns, and the length of each turn.
const ROUNDS: [usize; 2] = [5, 2];
const TURN: [Duration; 2] = [Duration::from_millis(1_000), Duration::from_millis(400)];

/// Enough to fill the server's tables of keys and of expiries.
const KEYS: u64 = 16_384;

pub(super) fn pace(quick: bool) -> Result<Vec<InFlight>> {
    part("on Redis: decisions per second");
    let server = Standalone::start();
    runtime()?.block_on(async {
        let contenders = connected(&server.url()).await?;
        let mut points = Vec::new();
        for (in_flight, callers, able) in POINTS {
            let until = Until::Elapsed {
                turn: TURN[usize::from(quick)],
                callers,
            };
            points.push(
                point(
                    &contenders[..able],
                    in_flight,
                    until,
                    ROUNDS[usize::from(quick)],
                )
                .await?,
            );
        }
        Ok(points)
    })
}

/// Each contender has a server of its own for the count of bytes, and for the count of instructions if valgrind is installed.
pub(super) fn sizes(count: bool) -> Result<Vec<Sizes>> {
    part("on Redis: what a decision costs the server and the wire");
    let mut sizes = Vec::new();
    for who in NAMES {
        let server = Standalone::start();
        let (bytes_to_server, bytes_from_server, bytes_per_key) =
            runtime()?.block_on(bytes(who, &server))?;
        let instructions = if count {
            Some(runtime()?.block_on(instructions(who))?)
        } else {
            None
        };
        sizes.push(Sizes {
            who: who.to_owned(),
            instructions,
            bytes_to_server,
            bytes_from_server,
            bytes_per_key,
        });
    }
    Ok(sizes)
}

pub(super) fn costs() -> Result<(Vec<ServerCost>, Vec<HeldCost>)> {
    part("on Redis: what a decision costs the server, alone and with others");
    let cost = |(case, [allowed, denied]): (&str, [u64; 2])| ServerCost {
        case: case.to_owned(),
        allowed,
        denied,
    };
    let held = |cost: redis_instructions::HeldCost| HeldCost {
        case: cost.case.to_owned(),
        holders: cost.holders,
        instructions: cost.instructions,
    };
    let costs = redis_instructions::costs()?;
    let decisions = costs.decisions.into_iter().map(cost).collect();
    Ok((decisions, costs.held.into_iter().map(held).collect()))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

async fn connected(url: &str) -> Result<Vec<(&'static str, Contender)>> {
    let mut contenders = Vec::new();
    for name in NAMES {
        contenders.push((name, Contender::connect(name, url).await?));
    }
    Ok(contenders)
}

async fn point(
    contenders: &[(&'static str, Contender)],
    in_flight: usize,
    until: Until,
    rounds: usize,
) -> Result<InFlight> {
    let mut turns: Vec<Vec<Turn>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for ((_, contender), turns) in contenders.iter().zip(&mut turns) {
            turns.push(drive(contender, in_flight, until).await?);
        }
    }
    let by = contenders.iter().zip(turns).map(|((who, _), turns)| Pace {
        who: (*who).to_owned(),
        per_second: median(turns.iter().map(|turn| turn.per_second)),
        p50_us: median(turns.iter().map(|turn| turn.p50_us)),
        p99_us: median(turns.iter().map(|turn| turn.p99_us)),
    });
    Ok(InFlight {
        in_flight,
        callers: until.callers(),
        by: by.collect(),
    })
}

struct Turn {
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
}

#[derive(Clone, Copy)]
enum Until {
    Elapsed { turn: Duration, callers: u64 },
    Requests { count: u64, callers: u64 },
}

impl Until {
    fn callers(self) -> u64 {
        match self {
            Self::Elapsed { callers, .. } | Self::Requests { callers, .. } => callers,
        }
    }

    fn is_over(self, started_at: Instant, requests: u64) -> bool {
        match self {
            Self::Elapsed { turn, .. } => started_at.elapsed() >= turn,
            Self::Requests { count, .. } => requests >= count,
        }
    }
}

/// Keeps this many requests under way.
async fn drive(contender: &Contender, in_flight: usize, until: Until) -> Result<Turn> {
    let next = Arc::new(AtomicU64::new(0));
    let started_at = Instant::now();
    let callers: Vec<_> = (0..in_flight)
        .map(|_| tokio::spawn(caller(contender.clone(), Arc::clone(&next), until)))
        .collect();
    let mut latencies = Vec::new();
    for caller in callers {
        latencies.extend(caller.await??);
    }
    let took = started_at.elapsed();
    latencies.sort_unstable();
    let at = |percent: usize| {
        let latency = latencies.get(latencies.len() * percent / 100);
        latency.map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    };
    Ok(Turn {
        per_second: latencies.len() as f64 / took.as_secs_f64(),
        p50_us: at(50),
        p99_us: at(99),
    })
}

async fn caller(
    mut contender: Contender,
    next: Arc<AtomicU64>,
    until: Until,
) -> std::result::Result<Vec<Duration>, String> {
    let started_at = Instant::now();
    let mut latencies = Vec::new();
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if until.is_over(started_at, n) {
            return Ok(latencies);
        }
        let asked_at = Instant::now();
        let allowed = contender.decide(n % until.callers()).await;
        latencies.push(asked_at.elapsed());
        match allowed {
            Ok(true) => {}
            Ok(false) => return Err("a caller within its budget was denied".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The bytes to the server and from it per decision with 64 under way, and the memory per key.
async fn bytes(who: &str, server: &Standalone) -> Result<(f64, f64, u64)> {
    let contender = Contender::connect(who, &server.url()).await?;
    let all = |count| Until::Requests {
        count,
        callers: KEYS,
    };
    // One of each comes first: then connections and scripts are in place.
    drive(&contender, 64, all(64)).await?;
    let (to, from) = traffic(server)?;
    let memory = info(server, "memory", "used_memory:")?;
    drive(&contender, 64, all(KEYS)).await?;
    let more = info(server, "memory", "used_memory:")?.saturating_sub(memory);
    let (to_after, from_after) = traffic(server)?;
    let each = |bytes: u64| bytes as f64 / KEYS as f64;
    Ok((
        each(to_after - to),
        each(from_after - from),
        more / (KEYS - 64),
    ))
}

fn traffic(server: &Standalone) -> Result<(u64, u64)> {
    Ok((
        info(server, "stats", "total_net_input_bytes:")?,
        info(server, "stats", "total_net_output_bytes:")?,
    ))
}

fn info(server: &Standalone, section: &str, name: &str) -> Result<u64> {
    let info = server.command(&["INFO", section]);
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    let value = value.ok_or_else(|| format!("INFO {section} does not tell {name}"))?;
    Ok(value.trim().parse()?)
}

/// The instructions of redis-server per decision, with 64 under way.
async fn instructions(who: &str) -> Result<u64> {
    const DECISIONS: u64 = 6_400;

    let server = Server::start().await?;
    let contender = Contender::connect(who, &server.url()).await?;
    let all = Until::Requests {
        count: DECISIONS,
        callers: 64,
    };
    drive(&contender, 64, all).await?;
    let before = server.instructions()?;
    drive(&contender, 64, all).await?;
    Ok((server.instructions()? - before) / DECISIONS)
}
