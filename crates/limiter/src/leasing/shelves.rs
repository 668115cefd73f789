//! The blocks of all budgets, by scope and key, in as many shelves as keep threads out of each other's way.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tollgate_core::{Blocks, Charge, Key, KeyHashing, Lease, Receipt, Scope};

use crate::sync::{AtomicU64, Mutex, MutexGuard};

pub(super) const SHELVES: usize = 64;

/// The budgets of one shelf. 65,536 in all, whose bytes docs/redis.md states: callers with fewer than a few requests in a lease's time
/// stand here too, until their time is over, and need no block.
pub(super) const MOST: usize = 1_024;

/// The time for which a shelf that was found full is not looked through again.
const FULL_US: u64 = 100_000;

/// The questions of one owner of blocks, so that no other has their numbers.
const QUESTIONS: u64 = 1 << 32;

/// The place of a budget: a hash of its scope and key with secrets of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place(u64);

pub(super) struct Shelves {
    shelves: Box<[Mutex<Shelf>]>,
    hashing: KeyHashing,
    owners: AtomicU64,
}

#[derive(Default)]
pub(super) struct Shelf {
    by_place: HashMap<Place, Blocks, BuildHasherDefault<PlaceHasher>>,
    first_number: u64,
    /// Idle budgets are looked for no sooner than this.
    full_until_us: u64,
}

/// Hashes what is a hash already.
#[derive(Default)]
pub(super) struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u64(&mut self, place: u64) {
        self.0 = place;
    }
}

impl Shelves {
    pub(super) fn new() -> Self {
        Self::with(KeyHashing::random(), SHELVES)
    }

    pub(super) fn with(hashing: KeyHashing, shelves: usize) -> Self {
        Self {
            shelves: (0..shelves).map(|_| Mutex::default()).collect(),
            hashing,
            owners: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn place(&self, scope: Scope, key: &Key) -> Place {
        Place(self.hashing.hash_of(scope, key))
    }

    #[inline]
    pub(super) fn shelf(&self, place: Place) -> MutexGuard<'_, Shelf> {
        // Upper bits: a map within a shelf goes by the lower ones.
        let shelf = (place.0 >> 40) as usize % self.shelves.len();
        let mut shelf = lock(&self.shelves[shelf]);
        if shelf.first_number == 0 {
            shelf.first_number = self.owners.fetch_add(1, Ordering::Relaxed) + 1;
        }
        shelf
    }

    /// Forgets the blocks of a budget.
    pub(super) fn forget(&self, scope: Scope, key: &Key) {
        let place = self.place(scope, key);
        let mut shelf = self.shelf(place);
        if shelf
            .find(place)
            .is_some_and(|blocks| blocks.are_of(scope, key))
        {
            shelf.by_place.remove(&place);
        }
    }

    /// Takes out what is left of all blocks.
    pub(super) fn take_all(&self) -> Vec<(Receipt, u64)> {
        let mut rests = Vec::new();
        for shelf in &self.shelves {
            for (_, mut blocks) in lock(shelf).by_place.drain() {
                rests.extend(blocks.take_all());
            }
        }
        rests
    }
}

impl Shelf {
    /// Makes room at a place for the budget of this charge, without a block so far. `None` if another budget's blocks are still in
    /// use there, if the shelf is full, or if the quota of the charge cannot be leased.
    #[cold]
    pub(super) fn made(
        &mut self,
        place: Place,
        charge: &Charge<'_>,
        lease: &Lease,
        now_us: u64,
    ) -> Option<&mut Blocks> {
        let others = self.by_place.get(&place);
        let in_use = others.is_some_and(|blocks| !blocks.are_idle(now_us));
        if in_use || lease.misfit(charge.quota).is_some() {
            return None;
        }
        if self.by_place.len() >= MOST && others.is_none() {
            if now_us < self.full_until_us {
                return None;
            }
            self.by_place.retain(|_, blocks| !blocks.are_idle(now_us));
            self.full_until_us = now_us.saturating_add(FULL_US);
            if self.by_place.len() >= MOST {
                return None;
            }
        }
        self.first_number = self.first_number.wrapping_add(QUESTIONS);
        let blocks = Blocks::new(charge, lease, now_us, self.first_number);
        Some(self.by_place.entry(place).insert_entry(blocks).into_mut())
    }

    /// The blocks at this place, if there are some.
    pub(super) fn find(&mut self, place: Place) -> Option<&mut Blocks> {
        self.by_place.get_mut(&place)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
