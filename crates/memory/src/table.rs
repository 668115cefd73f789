//! The entries: 32 bytes per live key, at the place of its hash or soon after it.
//!
//! One cache miss finds a key among millions. Its name, its value and the rest of its budget lie in half a cache line. The next
//! entries, if the first is another key's, lie in the lines behind.

use std::mem;

use tollgate_core::{KeyHashing, Quota, State};

use crate::lookup::Lookup;
use crate::stored_key::StoredKey;

/// One live key, or a vacancy.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Entry {
    pub(crate) key: StoredKey,
    pub(crate) state: State,
}

/// Runs of entries. Each stands at its home or behind it with no vacancy in between, around the end and on at the start.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Box<[Entry]>,
    len: usize,
}

/// The position of an entry in a table, valid until the next insertion or removal.
pub(crate) type Slot = usize;

const FEWEST: usize = 16;
/// For the state of a vacancy, or of a moved entry. It owns nothing and is never asked.
pub(crate) const ANY_QUOTA: Quota = Quota::per_second(1);

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            entries: Box::default(),
            len: 0,
        }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number of slots, vacant ones included.
    pub(crate) fn slots(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entry(&self, slot: Slot) -> &Entry {
        &self.entries[slot]
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.entries[slot]
    }

    /// All entries, without vacancies.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !entry.key.is_vacant())
    }

    /// All entries, without vacancies, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries
            .iter_mut()
            .filter(|entry| !entry.key.is_vacant())
    }

    /// The first entry that may be the key and for which `holds` is true.
    // Inlined always: it is called from where every instruction counts.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        lookup: &Lookup<'_>,
        holds: impl Fn(StoredKey) -> bool,
    ) -> Option<Slot> {
        let mut slot = home(lookup.hash, self.entries.len());
        // Every table has a vacancy, which ends this probe; a table without slots ends it at once.
        loop {
            let Some(entry) = self.entries.get(slot) else {
                if slot == 0 {
                    return None;
                }
                slot = 0;
                continue;
            };
            if lookup.key.may_be(entry.key) && holds(entry.key) {
                return Some(slot);
            }
            if entry.key.is_vacant() {
                return None;
            }
            slot += 1;
        }
    }

    /// Adds an entry of a key that has none. The table will hold no more than `most` of them.
    pub(crate) fn insert(&mut self, hashing: &KeyHashing, hash: u64, entry: Entry, most: usize) {
        // At most four fifths full: fuller, runs grow long; emptier, entries would take more than 64 bytes each.
        if (self.len + 1) * 5 > self.entries.len() * 4 {
            self.grow(hashing, most);
        }
        self.place(hash, entry);
        self.len += 1;
    }

    /// Removes an entry. Those behind it that are not at home move up, so that no probe ends before it has found them.
    pub(crate) fn remove(&mut self, hashing: &KeyHashing, slot: Slot) {
        let slots = self.entries.len();
        let behind = |from: Slot, to: Slot| {
            if to < from {
                to + slots - from
            } else {
                to - from
            }
        };
        let mut hole = slot;
        let mut next = slot;
        loop {
            next = if next + 1 < slots { next + 1 } else { 0 };
            let key = self.entries[next].key;
            if key.is_vacant() {
                break;
            }
            if behind(home(key.hash(hashing), slots), next) >= behind(hole, next) {
                self.entries.swap(hole, next);
                hole = next;
            }
        }
        self.entries[hole] = Entry::vacant();
        self.len -= 1;
    }

    /// Grows by a sixth: little enough that memory is never half empty. Entries keep their order, so they are copied as fast as
    /// memory is read.
    #[inline(never)]
    fn grow(&mut self, hashing: &KeyHashing, most: usize) {
        let slots = self.entries.len();
        let slots = (slots + slots / 6 + FEWEST).min(most * 5 / 4 + 1);
        let vacant = (0..slots).map(|_| Entry::vacant()).collect();
        for entry in mem::replace(&mut self.entries, vacant) {
            if !entry.key.is_vacant() {
                self.place(entry.key.hash(hashing), entry);
            }
        }
    }

    fn place(&mut self, hash: u64, entry: Entry) {
        let mut slot = home(hash, self.entries.len());
        while !self.entries[slot].key.is_vacant() {
            slot = if slot + 1 < self.entries.len() {
                slot + 1
            } else {
                0
            };
        }
        self.entries[slot] = entry;
    }
}

impl Entry {
    fn vacant() -> Self {
        Self {
            key: StoredKey::VACANT,
            state: State::full(&ANY_QUOTA),
        }
    }
}

/// The home of a hash among this many slots. Homes have the order of the hashes, and the number of slots need not be a power of
/// two.
#[inline]
fn home(hash: u64, slots: usize) -> Slot {
    ((StoredKey::tag(hash) * slots as u64) >> StoredKey::TAG_BITS) as Slot
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tollgate_core::{Key, Scope};

    use super::*;

    fn entry(lookup: &Lookup<'_>) -> Entry {
        Entry {
            key: lookup.key,
            ..Entry::vacant()
        }
    }

    #[test]
    fn an_entry_is_half_a_line_of_a_cache() {
        assert_eq!((size_of::<Entry>(), align_of::<Entry>()), (32, 32));
    }

    #[test]
    fn what_comes_and_goes_is_found_exactly_while_it_is_there() {
        // given bounds so low that runs are long and reach around the end, and a few hundred keys of either kind
        let scope = Scope::of("table", 0, &ANY_QUOTA);
        let keys: Vec<Key> = (0..600_u32)
            .map(|n| match n % 2 {
                0 => Key::bytes(&n.to_le_bytes()),
                _ => Key::from(format!("a key of some length: {n}")),
            })
            .collect();
        for most in [1, 2, 7, 100, 400] {
            let hashing = KeyHashing::random();
            let mut table = Table::new();
            let mut there = HashSet::new();
            let mut random = 1_u64;
            for _ in 0..if cfg!(miri) { 400 } else { 20_000 } {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let key = &keys[(random >> 33) as usize % keys.len()];
                let lookup = Lookup::new(&hashing, scope, key);

                // when a key is looked for, and added or taken out
                let found = table.find(&lookup, |_| true);

                // then it is there if it was added, and so are all others
                assert_eq!(found.is_some(), there.contains(key), "{most}");
                match found {
                    Some(slot) => {
                        table.remove(&hashing, slot);
                        there.remove(key);
                    }
                    None if there.len() < most => {
                        table.insert(&hashing, lookup.hash, entry(&lookup), most);
                        there.insert(key);
                    }
                    None => {}
                }
                assert_eq!(table.len(), there.len());
                assert!(table.slots() <= most * 5 / 4 + 1);
            }
            assert_eq!(table.iter_mut().count(), there.len());
        }
    }

    #[test]
    fn a_table_grows_by_little_and_is_never_half_empty() {
        // given
        let (hashing, scope) = (KeyHashing::random(), Scope::of("table", 0, &ANY_QUOTA));
        let mut table = Table::new();
        for n in 0..if cfg!(miri) { 1024 } else { 8192_u32 } {
            // when
            let key = Key::from(n);
            let lookup = Lookup::new(&hashing, scope, &key);
            table.insert(&hashing, lookup.hash, entry(&lookup), 8192);

            // then a vacancy is left, and few are
            let (len, slots) = (table.len(), table.slots());
            assert!(
                len < slots && (slots * 2 < len * 3 || len < 400),
                "{len} of {slots}"
            );
        }
    }
}
