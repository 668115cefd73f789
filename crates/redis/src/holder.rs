//! What this process holds under limits on how many at once, and how the fleet learns of it.
//!
//! Each key in Redis has one entry for each process that holds something there, see `lua/held.lua`. Acquires and releases change
//! it as they come. They may be lost, be late, or be answered to nobody, and a server may lose what it knew. So the process keeps
//! books of its own, and tells each key's entry what it holds, three times in each lease.
//!
//! The books only ever say what is known. Calls belong to generations. A new one begins with each telling; once every call of the
//! earlier ones has been answered or given up, what they come to is known exactly, and that is what is told. A call that is under
//! way is of the present generation: what it does is counted beside what is told, whichever comes first.

mod books;
mod heartbeat;
#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
mod orders;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_core::{Unit, Verdict};

use crate::job::Job;
use crate::name::Name;
use crate::wire::{Caller, Held, Outcome, Request, Work};

use books::Books;
pub(crate) use heartbeat::Heartbeat;

/// The time for which a process holds without saying so, unless set: what a process that died held comes back after it.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A process, as others see it in what it holds. One for each backend.
pub(crate) struct Holder {
    lease: Duration,
    books: Mutex<Identity>,
    /// Rung when a call was given up, so that what it did is unknown until its key has been told.
    doubt: Notify,
    /// Rung when the last call of the earlier generations has ended.
    settled: Notify,
    tells: AtomicU64,
    lost_leases: AtomicU64,
    twins: AtomicU64,
}

struct Identity {
    id: [u8; 8],
    process: u32,
    books: Books,
}

/// The figures of a holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) held: u64,
    pub(crate) tells: u64,
    pub(crate) lost_leases: u64,
    pub(crate) twins: u64,
}

impl Holder {
    pub(crate) fn new(lease: Duration) -> Arc<Self> {
        Arc::new(Self {
            lease,
            books: Mutex::new(Identity {
                id: random_id(),
                process: process::id(),
                books: Books::default(),
            }),
            doubt: Notify::new(),
            settled: Notify::new(),
            tells: AtomicU64::new(0),
            lost_leases: AtomicU64::new(0),
            twins: AtomicU64::new(0),
        })
    }

    pub(crate) fn figures(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            held: self.identity().books.held(),
            tells: read(&self.tells),
            lost_leases: read(&self.lost_leases),
            twins: read(&self.twins),
        }
    }

    /// Makes a release of a held charge certain to leave the books, whatever becomes of it. Other requests stay as they are.
    pub(crate) fn owes(self: &Arc<Self>, mut request: Request) -> Request {
        if let Work::Credit(receipt, n) = &request.work
            && receipt.scope().unit() == Unit::Held
            && let Some(name) = request.names.first()
        {
            request.owed = Some(Owed {
                holder: Arc::clone(self),
                name: name.clone(),
                units: (*n).min(receipt.cost()),
                left_in: AtomicU64::new(NOT_YET),
            });
        }
        request
    }

    /// Enters what is held without a decision. The key is told of it as soon as a server answers.
    pub(crate) fn assumes(&self, name: Name, units: u64) {
        self.enters(name, plus(units));
    }

    /// Enters the end of that. No release is sent, since nobody knows whether the key has been told by then: it is told again.
    pub(crate) fn no_longer_assumes(&self, name: Name, units: u64) {
        self.enters(name, minus(units));
    }

    fn enters(&self, name: Name, units: i64) {
        let mut identity = self.identity();
        let generation = identity.books.generation();
        identity.books.count(&name, generation, units);
        identity.books.doubt(name);
        drop(identity);
        self.doubt.notify_one();
    }

    /// Enters in the books what a call is about to do. Takes out the tellings for which there is nothing to say at present, and
    /// puts the others last, because they say nothing about what the call itself changes. `None` if nothing of it is held.
    pub(crate) fn departs(self: &Arc<Self>, jobs: &mut Vec<Job>) -> Option<Departure> {
        if !jobs.iter().any(|job| job.request.concerns_a_holder()) {
            return None;
        }
        let mut unsaid = Vec::new();
        let departure = self.enter(jobs, &mut unsaid);
        // Not before the books are closed again, which they lock.
        drop(unsaid);
        departure
    }

    fn enter(self: &Arc<Self>, jobs: &mut Vec<Job>, unsaid: &mut Vec<Job>) -> Option<Departure> {
        let mut identity = self.identity();
        if identity.process != process::id() {
            // A child of a fork. It has what its parent had, but holds nothing of it.
            (identity.id, identity.process) = (random_id(), process::id());
            identity.books = Books::default();
        }
        let books = &mut identity.books;
        let is_unsaid = |job: &mut Job| match &job.request.work {
            Work::Tell(telling) => match books.known(&telling.name) {
                Some(units) => {
                    telling.units.store(units, Ordering::Relaxed);
                    false
                }
                None => true,
            },
            _ => false,
        };
        unsaid.extend(jobs.extract_if(.., is_unsaid));
        if jobs.is_empty() {
            return None;
        }
        jobs.sort_by_key(|job| matches!(job.request.work, Work::Tell(_)));
        let generation = books.departs();
        let mut names = Vec::new();
        for job in jobs.iter() {
            let request = &job.request;
            if let Some(owed) = &request.owed {
                books.count(&owed.name, generation, minus(owed.units));
                owed.left_in.store(generation, Ordering::Relaxed);
            }
            match &request.work {
                Work::Decide(_) => {
                    let held = request.held().filter_map(|index| request.names.get(index));
                    names.extend(held.cloned());
                }
                Work::Tell(_) => {
                    self.tells.fetch_add(1, Ordering::Relaxed);
                    names.extend(request.names.first().cloned());
                }
                _ if request.owed.is_some() => names.extend(request.names.first().cloned()),
                _ => {}
            }
        }
        Some(Departure {
            caller: Caller {
                holder: identity.id,
                generation,
                lease_ms: u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX),
            },
            holder: Arc::clone(self),
            names,
            is_over: false,
        })
    }

    fn identity(&self) -> MutexGuard<'_, Identity> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the keys, which are identities of callers.
        f.debug_struct("Holder")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// A call with held charges, from its departure to its end. Dropped without an end, its outcome is unknown.
