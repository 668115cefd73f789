//! How do I ask Redis less often?
//!
//! ```text
//! cargo run --example leased_budget
//! ```
//!
//! [`Leases`] is a wrapper around a backend. It takes many units of a caller's budget in one call, and spends them here, one request
//! after the other. Two limiters stand for two processes, and a backend in memory stands for Redis.

#![allow(clippy::print_stdout, reason = "a program that tells what it does")]

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate::{
    Answer, Backend, BanList, Capabilities, Capability, Charge, CheckError, Clock, ConfigError,
    Decision, Figure, Key, Limiter, MemoryBackend, Mode, Policy, Quota, Receipt, Scope,
    SystemClock, Timestamp, Verdict,
};

/// The most callers with a lease. The requests of all others ask the backend.
const MOST_LEASES: usize = 10_000;

/// A backend that is asked for `size` units of a caller's budget at a time.
///
/// A lease serves calls of one enforced charge of a plain quota. All other calls go to the backend as they are.
///
/// # The error
///
/// * Each unit is taken from the backend before it is spent, so that no more units are spent than were taken.
/// * A unit is spent up to a term after it was taken. So over any time each process admits up to `size` more requests of a caller
///   than the backend alone.
/// * Units that one process holds are missing to the others: up to `size` for each caller, until the lease ends. A lease ends with
///   the first call after its term, with a larger request of its caller, or with the process. Its rest goes back.
/// * A process that dies keeps the rest of its leases. The budget fills as ever.
/// * What remains, as told by headers, is what remained when the lease began, less what this process has spent.
#[derive(Debug)]
pub struct Leases {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    size: u64,
    term: Duration,
    open: Arc<Mutex<OpenLeases>>,
    asked: AtomicU64,
}

type Name = (Scope, Key);

#[derive(Debug, Default)]
struct OpenLeases {
    by_name: HashMap<Name, Lease>,
    /// The leases in the order in which they end. One that was replaced stands here twice.
    ends: VecDeque<(Timestamp, Name)>,
}

#[derive(Debug)]
struct Lease {
    /// Gives the rest back: all that was taken.
    receipt: Receipt,
    /// The units that are not spent.
    left: u64,
    /// The rest of the budget without this lease, when it began.
    elsewhere: u64,
    reset_after: Duration,
    ends: Timestamp,
}

impl Lease {
    /// The lease that was granted, unless nothing was.
    fn of(charge: &Charge<'_>, granted: &Decision, ends: Timestamp) -> Option<Self> {
        let verdict = granted.verdicts().first()?;
        Some(Self {
            receipt: Receipt::of(charge, verdict, granted.at())?,
            left: verdict.taken(),
            elsewhere: verdict.remaining(),
            reset_after: verdict.reset_after(),
            ends,
        })
    }

    /// Spends a charge here, if enough is left.
    fn spend(&mut self, charge: &Charge<'_>) -> Option<Verdict> {
        self.left = self.left.checked_sub(charge.cost)?;
        let remaining = self.elsewhere + self.left;
        Some(Verdict::allowed(charge, charge.cost, remaining).resetting_after(self.reset_after))
    }

    /// Takes units back that turned out not to be needed, at most what was spent.
    fn take_back(&mut self, n: u64) {
        self.left += n.min(self.receipt.cost() - self.left);
    }

    fn end(self, backend: &dyn Backend) {
        backend.credit(self.receipt, self.left);
    }
}

impl OpenLeases {
    fn end_before(&mut self, now: Timestamp, backend: &dyn Backend) {
        while self.ends.front().is_some_and(|(ends, _)| *ends <= now) {
            if let Some((ends, name)) = self.ends.pop_front()
                && self
                    .by_name
                    .get(&name)
                    .is_some_and(|lease| lease.ends == ends)
                && let Some(lease) = self.by_name.remove(&name)
            {
                lease.end(backend);
            }
        }
    }
}

impl Leases {
    /// Leases of `size` units, each for a `term` of this clock.
    pub fn around(backend: Arc<dyn Backend>, clock: impl Clock, size: u64, term: Duration) -> Self {
        Self {
            backend,
            clock: Arc::new(clock),
            size,
            term,
            open: Arc::default(),
            asked: AtomicU64::new(0),
        }
    }

    /// The calls that were decided by the backend.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    fn open(&self) -> MutexGuard<'_, OpenLeases> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, a turn, a strike and an id belong to one request, and cannot be taken ahead of it.
    fn may_lease(&self, charge: &Charge<'_>) -> bool {
        let quota = charge.quota;
        let is_plain = !quota.is_held() && !quota.waits() && !quota.is_ban() && !quota.is_once();
        let can_grant = self.backend.capabilities().has(Capability::UpTo);
        can_grant && is_plain && charge.mode == Mode::Enforce && charge.cost > 0
    }

