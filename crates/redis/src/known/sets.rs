//! The sets in which states stand by a hash of their keys. The process's own events clear them.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicU64, Mutex, MutexGuard};

/// Sets of entries by a hash, and the number of events so far.
///
/// From before an event is sent until after it has been answered, nothing stands in the sets of its keys. What a call brings that
/// left before the end of an event is not kept in them: its answer may be older than the event.
pub(super) struct Sets<T> {
    sets: Box<[Mutex<Set<T>>]>,
    events: AtomicU64,
}

/// The entries of some keys, and the events that clear them.
pub(super) struct Set<T> {
    pub(super) entries: Vec<T>,
    /// The hashes of the last two keys that were denied and are not remembered.
    pub(super) marks: [u64; 2],
    /// The number of the last event.
    event: u64,
    /// Events that have begun and not ended.
    pending: u32,
}

impl<T> Sets<T> {
    pub(super) fn new(sets: usize) -> Self {
        Self {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            events: AtomicU64::new(0),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The number of events that a call which leaves now may know of.
    pub(super) fn departs(&self) -> u64 {
        // In this order: an event that ends later has a higher number.
        self.events.load(Ordering::SeqCst)
    }

    /// The set of the keys of this hash; `None` if there are no sets.
    #[inline]
    pub(super) fn set(&self, hash: u64) -> Option<MutexGuard<'_, Set<T>>> {
        let place = hash.checked_rem(self.sets.len() as u64)?;
        let set = self.sets.get(usize::try_from(place).ok()?)?;
        Some(set.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An event begins that changes the budgets of these keys.
    pub(super) fn begins(&self, hashes: &[u64]) {
        self.note(hashes, |pending| pending + 1);
    }

    /// The event has been answered, or was given up.
    pub(super) fn ends(&self, hashes: &[u64]) {
        self.note(hashes, |pending| pending - 1);
    }

    fn note(&self, hashes: &[u64], change: impl Fn(u32) -> u32) {
        let event = self.events.fetch_add(1, Ordering::SeqCst) + 1;
        for hash in hashes {
            if let Some(mut set) = self.set(*hash) {
                set.event = set.event.max(event);
                set.entries.clear();
                set.pending = change(set.pending);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let sets = self.sets.iter();
        sets.map(|set| set.lock().unwrap().entries.len()).sum()
    }
}

impl<T> Set<T> {
    /// Says whether a call that departed after this many events may bring something here.
    pub(super) fn may_learn(&self, departed: u64) -> bool {
        self.pending == 0 && self.event <= departed
    }
}

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            marks: [0; 2],
            event: 0,
            pending: 0,
        }
    }
}