#[derive(Debug)]
pub(crate) struct Departure {
    caller: Caller,
    holder: Arc<Holder>,
    /// The keys that it may change.
    names: Vec<Name>,
    is_over: bool,
}

impl Departure {
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Enters what the call did. `seen` tells what was found of this process under a key of a request, by their positions.
    pub(crate) fn answered(
        mut self,
        jobs: &[Job],
        outcomes: &[(usize, Outcome)],
        seen: impl Fn(usize, usize) -> Option<Held>,
    ) {
        let generation = self.caller.generation;
        let mut newest = 0;
        let mut identity = self.holder.identity();
        for (position, outcome) in outcomes {
            let Some(request) = jobs.get(*position).map(|job| &job.request) else {
                continue;
            };
            match (&request.work, outcome) {
                (Work::Decide(_), Ok(Some(decision))) => {
                    for index in request.held() {
                        let verdict = decision.verdicts().get(index);
                        let taken = verdict.map_or(0, Verdict::taken);
                        if let (Some(name), true) = (request.names.get(index), taken > 0) {
                            identity.books.count(name, generation, plus(taken));
                        }
                        newest =
                            newest.max(seen(*position, index).map_or(0, |held| held.generation));
                    }
                }
                (Work::Tell(telling), Ok(_)) => {
                    let is_lost = |held: &Held| !held.is_there && telling.units() > 0;
                    if seen(*position, 0).as_ref().is_some_and(is_lost) {
                        self.holder.lost_leases.fetch_add(1, Ordering::Relaxed);
                    }
                }
                _ => {}
            }
        }
        if newest > identity.books.generation() && identity.id == self.caller.holder {
            // Somebody else writes as this process: a copy of its memory runs elsewhere.
            identity.id = random_id();
            identity.books.doubt_all();
            self.holder.twins.fetch_add(1, Ordering::Relaxed);
            self.holder.doubt.notify_one();
        }
        drop(identity);
        self.is_over = true;
        self.ends();
    }

    /// Takes back what was entered: the call has not run. Its jobs go on, or fail.
    pub(crate) fn has_not_run(mut self, jobs: &[Job]) {
        let mut identity = self.holder.identity();
        for owed in jobs.iter().filter_map(|job| job.request.owed.as_ref()) {
            identity
                .books
                .count(&owed.name, self.caller.generation, plus(owed.units));
            owed.left_in.store(NOT_YET, Ordering::Relaxed);
        }
        drop(identity);
        self.is_over = true;
        self.ends();
    }

    fn ends(&self) {
        let mut identity = self.holder.identity();
        if identity.books.ends(self.caller.generation) {
            drop(identity);
            self.holder.settled.notify_one();
        }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut identity = self.holder.identity();
        for name in mem::take(&mut self.names) {
            identity.books.doubt(name);
        }
        drop(identity);
        self.ends();
        self.holder.doubt.notify_one();
    }
}

/// The generation of a release that no call has taken along.
const NOT_YET: u64 = u64::MAX;

/// A release that has to leave the books: with the call that takes it along, or, if none ever does, when it is dropped. Then the
/// next telling releases it.
#[derive(Debug)]
pub(crate) struct Owed {
    holder: Arc<Holder>,
    name: Name,
    units: u64,
    left_in: AtomicU64,
}

impl Drop for Owed {
    fn drop(&mut self) {
        if *self.left_in.get_mut() == NOT_YET {
            let mut identity = self.holder.identity();
            let generation = identity.books.generation();
            identity
                .books
                .count(&self.name, generation, minus(self.units));
            identity.books.doubt(mem::take(&mut self.name));
            drop(identity);
            self.holder.doubt.notify_one();
        }
    }
}

/// What a key is told. At most one telling of each key is on its way.
#[derive(Debug)]
pub(crate) struct Telling {
    holder: Arc<Holder>,
    name: Name,
    units: AtomicU64,
}

impl Telling {
    /// What all calls of earlier generations hold, as of the departure.
    pub(crate) fn units(&self) -> u64 {
        self.units.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
impl Telling {
    /// A telling of this number.
    pub(crate) fn of(units: u64) -> Self {
        Self {
            holder: Holder::new(LEASE),
            name: Name::new(),
            units: AtomicU64::new(units),
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let mut identity = self.holder.identity();
        identity.books.was_told(&self.name);
    }
}

fn plus(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

fn minus(units: u64) -> i64 {
    -plus(units)
}

/// A name that no other process has.
fn random_id() -> [u8; 8] {
    // The standard library seeds it at random; the process and the time tell apart what a fork or a copied machine shares.
    let random = RandomState::new();
    random
        .hash_one((process::id(), std::time::SystemTime::now()))
        .to_le_bytes()
}