    /// Asks for a lease that pays for this charge too. If the backend has less, the lease is smaller; if it has not even this
    /// charge, it says when.
    fn ask(&self, charge: &Charge<'_>, name: Name, now: Timestamp) -> Answer<Decision> {
        let (quota, cost, ends) = (*charge.quota, charge.cost, now.saturating_add(self.term));
        let whole = Charge {
            cost: cost.max(self.size),
            ..*charge
        };
        self.asked.fetch_add(1, Ordering::Relaxed);
        let granted = self.backend.decide_up_to(&[whole], cost);
        let (open, backend) = (Arc::clone(&self.open), Arc::clone(&self.backend));
        granted.map(move |result| {
            let granted = result?;
            let (scope, key) = name.clone();
            let charge = Charge {
                scope,
                quota: &quota,
                key: &key,
                cost,
                mode: Mode::Enforce,
            };
            let Some(mut lease) = Lease::of(&charge, &granted, ends) else {
                return Ok(granted);
            };
            let verdict = lease.spend(&charge);
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            open.ends.push_back((ends, name.clone()));
            // Another request may have asked at the same time, and what is left of an old lease may have been too little.
            if let Some(earlier) = open.by_name.insert(name, lease) {
                earlier.end(&*backend);
            }
            Ok(Decision::new(granted.at(), verdict.is_some(), verdict))
        })
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, lease) in open.by_name.drain() {
            lease.end(&*self.backend);
        }
    }
}

impl Backend for Leases {
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        let now = self.clock.now();
        let mut open = self.open();
        open.end_before(now, &*self.backend);
        if let [charge] = charges
            && self.may_lease(charge)
        {
            let name = (charge.scope, charge.key.clone().compact());
            let is_known = open.by_name.contains_key(&name);
            if let Some(lease) = open.by_name.get_mut(&name)
                && let Some(verdict) = lease.spend(charge)
            {
                return Answer::now(Ok(Decision::new(now, true, [verdict])));
            }
            if is_known || open.by_name.len() < MOST_LEASES {
                drop(open);
                return self.ask(charge, name, now);
            }
        }
        drop(open);
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.backend.decide(charges)
    }

    /// A charge that a lease has paid goes back into the lease, since the backend took it under another receipt.
    fn credit(&self, receipt: Receipt, n: u64) {
        let name = (receipt.scope(), receipt.key().clone());
        match self.open().by_name.get_mut(&name) {
            Some(lease) => lease.take_back(n.min(receipt.cost())),
            None => self.backend.credit(receipt, n),
        }
    }

    /// The budget is full then, and the units of the lease are no longer counted.
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        let _forgotten = self.open().by_name.remove(&(scope, key.clone()));
        self.backend.reset(scope, key)
    }

    fn decide_up_to(&self, charges: &[Charge<'_>], at_least: u64) -> Answer<Decision> {
        self.backend.decide_up_to(charges, at_least)
    }

    fn debit(&self, receipt: &Receipt, n: u64) {
        self.backend.debit(receipt, n);
    }

    fn assume(&self, charge: &Charge<'_>) -> bool {
        self.backend.assume(charge)
    }

    fn bans(&self, scope: Scope) -> Answer<BanList> {
        self.backend.bans(scope)
    }

    fn place(&self) -> Option<String> {
        self.backend.place()
    }

    fn figures(&self, tell: &mut dyn FnMut(Figure, u64)) {
        self.backend.figures(tell);
    }

    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }
}

/// Two processes that share a budget of 100 a day, in leases of 10.
struct Fleet {
    leases: [Arc<Leases>; 2],
    processes: [Limiter; 2],
}

fn limiter(backend: impl Backend) -> Result<Limiter, ConfigError> {
    let policy = Policy::new("api", Quota::per_day(100));
    Limiter::builder().policy(policy).backend(backend).build()
}

impl Fleet {
    fn around(shared: &Arc<dyn Backend>) -> Result<Self, ConfigError> {
        let term = Duration::from_secs(60);
        let leases = [(); 2].map(|()| {
            let leases = Leases::around(Arc::clone(shared), SystemClock::new(), 10, term);
            Arc::new(leases)
        });
        let [one, other] = &leases;
        let processes = [limiter(Arc::clone(one))?, limiter(Arc::clone(other))?];
        Ok(Self { leases, processes })
    }

    /// Alice asks both in turn. Returns the number of her requests that pass.
    async fn ask(&self, requests: usize) -> Result<usize, CheckError> {
        let mut admitted = 0;
        for process in self.processes.iter().cycle().take(requests) {
            admitted += usize::from(process.check("api", "alice").await?.is_allowed());
        }
        Ok(admitted)
    }

    fn calls(&self) -> u64 {
        self.leases.iter().map(|leases| leases.asked()).sum()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let shared: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    let others = limiter(Arc::clone(&shared))?;
    let left = async || {
        let probe = others.check("api", "alice").up_to(100).probe().await?;
        Ok::<_, CheckError>(probe.remaining())
    };

    let fleet = Fleet::around(&shared)?;
    let admitted = fleet.ask(74).await?;
    let calls = fleet.calls();
    println!("{admitted} of 74 requests passed, with {calls} calls to the backend");

    // Each process has spent seven of its last ten.
    println!("26 are left; the others see {}", left().await?);
    drop(fleet);
    println!("the processes have ended: the others see {}", left().await?);

    let fleet = Fleet::around(&shared)?;
    println!("{} of 40 more requests passed", fleet.ask(40).await?);
    Ok(())
}
