//! The holdings of this process under limits on how many at once, and how the fleet learns of them.
//!
//! Each key in Redis has one entry for each process that holds something there, see `lua/held.lua`. Acquires and releases change
//! it as they come. They may be lost, be late, or get an answer that no caller waits for, and a server may lose what it knew. So
//! the process keeps books of its own, and tells each key's entry what it holds, three times in each lease.
//!
//! The books contain only facts that are certain. Calls belong to generations. A new one begins with each telling; once every call
//! of the earlier ones has been answered or given up, their sum is known exactly, and the process tells this sum. A call that is
//! under way belongs to the present generation: its effect is counted beside the told sum, whichever comes first.
//!
//! One lock guards the name, the books and the places, and each event is one critical section: a departure, an answer, an end. So
//! threads can bring these events into any order, but none can see half of one. All orders of the events are tried in `orders.rs`,
//! and the times at which keys are told, by a clock of the test, in `heartbeat/schedule.rs`.

pub(crate) mod books;
#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
mod orders;
pub(crate) mod places;

use std::cmp::Ordering::{Equal, Greater, Less};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::name::Name;

use books::Books;
use places::Places;

/// The default lease: a process keeps its places for this long without a call. The places of a dead process come back after it.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A process, as its entries in Redis name it. One for each backend.
pub(crate) struct Holder {
    pub(crate) lease: Duration,
    books: Mutex<Identity>,
    /// Rung when a key is in doubt: what the server counts is unknown until the key has been told.
    pub(crate) doubt: Notify,
    /// Rung when the last call of the earlier generations has ended.
    pub(crate) settled: Notify,
    pub(crate) tells: AtomicU64,
    pub(crate) lost_leases: AtomicU64,
    pub(crate) reclaimed: AtomicU64,
    pub(crate) twins: AtomicU64,
}

pub(crate) struct Identity {
    pub(crate) id: [u8; 8],
    pub(crate) process: u32,
    pub(crate) books: Books,
    pub(crate) places: Places,
}

/// The figures of a holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) held: u64,
    pub(crate) tells: u64,
    pub(crate) lost_leases: u64,
    pub(crate) reclaimed: u64,
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
                places: Places::default(),
            }),
            doubt: Notify::new(),
            settled: Notify::new(),
            tells: AtomicU64::new(0),
            lost_leases: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
            twins: AtomicU64::new(0),
        })
    }

    pub(crate) fn figures(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            held: self.identity().books.held(),
            tells: read(&self.tells),
            lost_leases: read(&self.lost_leases),
            reclaimed: read(&self.reclaimed),
            twins: read(&self.twins),
        }
    }

    /// Enters what is held without a decision. The key is told of it as soon as a server answers.
    pub(crate) fn assumes(&self, name: Name, units: u64) {
        self.enters(name, plus(units));
    }

    /// Enters the end of that. No release is sent, since it is unknown whether the key has been told by then: it is told again.
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

    pub(crate) fn identity(&self) -> MutexGuard<'_, Identity> {
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

/// The process whose call it is, for charges that are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) holder: [u8; 8],
    pub(crate) generation: u64,
    pub(crate) lease_ms: u64,
}

/// A reply's statement about this process's own part of what is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// True if the process has an entry.
    pub(crate) is_there: bool,
    /// The newest generation of the entry.
    pub(crate) generation: u64,
    /// The units of the entry by calls of earlier generations than its newest, and by all. 0 if the reply does not say.
    pub(crate) earlier: i64,
    pub(crate) units: i64,
    /// True if it was told in that generation. A process tells a key once in each.
    pub(crate) is_told: bool,
    /// The number of the entry in a long state, from 1; 0 if the state is short or has none. `None` if the reply does not say.
    pub(crate) place: Option<u16>,
    /// The units of other processes whose leases had run out.
    pub(crate) reclaimed: u64,
}

impl Held {
    /// Says whether the server counted what the calls before this generation hold. If not, it has lost calls, perhaps also calls of
    /// this generation.
    pub(crate) fn agrees(&self, generation: u64, units: u64) -> bool {
        let counted = match self.generation.cmp(&generation) {
            Less => self.units,
            Equal => self.earlier,
            // The telling came too late to change anything.
            Greater => return false,
        };
        counted == plus(units)
    }
}

/// The generation of a release, and the units of a telling, that no call has taken along.
pub(crate) const NOT_YET: u64 = u64::MAX;

/// In place of an entry.
pub(crate) const NO_ENTRY: u64 = u64::MAX;

/// A release that has to leave the books: with the call that takes it along, or, if none ever does, when it is dropped. Then the
/// next telling releases it.
#[derive(Debug)]
pub(crate) struct PendingRelease {
    pub(crate) holder: Arc<Holder>,
    pub(crate) name: Name,
    pub(crate) units: u64,
    pub(crate) left_in: AtomicU64,
    /// The entry that it finds, [`NO_ENTRY`] if none is known.
    pub(crate) entry: AtomicU64,
}

impl Drop for PendingRelease {
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

/// A telling of one key. At most one of each key is on its way. If none of its calls departs, or none of them runs, its key is in
/// doubt when it is dropped, as it may have been before.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) holder: Arc<Holder>,
    pub(crate) name: Name,
    pub(crate) units: AtomicU64,
    /// The entry that it finds, [`NO_ENTRY`] if none is known.
    pub(crate) entry: AtomicU64,
}

impl Report {
    /// The units that all calls of earlier generations hold, as of the departure.
    pub(crate) fn units(&self) -> u64 {
        self.units.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
impl Report {
    /// A telling of this number.
    pub(crate) fn of(units: u64) -> Self {
        Self {
            holder: Holder::new(LEASE),
            name: Name::new(),
            units: AtomicU64::new(units),
            entry: AtomicU64::new(NO_ENTRY),
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let is_untold = *self.units.get_mut() == NOT_YET;
        let mut identity = self.holder.identity();
        let in_doubt = identity.books.was_told(&self.name);
        if is_untold {
            identity.books.doubt(mem::take(&mut self.name));
        }
        drop(identity);
        if in_doubt || is_untold {
            self.holder.doubt.notify_one();
        }
    }
}

pub(crate) fn plus(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

pub(crate) fn minus(units: u64) -> i64 {
    -plus(units)
}

/// A name that no other process has.
pub(crate) fn random_id() -> [u8; 8] {
    // The standard library seeds it at random; the process and the time tell apart what a fork or a copied machine shares.
    let random = RandomState::new();
    random
        .hash_one((process::id(), std::time::SystemTime::now()))
        .to_le_bytes()
}
