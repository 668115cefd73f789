//! Calls with held charges, from their departure to their end, and what they change in the books of this process.

use std::mem;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Unit, Verdict};

use crate::holder::books::{Books, Ticket};
use crate::holder::places::Places;
use crate::holder::{
    Caller, Held, Holder, NO_ENTRY, NOT_YET, PendingRelease, minus, plus, random_id,
};
use crate::job::Job;
use crate::name::Name;
use crate::wire::{Outcome, Request, Work};

impl Holder {
    /// Makes a release of a held charge certain to leave the books, whatever becomes of it. Other requests stay as they are.
    pub(crate) fn owes(self: &Arc<Self>, mut request: Request) -> Request {
        if let Work::Credit(receipt, n) = &request.work
            && receipt.scope().unit() == Unit::Held
            && let Some(name) = request.names.first()
        {
            request.owed = Some(PendingRelease {
                holder: Arc::clone(self),
                name: name.clone(),
                units: (*n).min(receipt.cost()),
                left_in: AtomicU64::new(NOT_YET),
                entry: AtomicU64::new(NO_ENTRY),
            });
        }
        request
    }

    /// Enters in the books what a call is about to do. Takes out the tellings for which there is nothing to say at present, and
    /// puts the others last, because they say nothing about what the call itself changes. `None` if nothing of it is held.
    pub(crate) fn departs(self: &Arc<Self>, jobs: &mut Vec<Job>) -> Option<Departure> {
        if !jobs.iter().any(|job| job.request.concerns_a_holder()) {
            return None;
        }
        let mut unsaid = Vec::new();
        let departure = self.enter(jobs, &mut unsaid);
        // The jobs are dropped after the books are unlocked, because dropping them locks the books.
        drop(unsaid);
        departure
    }

