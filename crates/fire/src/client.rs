//! One of the processes that ask: what it does, and what it writes down.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tollgate_core::Backend;
use tollgate_redis::{RedisBackend, RedisBackendBuilder};

use crate::Result;
use crate::attempt::{Asked, Attempt, Outcome};
use crate::population::{Population, SHARED_CALLERS};

/// The longest that a client waits to see whether a retry passes as promised.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// How long a worker pauses when nothing answers: what is asked meanwhile only makes more unknowns.
const BREATH: Duration = Duration::from_millis(60);

/// What a client is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// Of the whole run: who asks for what.
    pub seed: u64,
    /// Its number among all clients of the run.
    pub number: u32,
    /// How many ask side by side.
    pub workers: u32,
    /// How long each pauses between attempts at most.
    pub pause_us: u64,
    /// The deadline of its decisions.
    pub deadline_us: u64,
    /// Where the budgets are.
    pub place: Place,
}

/// Where budgets are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Place {
    /// One server.
    Single(String),
    /// A master of this name, and its Sentinels.
    Sentinel(String, Vec<String>),
    /// Some nodes of a cluster.
    Cluster(Vec<String>),
}

impl Place {
    /// A backend there, still to be set up.
    pub fn backend(&self) -> RedisBackendBuilder {
        match self {
            Self::Single(url) => RedisBackend::builder(url),
            Self::Sentinel(name, urls) => RedisBackend::sentinel(name, urls.iter().cloned()),
            Self::Cluster(urls) => RedisBackend::cluster(urls.iter().cloned()),
        }
    }
}

/// What a client writes, a line each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Line {
    /// An attempt is about to be made: everything but when it was heard of and what came of it.
    Ask(u64, Attempt),
    /// What came of it, and when.
    Hear(u64, u64, Outcome),
}

/// Now, in µs of the host's clock.
#[must_use]
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

/// Asks until its input ends, and writes down what it sees.
///
/// # Errors
///
/// If the orders cannot be followed.
pub fn run(orders: &Orders) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(ask(orders))
}

async fn ask(orders: &Orders) -> Result<()> {
    let deadline = Duration::from_micros(orders.deadline_us);
    let input = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    // Connected, so that its first attempts are no unknowns; but it may be born while the server is away.
    let backend = loop {
        match orders.place.backend().deadline(deadline).connect().await {
            Ok(backend) => break backend,
            Err(_away) if input.is_finished() => return Ok(()),
            Err(_away) => tokio::time::sleep(BREATH).await,
        }
    };
    let client = Arc::new(Client {
        backend,
        population: Population::of(orders.seed),
        orders: orders.clone(),
        next: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    let workers: Vec<_> = (0..orders.workers)
        .map(|worker| tokio::spawn(work(Arc::clone(&client), worker)))
        .collect();
    input.await??;
    client.is_over.store(true, Ordering::Release);
    for worker in workers {
        worker.await??;
    }
    Ok(())
}

struct Client {
    backend: RedisBackend,
    population: Population,
    orders: Orders,
    next: AtomicU64,
    is_over: AtomicBool,
}

async fn work(client: Arc<Client>, worker: u32) -> std::io::Result<()> {
    let orders = &client.orders;
    let own = SHARED_CALLERS + orders.number * orders.workers + worker;
    let mut rng = Rng::with_seed(orders.seed ^ (u64::from(own) << 32));
    while !client.is_over.load(Ordering::Acquire) {
        let is_own = rng.u8(0..4) == 0;
        let caller = if is_own {
            own
        } else {
            rng.u32(0..SHARED_CALLERS)
        };
        let asked = if is_own {
            client.population.ask_much(&mut rng, caller)
        } else {
            client.population.ask(&mut rng, caller)
        };
        let outcome = client.attempt(&asked, None).await?;
        if is_own && let Some((promised_us, wait)) = promise(&outcome) {
            tokio::time::sleep(wait).await;
            client.attempt(&asked, Some(promised_us)).await?;
        }
        let pause = Duration::from_micros(rng.u64(0..=orders.pause_us));
        let breath = match outcome {
            Outcome::Unknown(_) => BREATH,
            _ => Duration::ZERO,
        };
        tokio::time::sleep(pause + breath).await;
    }
    Ok(())
}

impl Client {
    async fn attempt(&self, asked: &[Asked], promised_us: Option<u64>) -> std::io::Result<Outcome> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let caller = asked.first().map_or(0, |asked| asked.budget.caller);
        let key = self.population.key(caller);
        let attempt = Attempt {
            charges: asked.to_vec(),
            sent_us: now_us(),
            heard_us: 0,
            promised_us,
            outcome: Outcome::Unknown(String::new()),
        };
        say(&Line::Ask(number, attempt))?;
        let answer = self.backend.decide(&self.population.charges(asked, &key));
        let outcome = Outcome::of(&answer.await);
        say(&Line::Hear(number, now_us(), outcome.clone()))?;
        Ok(outcome)
    }
}

/// When a denied attempt is to pass by the backend's clock, and how long that is from now.
fn promise(outcome: &Outcome) -> Option<(u64, Duration)> {
    let Outcome::Decided(decided) = outcome else {
        return None;
    };
    let mut verdicts = decided.verdicts.iter();
    if decided.admitted || verdicts.any(|said| said.never) {
        return None;
    }
    let longest_us = decided
        .verdicts
        .iter()
        .map(|said| said.retry_after_us)
        .max()?;
    let wait = Duration::from_micros(longest_us);
    (wait < LONGEST_WAIT).then_some((decided.at_us + longest_us, wait))
}

fn say(line: &Line) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    std::io::stdout().lock().write_all(&text)
}
