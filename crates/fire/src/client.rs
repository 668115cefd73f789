//! One of the asking processes: its actions, and its record.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tollgate_core::{Backend, Receipt};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};

use crate::Result;
use crate::attempt::{
    AskedCharge, Asker, Attempt, AttemptAnswer, Budget, DecisionRecord, Door, Manner, Outcome,
    Verb, VerdictRecord,
};
use crate::door::Entrance;
use crate::flaw::Flaw;
use crate::hold::{Grant, Hold, LEASE};
use crate::holder::Places;
use crate::population::{Population, SHARED_CALLERS};

/// The longest wait of a client for a retry that was promised to pass.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// A worker's pause when nothing answers: questions meanwhile only make more unknowns.
const BREATH: Duration = Duration::from_millis(60);

/// One in this many HTTP requests is abandoned: its connection is closed in the middle of it.
const HASTY: u8 = 16;

/// The interval at which a process checks that it gets a processor.
const TICK: Duration = Duration::from_millis(10);

/// The number of a client's workers that hold places.
const HOLDERS: u32 = 6;

/// The number of receipts that a worker keeps to settle some day.
const MOST_HELD: usize = 24;

/// The orders of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The seed of the whole run's questions.
    pub seed: u64,
    /// Its number among all clients of the run.
    pub number: u32,
    /// The number of its workers.
    pub workers: u32,
    /// Each worker's longest pause between attempts.
    pub pause_us: u64,
    /// The deadline of its decisions.
    pub deadline_us: u64,
    /// The place of the budgets.
    pub place: Place,
    /// Its defect, if it should have one.
    pub flaw: Option<Flaw>,
}

impl Orders {
    /// The asking process. A dead client is replaced by one that asks in its way, if there are as many clients as doors.
    fn asker(&self) -> Asker {
        let doors = Door::ALL;
        Asker {
            process: self.number,
            door: doors[usize::try_from(self.number).unwrap_or_default() % doors.len()],
        }
    }
}

/// The place of budgets.
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

/// The record of a client, a line for each entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Line {
    /// An attempt is about to be made: everything but its answer.
    Ask(u64, Attempt),
    /// Its outcome and the time.
    Hear(u64, u64, AttemptAnswer),
    /// An attempt to hold a place, and once more when the place is given back.
    Hold(u64, Hold),
    /// Between these two points in time a thread of the process was to run, and was not given a processor.
    Late(u64, u64),
}

/// Now, in µs of the host's clock.
#[must_use]
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

