//! One of the asking processes: its actions, and its record.

mod granting;
mod knocking;
mod machine;
mod operating;
mod ordering;
mod patience;
mod record;
mod replacing;
mod restarting;
mod spending;

use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tollgate_core::{Backend, Receipt};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};

use self::knocking::{KNOCKERS, knock};
pub(crate) use self::machine::{waited_us, watch_the_machine};
use self::operating::operate;
use self::ordering::order;
pub(crate) use self::record::say;
pub use self::record::{HolderFigures, Line};
use self::replacing::replace_quotas;
use self::restarting::restart;
use self::spending::{SPENDERS, spend};
use crate::Result;
use crate::attempt::{
    AskedCharge, Asker, Attempt, AttemptAnswer, Budget, DecisionRecord, Door, Manner, Outcome,
    Verb, VerdictRecord,
};
use crate::door::Entrance;
use crate::flaw::Flaw;
use crate::gate::Gate;
use crate::hold::{Grant, LEASE};
use crate::holder::{PlaceDesk, Places};
use crate::instance::Instance;
use crate::patience::Patience;
use crate::population::{Population, SHARED_CALLERS};
use crate::ruling::Question;
use crate::settling::{Recorder, Settler};
use crate::wall::now_us;

/// The longest wait of a client for a retry that was promised to pass.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// A worker's pause when nothing answers: questions meanwhile only make more unknowns.
const BREATH: Duration = Duration::from_millis(60);

/// The number of requests of a client that may wait at a time.
const MOST_WAITING: u32 = 64;

/// The number of a client's workers that hold places, and of those among them that hold for longer than a lease, and that wait.
const HOLDERS: u32 = 12;
const LONG_HOLDERS: u32 = 2;
const WAITING_HOLDERS: u32 = 4;

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
    /// The Envoy through which some processes ask, if there is one.
    #[serde(default)]
    pub envoy: Option<SocketAddr>,
}