    fn enter(self: &Arc<Self>, jobs: &mut Vec<Job>, unsaid: &mut Vec<Job>) -> Option<Departure> {
        let mut identity = self.identity();
        if identity.process != process::id() {
            // A child of a fork. It has what its parent had, but holds nothing of it.
            (identity.id, identity.process) = (random_id(), process::id());
            identity.books = Books::default();
            identity.places = Places::default();
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
        let Ticket { generation, number } = books.departs();
        let mut names = Vec::new();
        for job in jobs.iter() {
            let request = &job.request;
            if let Some(owed) = &request.owed {
                let entry = books.count(&owed.name, generation, minus(owed.units));
                owed.entry
                    .store(entry.unwrap_or(NO_ENTRY), Ordering::Relaxed);
                owed.left_in.store(generation, Ordering::Relaxed);
            }
            match &request.work {
                Work::Decide(..) => {
                    let held = request.held().filter_map(|index| request.names.get(index));
                    names.extend(held.cloned());
                }
                Work::Tell(telling) => {
                    let entry = books.entry(&telling.name).unwrap_or(NO_ENTRY);
                    telling.entry.store(entry, Ordering::Relaxed);
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
            number,
            holder: Arc::clone(self),
            names,
            is_over: false,
        })
    }
}

/// A call with held charges, from its departure to its end. Dropped without an end, its outcome is unknown.
#[derive(Debug)]
pub(crate) struct Departure {
    caller: Caller,
    /// Its number among the calls of this process.
    number: u64,
    holder: Arc<Holder>,
    /// The keys that it may change.
    names: Vec<Name>,
    is_over: bool,
}

impl Departure {
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The places of this process's entries, as far as they are known, for the keys of a call.
    pub(crate) fn places(&self, keys: &[&[u8]]) -> Vec<u16> {
        self.holder.identity().places.of(keys)
    }

    /// Enters what the call did. `held` tells what was found under each key, and `key` which of them a request names, by the
    /// positions of both.
    pub(crate) fn answered(
        mut self,
        jobs: &[Job],
        outcomes: &[(usize, Outcome)],
        held: &[Option<Held>],
        key: impl Fn(usize, usize) -> Option<usize>,
    ) {
        let generation = self.caller.generation;
        let seen = |request, charge| held.get(key(request, charge)?).copied().flatten();
        let is_missing = |held: Held| !held.is_there;
        // A release comes after its acquire, so the server has lost an acquire.
        let is_short = |held: Held| held.units < 0;
        let entry =
            |left: &AtomicU64| Some(left.load(Ordering::Relaxed)).filter(|it| *it != NO_ENTRY);
        // By key: several requests may name one.
        let reclaimed = held.iter().flatten().map(|held| held.reclaimed).sum();
        if reclaimed > 0 {
            self.holder
                .reclaimed
                .fetch_add(reclaimed, Ordering::Relaxed);
        }
        let mut has_twin = false;
        let mut identity = self.holder.identity();
        let present = identity.books.generation();
        // Under another name since, the process has other entries.
        let is_ours = identity.id == self.caller.holder;
        let mut lost_leases = 0;
        let mut in_doubt = false;
        for (position, outcome) in outcomes {
            let Some(request) = jobs.get(*position).map(|job| &job.request) else {
                continue;
            };
            // Also of a request that failed: a call is void only to a process that has given it up, and this one has not.
            let tells = matches!(request.work, Work::Tell(_));
            let mut found = (0..request.names.len()).filter_map(|index| seen(*position, index));
            has_twin |= found.any(|held| {
                let is_behind = held.generation > present;
                is_behind || (tells && held.is_told && held.generation == generation)
            });
            for (index, name) in request.names.iter().enumerate() {
                if let Some(place) = seen(*position, index).and_then(|held| held.place) {
                    identity.places.learn(name, place);
                }
            }
            match (&request.work, outcome) {
                (Work::Decide(..), Ok(Some(decision))) => {
                    for index in request.held() {
                        let verdict = decision.verdicts().get(index);
                        let taken = verdict.map_or(0, Verdict::taken);
                        let Some(name) = request.names.get(index) else {
                            continue;
                        };
                        let found = seen(*position, index);
                        let entry = identity.books.entry_of(name, self.number);
                        let is_lost =
                            found.is_some_and(is_missing) && identity.books.is_lost(name, entry);
                        lost_leases += u64::from(is_lost);
                        if is_lost || found.is_some_and(is_short) {
                            // Otherwise a release of a lost place would count against a place that is acquired later.
                            identity.books.doubt(name.clone());
                            in_doubt = true;
                        }
                        if taken > 0 {
                            identity.books.count(name, generation, plus(taken));
                            if is_ours {
                                identity.books.is_entered(name);
                            }
                        }
                    }
                }
                (Work::Tell(telling), Ok(_)) => {
                    let (name, found) = (&telling.name, seen(*position, 0));
                    let is_lost = found.is_some_and(is_missing)
                        && identity.books.is_lost(name, entry(&telling.entry));
                    lost_leases += u64::from(is_lost);
                    if is_ours {
                        identity.books.has_told(name);
                    }
                    let agrees = |held: Held| held.agrees(generation, telling.units());
                    if is_lost || !found.is_none_or(agrees) {
                        // A telling of a generation that begins after the loss leaves nothing out.
                        identity.books.doubt(name.clone());
                        in_doubt = true;
                    }
                }
                _ => {
                    if let (Some(owed), Some(found)) = (&request.owed, seen(*position, 0))
                        && (is_missing(found) || is_short(found))
                    {
                        // The release changed nothing, and a telling beside it does not know of it.
                        let is_lost = is_missing(found)
                            && identity.books.is_lost(&owed.name, entry(&owed.entry));
                        lost_leases += u64::from(is_lost);
                        identity.books.doubt(owed.name.clone());
                        in_doubt = true;
                    }
                }
            }
        }
        if has_twin && identity.id == self.caller.holder {
            // Another process writes as this one: a copy of its memory runs elsewhere.
            identity.id = random_id();
            identity.books.is_renamed();
            identity.places = Places::default();
            self.holder.twins.fetch_add(1, Ordering::Relaxed);
            self.holder.doubt.notify_one();
        }
        drop(identity);
        let counter = &self.holder.lost_leases;
        counter.fetch_add(lost_leases, Ordering::Relaxed);
        if in_doubt {
            self.holder.doubt.notify_one();
        }
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
        for job in jobs {
            if let Work::Tell(telling) = &job.request.work {
                telling.units.store(NOT_YET, Ordering::Relaxed);
            }
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