/// Asks until its input ends, and records its observations.
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
    // Connected, so that its first attempts are not unknown; but the server may be away when the client starts.
    let backend = loop {
        let backend = orders.place.backend().deadline(deadline).held_lease(LEASE);
        match backend.connect().await {
            Ok(backend) => break backend,
            Err(_away) if input.is_finished() => return Ok(()),
            Err(_away) => tokio::time::sleep(BREATH).await,
        }
    };
    let population = Population::of(orders.seed);
    let asker = orders.asker();
    let client = Arc::new(Client {
        entrance: Entrance::open(asker.door, backend, population, orders.flaw).await?,
        asker,
        orders: orders.clone(),
        next: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    let mut workers: Vec<_> = (0..orders.workers)
        .map(|worker| tokio::spawn(work(Arc::clone(&client), worker)))
        .collect();
    workers.extend((0..HOLDERS).map(|holder| tokio::spawn(hold(Arc::clone(&client), holder))));
    tokio::spawn(watch_the_machine());
    input.await??;
    client.is_over.store(true, Ordering::Release);
    for worker in workers {
        worker.await??;
    }
    Ok(())
}

/// Records when a busy machine keeps the process waiting: its lateness is then no defect.
async fn watch_the_machine() -> std::io::Result<()> {
    let mut before_us = HashMap::new();
    loop {
        let due_at = tokio::time::Instant::now() + TICK;
        tokio::time::sleep_until(due_at).await;
        let late_us = u64::try_from(due_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        let waited_us = waited_us();
        let since_us =
            |(thread, us): (&u64, &u64)| us - before_us.get(thread).unwrap_or(us).min(us);
        // One thread may wait while another ticks.
        let longest_us = waited_us.iter().map(since_us).max();
        let kept_us = longest_us.unwrap_or_default().max(late_us);
        if u128::from(kept_us) > TICK.as_micros() {
            let to_us = now_us();
            say(&Line::Late(to_us.saturating_sub(kept_us), to_us))?;
        }
        before_us = waited_us;
    }
}

/// The time for which each thread of the process was ready to run and did not, if the system tells it.
fn waited_us() -> HashMap<u64, u64> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let waited = threads.flatten().filter_map(|thread| {
        let number = thread.file_name().to_str()?.parse().ok()?;
        let said = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let nanoseconds: u64 = said.split_whitespace().nth(1)?.parse().ok()?;
        Some((number, nanoseconds / 1_000))
    });
    waited.collect()
}

struct Client {
    entrance: Entrance,
    asker: Asker,
    orders: Orders,
    next: AtomicU64,
    is_over: AtomicBool,
}

async fn work(client: Arc<Client>, worker: u32) -> std::io::Result<()> {
    let orders = &client.orders;
    let own = SHARED_CALLERS + orders.number * orders.workers + worker;
    let mut rng = Rng::with_seed(orders.seed ^ (u64::from(own) << 32));
    let mut held = Vec::new();
    while !client.is_over.load(Ordering::Acquire) {
        let is_own = rng.u8(0..4) == 0;
        let caller = if is_own {
            own
        } else {
            rng.u32(0..SHARED_CALLERS)
        };
        let population = client.entrance.population();
        let asked = client.entrance.fitting(if is_own {
            population.ask_much(&mut rng, caller)
        } else {
            population.ask(&mut rng, caller)
        });
        let patience = (rng.u8(0..HASTY) == 0).then(|| Duration::from_micros(rng.u64(0..4_000)));
        let (outcome, taken) = client.ask(asked.clone(), None, patience).await?;
        if is_own && let Some((promised_us, wait)) = promise(&asked, &outcome) {
            tokio::time::sleep(wait).await;
            client.ask(asked, Some(promised_us), None).await?;
        }
        held.extend(taken);
        client.settle(&mut rng, &mut held)?;
        if rng.u8(0..60) == 0 {
            client.reset(&mut rng, caller).await?;
        }
        let pause = Duration::from_micros(rng.u64(0..=orders.pause_us));
        let breath = match outcome {
            Outcome::Unknown(_) if !outcome.is_unheard() => BREATH,
            _ => Duration::ZERO,
        };
        tokio::time::sleep(pause + breath).await;
    }
    Ok(())
}

/// Holds one place after the other.
async fn hold(client: Arc<Client>, holder: u32) -> std::io::Result<()> {
    let orders = &client.orders;
    let mut rng = Rng::with_seed(orders.seed ^ (u64::from(orders.number * HOLDERS + holder) << 16));
    let places = Places::all();
    while !client.is_over.load(Ordering::Acquire) {
        let number = client.next.fetch_add(1, Ordering::Relaxed);
        let wanted = &places[rng.usize(0..places.len())];
        let backend = client.entrance.backend();
        let said = |hold| say(&Line::Hold(number, hold));
        let grant = wanted
            .hold(backend, orders.number, &mut rng, now_us, said)
            .await?;
        let pause = match grant {
            Grant::Held => Duration::from_micros(rng.u64(0..=orders.pause_us)),
            Grant::Denied | Grant::Unknown => BREATH,
        };
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// A charge that may be corrected.
type OpenCharge = (Budget, VerdictRecord, Receipt);

impl Client {
    async fn ask(
        &self,
        asked: Vec<AskedCharge>,
        promised_us: Option<u64>,
        patience: Option<Duration>,
    ) -> std::io::Result<(Outcome, Vec<OpenCharge>)> {
        let number = self.begin(Verb::Decide(asked.clone()), promised_us)?;
        let (heard, receipts) = self.entrance.ask(&asked, patience).await;
        end(number, &heard)?;
        let mut taken = Vec::new();
        if let Outcome::Decided(decided) = &heard.outcome {
            let said = asked.iter().zip(&decided.verdicts);
            let said = said.filter(|(_, said)| said.taken > 0);
            let budgets = said.map(|(asked, said)| (asked.budget, *said));
            taken.extend(
                budgets
                    .zip(receipts)
                    .map(|((budget, said), it)| (budget, said, it)),
            );
        }
        Ok((heard.outcome, taken))
    }

    /// Corrects some of the charges, sooner or later.
    fn settle(&self, rng: &mut Rng, held: &mut Vec<OpenCharge>) -> std::io::Result<()> {
        while held.len() > MOST_HELD || (!held.is_empty() && rng.u8(0..10) == 0) {
            let (budget, said, receipt) = held.swap_remove(rng.usize(0..held.len()));
            match rng.u8(0..8) {
                0..=2 => {
                    let n = rng.u64(1..=said.taken);
                    let number = self.begin(Verb::Credit(budget, said, n), None)?;
                    self.entrance.backend().credit(receipt, n);
                    end(number, &Outcome::Told.into())?;
                }
                3..=4 => {
                    let n = rng.u64(1..=(receipt.quota().capacity() / 4).clamp(1, 12));
                    let number = self.begin(Verb::Debit(budget, n), None)?;
                    self.entrance.backend().debit(&receipt, n);
                    end(number, &Outcome::Told.into())?;
                }
                // The others cost as much as expected.
                _ => {}
            }
        }
        Ok(())
    }

    async fn reset(&self, rng: &mut Rng, caller: u32) -> std::io::Result<()> {
        let population = self.entrance.population();
        let policy = population.resettable(rng);
        let number = self.begin(Verb::Reset(Budget { policy, caller }), None)?;
        let (scope, key) = (population.scope(policy), population.key(caller));
        let outcome = match self.entrance.backend().reset(scope, &key).await {
            Ok(()) => Outcome::Reset,
            Err(error) => Outcome::of_error(&error),
        };
        end(number, &outcome.into())
    }

    /// Records an action before it is done.
    fn begin(&self, verb: Verb, promised_us: Option<u64>) -> std::io::Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let attempt = Attempt {
            asker: self.asker,
            verb,
            sent_us: now_us(),
            heard_us: 0,
            promised_us,
            outcome: Outcome::Unknown(String::new()),
            fallback: None,
            told: None,
        };
        say(&Line::Ask(number, attempt))?;
        Ok(number)
    }
}

fn end(number: u64, heard: &AttemptAnswer) -> std::io::Result<()> {
    say(&Line::Hear(number, now_us(), heard.clone()))
}

/// The time at which a denied attempt should pass by the backend's clock, and the time from now until then.
fn promise(asked: &[AskedCharge], outcome: &Outcome) -> Option<(u64, Duration)> {
    let Outcome::Decided(DecisionRecord { admitted, verdicts }) = outcome else {
        return None;
    };
    let enforced = asked.iter().zip(verdicts);
    let enforced: Vec<_> = enforced
        .filter(|(asked, _)| asked.manner == Manner::Enforce)
        .map(|(_, said)| said)
        .collect();
    if *admitted || enforced.iter().any(|said| said.never) {
        return None;
    }
    let last = enforced
        .into_iter()
        .max_by_key(|said| said.at_us + said.retry_after_us)?;
    let wait = Duration::from_micros(last.retry_after_us);
    (wait < LONGEST_WAIT).then_some((last.at_us + last.retry_after_us, wait))
}

fn say(line: &Line) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    std::io::stdout().lock().write_all(&text)
}
