//! What each process holds, as its lines tell.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hold::{Grant, Hold};

/// What a process holds, as far as it has told.
#[derive(Debug, Default)]
pub(super) struct Inside {
    held: HashMap<u64, Hold>,
    pub(super) lost_leases: u64,
    /// The times for which it was stopped.
    pub(super) stops: Vec<(u64, u64)>,
}

impl Inside {
    pub(super) fn note(&mut self, number: u64, hold: Hold) {
        if hold.outcome == Grant::Held && hold.until_us.is_none() {
            self.held.insert(number, hold);
        } else {
            self.held.remove(&number);
        }
    }

    /// The places of keys that are held for longer than a lease.
    pub(super) fn for_long(&self) -> impl Iterator<Item = &Hold> {
        self.held.values().filter(|hold| hold.is_long())
    }
}

pub(super) fn lock(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}