impl Orders {
    /// The asking process. A dead client is replaced by one that asks in its way, if there are as many clients as doors.
    fn asker(&self) -> Asker {
        let doors = match self.envoy {
            Some(_) => &Door::WITH_ENVOY[..],
            None => &Door::WITHOUT_ENVOY[..],
        };
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
    let orders_to_end = Arc::new(OrdersToEnd::default());
    let heard = Arc::clone(&orders_to_end);
    let input = tokio::task::spawn_blocking(move || heard.read());
    // Connected, so that its first attempts are not unknown; but the server may be away when the client starts.
    let connect = async |knows_denials| loop {
        let builder = orders.place.backend().deadline(deadline).held_lease(LEASE);
        let builder = match knows_denials {
            true => builder,
            false => builder.ask_every_denial(),
        };
        match builder.connect().await {
            Ok(backend) => break Some(backend),
            Err(_away) if input.is_finished() => break None,
            Err(_away) => tokio::time::sleep(BREATH).await,
        }
    };
    let (Some(backend), Some(asking)) = (connect(true).await, connect(false).await) else {
        return Ok(());
    };
    let population = Population::of(orders.seed);
    let asker = orders.asker();
    let next = Arc::new(AtomicU64::new(0));
    let recorder = recorder(asker, Arc::clone(&next));
    let settler = Settler::of(&population, recorder, orders.seed, orders.flaw);
    let (flaw, envoy) = (orders.flaw, orders.envoy);
    let entrance = Entrance::open(asker.door, backend, population, flaw, settler, envoy).await?;
    if let Some(first) = entrance.instance() {
        say(&Line::Waiting(first.line(orders.number)))?;
    }
    let client = Arc::new(Client {
        entrance,
        asking,
        asker,
        orders: orders.clone(),
        next,
        ends: Arc::clone(&orders_to_end),
        is_silent: AtomicBool::new(false),
        line: Arc::new(Semaphore::new(MOST_WAITING as usize)),
    });
    let mut workers: Vec<_> = (0..orders.workers)
        .map(|worker| tokio::spawn(work(Arc::clone(&client), worker)))
        .collect();
    if asker.door != Door::Envoy {
        workers.extend(other_work(&client)?);
    }
    tokio::spawn(watch_the_machine());
    tokio::spawn(watch_the_leases(client.entrance.backend().clone()));
    input.await??;
    for worker in workers {
        worker.await??;
    }
    // All waiting requests have passed or left.
    let _all = client.line.acquire_many(MOST_WAITING).await?;
    let stats = client.entrance.backend().stats();
    say(&Line::End(HolderFigures {
        held: stats.held,
        lost_leases: stats.lost_leases,
        reclaimed: stats.reclaimed,
    }))?;
    Ok(())
}

/// Records when a lease is lost: an operator reads it while the process lives.
async fn watch_the_leases(backend: RedisBackend) -> std::io::Result<()> {
    let mut before = 0;
    loop {
        let lost = backend.stats().lost_leases;
        if lost > before {
            say(&Line::Lost(lost))?;
        }
        before = lost;
        tokio::time::sleep(BREATH).await;
    }
}

/// The work beside that of charges, which Envoy has no questions for.
fn other_work(client: &Arc<Client>) -> Result<Vec<JoinHandle<std::io::Result<()>>>> {
    let orders = &client.orders;
    let mut workers = Vec::new();
    let desk = PlaceDesk::of(client.entrance.backend())?;
    workers.extend(
        (0..HOLDERS).map(|holder| tokio::spawn(hold(Arc::clone(client), desk.clone(), holder))),
    );
    let gate = Gate::of(&client.asking, client.entrance.population(), orders.flaw)?;
    let gate = Arc::new(gate);
    workers.extend((0..KNOCKERS).map(|knocker| {
        let (client, gate) = (Arc::clone(client), Arc::clone(&gate));
        tokio::spawn(knock(client, gate, knocker))
    }));
    workers.extend((0..SPENDERS).map(|spender| tokio::spawn(spend(Arc::clone(client), spender))));
    workers.push(tokio::spawn(operate(Arc::clone(client), gate)));
    workers.push(tokio::spawn(replace_quotas(Arc::clone(client))));
    workers.push(tokio::spawn(restart(Arc::clone(client))));
    workers.push(tokio::spawn(order(Arc::clone(client))));
    Ok(workers)
}

/// The orders of the parent: a byte when no more places are to be held, and the end of the input when all is over.
#[derive(Debug, Default)]
struct OrdersToEnd {
    holds_nothing: AtomicBool,
    is_over: AtomicBool,
}

impl OrdersToEnd {
    fn read(&self) -> std::io::Result<()> {
        let mut input = std::io::stdin();
        let read = input.read(&mut [0]);
        self.holds_nothing.store(true, Ordering::Release);
        let read = read.and_then(|_| input.read_to_end(&mut Vec::new()));
        self.is_over.store(true, Ordering::Release);
        read.map(drop)
    }
}

struct Client {
    entrance: Entrance,
    /// The backend of callers that may be banned. It asks about every denial: the checker counts strikes and knocks by the server's
    /// word.
    asking: RedisBackend,
    asker: Asker,
    orders: Orders,
    next: Arc<AtomicU64>,
    ends: Arc<OrdersToEnd>,
    /// The places of requests that may wait while their worker goes on.
    line: Arc<Semaphore>,
    /// True if a request in the line was not answered, and no worker has noticed yet.
    is_silent: AtomicBool,
}

async fn work(client: Arc<Client>, worker: u32) -> std::io::Result<()> {
    let orders = &client.orders;
    let own = SHARED_CALLERS + orders.number * orders.workers + worker;
    let mut rng = Rng::with_seed(orders.seed ^ (u64::from(own) << 32));
    let held = Held::default();
    while !client.is_over() {
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
        let patience = client.patience(&mut rng, &asked);
        let verb = client.verb(&mut rng, asked);
        let asked = verb.asked();
        let may_wait = !population.longest_wait(asked).is_zero();
        let is_silent = if may_wait && !is_own && client.entrance.answers_after_the_wait() {
            client.ask_in_line(&held, verb, patience).await;
            client.is_silent.swap(false, Ordering::Relaxed)
        } else {
            let (outcome, taken) = client.ask(verb.clone(), None, patience).await?;
            let is_replaced = |asked: &AskedCharge| population.is_replaced(asked.budget.policy);
            if is_own
                // A promise is one by the quota of then.
                && !asked.iter().any(is_replaced)
                && let Some((promised_us, wait)) = promise(asked, &outcome)
            {
                tokio::time::sleep(wait).await;
                let patience = Patience::default();
                client.ask(verb, Some(promised_us), patience).await?;
            }
            client.keep(&mut rng, &held, taken).await;
            outcome.is_silence()
        };
        client.settle(&mut rng, &held)?;
        if rng.u8(0..60) == 0 {
            client.reset(&mut rng, caller).await?;
        }
        pause(&mut rng, orders.pause_us, is_silent).await;
    }
    Ok(())
}

/// The pause of a worker after a request, which is longer while nothing answers.
async fn pause(rng: &mut Rng, longest_us: u64, is_silent: bool) {
    let pause = Duration::from_micros(rng.u64(0..=longest_us));
    let breath = if is_silent { BREATH } else { Duration::ZERO };
    tokio::time::sleep(pause + breath).await;
}

/// Holds one place after the other.
async fn hold(client: Arc<Client>, desk: PlaceDesk, holder: u32) -> std::io::Result<()> {
    let orders = &client.orders;
    let mut rng = Rng::with_seed(orders.seed ^ (u64::from(orders.number * HOLDERS + holder) << 16));
    let wants = |places: &Places| match holder {
        0..LONG_HOLDERS => places.are_long(),
        _ if holder < LONG_HOLDERS + WAITING_HOLDERS => places.are_waited_for(),
        _ => !places.are_long() && !places.are_waited_for(),
    };
    let places: Vec<_> = Places::all().into_iter().filter(wants).collect();
    let holds_nothing = || client.ends.holds_nothing.load(Ordering::Acquire);
    while !holds_nothing() {
        let number = client.next.fetch_add(1, Ordering::Relaxed);
        let wanted = &places[rng.usize(0..places.len())];
        let said = |hold| say(&Line::Hold(number, hold));
        let grant = wanted
            .hold(&desk, orders.number, &mut rng, now_us, holds_nothing, said)
            .await?;
        let pause = match grant {
            Grant::Held => Duration::from_micros(rng.u64(0..=orders.pause_us)),
            // Long holds seldom end.
            Grant::Denied if wanted.are_long() => 10 * BREATH,
            Grant::Denied | Grant::Unknown => BREATH,
        };
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// A charge that may be corrected.
type OpenCharge = (Budget, VerdictRecord, Receipt);

/// The charges of a worker that may be corrected some day.
type Held = Arc<Mutex<Vec<OpenCharge>>>;

impl Client {
    fn is_over(&self) -> bool {
        self.ends.is_over.load(Ordering::Acquire)
    }

    /// Asks, and does not wait for the answer, which comes when it is the request's turn.
    async fn ask_in_line(self: &Arc<Self>, held: &Held, verb: Verb, patience: Patience) {
        let (client, held, place) = (Arc::clone(self), Arc::clone(held), self.place().await);
        tokio::spawn(async move {
            let (outcome, taken) = client.ask(verb, None, patience).await?;
            if outcome.is_silence() {
                client.is_silent.store(true, Ordering::Relaxed);
            }
            lock(&held).extend(taken);
            drop(place);
            Ok::<_, std::io::Error>(())
        });
    }

    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.line).acquire_owned().await.ok()
    }

    /// Keeps charges to correct them some day. A process that asks the backend itself waits by itself: some of its requests
    /// leave before their turn, and some are corrected before it.
    async fn keep(self: &Arc<Self>, rng: &mut Rng, held: &Held, taken: Vec<OpenCharge>) {
        let wait_us = taken.iter().map(|(_, said, _)| said.wait_us).max();
        let wait_us = wait_us.filter(|us| *us > 0 && self.asker.door == Door::Backend);
        let (Some(wait_us), fate @ 1..) = (wait_us, rng.u8(0..5)) else {
            lock(held).extend(taken);
            return;
        };
        let leaves = fate <= 2;
        let us = if leaves { rng.u64(0..wait_us) } else { wait_us };
        let (client, held, place) = (Arc::clone(self), Arc::clone(held), self.place().await);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(us)).await;
            if leaves {
                for charge in taken {
                    let all = charge.1.taken;
                    client.refund(charge, all)?;
                }
            } else {
                lock(&held).extend(taken);
            }
            drop(place);
            Ok::<_, std::io::Error>(())
        });
    }

    async fn ask(
        &self,
        verb: Verb,
        promised_us: Option<u64>,
        patience: Patience,
    ) -> std::io::Result<(Outcome, Vec<OpenCharge>)> {
        let instance = self.entrance.instance();
        let limiter = instance.as_ref().map_or(0, Instance::number);
        let most_us = patience.waits_at_most_us();
        let number = self.begin_with(limiter, verb.clone(), promised_us, most_us)?;
        let question = Question {
            process: self.orders.number,
            number,
        };
        let asking = (self.entrance).ask(instance.as_ref(), &verb, patience, question);
        let (heard, receipts) = asking.await;
        end(number, &heard)?;
        let mut taken = Vec::new();
        if let Outcome::Decided(decided) = &heard.outcome {
            let said = verb.asked().iter().zip(&decided.verdicts);
            let said = said.filter(|(_, said)| said.taken > 0);
            let budgets = said.map(|(asked, said)| (asked.budget, *said));
            let population = self.entrance.population();
            taken.extend(budgets.zip(receipts).map(|((budget, said), it)| {
                let budget = population.budget_by(budget, it.quota());
                (budget, said, it)
            }));
        }
        Ok((heard.outcome, taken))
    }

    /// Corrects some of the charges, sooner or later.
    fn settle(&self, rng: &mut Rng, held: &Held) -> std::io::Result<()> {
        loop {
            let mut held = lock(held);
            if held.is_empty() || held.len() <= MOST_HELD && rng.u8(0..10) > 0 {
                return Ok(());
            }
            let number = rng.usize(0..held.len());
            let charge = held.swap_remove(number);
            drop(held);
            match rng.u8(0..8) {
                0..=2 => {
                    let n = rng.u64(1..=charge.1.taken);
                    self.refund(charge, n)?;
                }
                3..=4 => {
                    let (budget, _, receipt) = charge;
                    let n = rng.u64(1..=(receipt.quota().capacity() / 4).clamp(1, 12));
                    let number = self.begin(Verb::Debit(budget, n))?;
                    self.entrance.backend().debit(&receipt, n);
                    end(number, &Outcome::Told.into())?;
                }
                // The others cost as much as expected.
                _ => {}
            }
        }
    }

    fn refund(&self, (budget, said, receipt): OpenCharge, n: u64) -> std::io::Result<()> {
        let number = self.begin(Verb::Credit(budget, said, n))?;
        self.entrance.backend().refund(receipt, n);
        end(number, &Outcome::Told.into())
    }

    async fn reset(&self, rng: &mut Rng, caller: u32) -> std::io::Result<()> {
        let population = self.entrance.population();
        let policy = population.resettable(rng);
        let number = self.begin(Verb::Reset(Budget { policy, caller }))?;
        let (scope, key) = (population.scope(policy), population.key(caller));
        let outcome = match self.entrance.backend().admin().reset(scope, &key).await {
            Ok(()) => Outcome::Reset,
            Err(error) => Outcome::of_error(&error),
        };
        end(number, &outcome.into())
    }

    /// Records an action before it is done.
    fn begin(&self, verb: Verb) -> std::io::Result<u64> {
        self.begin_with(0, verb, None, None)
    }

    fn begin_with(
        &self,
        limiter: u32,
        verb: Verb,
        promised_us: Option<u64>,
        waits_at_most_us: Option<u64>,
    ) -> std::io::Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let unheard = Outcome::Unknown(String::new());
        let attempt = Attempt {
            limiter,
            waits_at_most_us,
            promised_us,
            question: (self.asker.door == Door::Envoy).then_some(number),
            ..Attempt::plain(self.asker, verb, now_us(), 0, unheard)
        };
        say(&Line::Ask(number, Box::new(attempt)))?;
        Ok(number)
    }
}

/// Records what the service of this process does by itself.
fn recorder(asker: Asker, next: Arc<AtomicU64>) -> Recorder {
    Arc::new(move |verb, act| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let unheard = Outcome::Unknown(String::new());
        let attempt = Attempt::plain(asker, verb, now_us(), 0, unheard);
        say(&Line::Ask(number, Box::new(attempt)))?;
        act();
        end(number, &Outcome::Told.into())
    })
}

fn end(number: u64, heard: &AttemptAnswer) -> std::io::Result<()> {
    say(&Line::Hear(number, now_us(), heard.clone()))
}

/// The time at which a denied attempt should pass by the backend's clock, and the time from now until then.
fn promise(asked: &[AskedCharge], outcome: &Outcome) -> Option<(u64, Duration)> {
    let Outcome::Decided(DecisionRecord {
        admitted, verdicts, ..
    }) = outcome
    else {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
