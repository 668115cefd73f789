//! The entries: one of 40 bytes per live key, in chunks, so that growing moves nothing.

use tollgate_core::{Quota, Scope, State};

use crate::stored_key::StoredKey;

/// One live key, or a vacancy.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) state: State,
    /// None: a vacancy, and then the key is a link to the next one.
    pub(crate) scope: Option<Scope>,
    pub(crate) key: StoredKey,
}

/// The number of an entry of its shard.
pub(crate) type Slot = u32;

#[derive(Debug)]
pub(crate) struct Slab {
    #[expect(
        clippy::vec_box,
        reason = "one block for all would be copied, and half empty, whenever it grows"
    )]
    chunks: Vec<Box<[Entry; CHUNK as usize]>>,
    /// How many slots the chunks have.
    slots: Slot,
    /// The first of the list of vacancies.
    vacant: Slot,
}

/// 640 bytes: little enough that an idle limiter with many shards stays small.
const CHUNK: Slot = 16;
const NONE: Slot = Slot::MAX;
/// Only for the state of a vacancy, or of what was moved away: it owns nothing and is never asked.
pub(crate) const ANY_QUOTA: Quota = Quota::per_second(1);

impl Slab {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            slots: 0,
            vacant: NONE,
        }
    }

    /// How many slots there are, vacant ones included.
    pub(crate) fn slots(&self) -> Slot {
        self.slots
    }

    #[inline]
    pub(crate) fn entry(&self, slot: Slot) -> &Entry {
        &self.chunks[(slot / CHUNK) as usize][(slot % CHUNK) as usize]
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.chunks[(slot / CHUNK) as usize][(slot % CHUNK) as usize]
    }

    pub(crate) fn insert(&mut self, entry: Entry) -> Slot {
        if self.vacant == NONE {
            self.grow();
        }
        let slot = self.vacant;
        let place = self.entry_mut(slot);
        let next = place.key.position();
        *place = entry;
        self.vacant = next;
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        *self.entry_mut(slot) = Entry::vacant(self.vacant);
        self.vacant = slot;
    }

    fn grow(&mut self) {
        self.vacant = self.slots;
        let mut next = self.slots;
        self.slots += CHUNK;
        self.chunks.push(Box::new(std::array::from_fn(|_| {
            next += 1;
            Entry::vacant(if next == self.slots { NONE } else { next })
        })));
    }
}

impl Entry {
    fn vacant(next: Slot) -> Self {
        Self {
            state: State::full(&ANY_QUOTA),
            scope: None,
            key: StoredKey::of(0, 0, 0).at(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_40_bytes() {
        assert_eq!(size_of::<Entry>(), 40);
    }

    #[test]
    fn a_vacancy_is_filled_before_the_slab_grows() {
        // given
        let mut slab = Slab::new();
        let scope = Scope::of("slab", 0, &ANY_QUOTA);
        let entry = |n: u8| Entry {
            state: State::full(&ANY_QUOTA),
            scope: Some(scope),
            key: StoredKey::of(1, n.into(), 0),
        };
        for n in 0..64 {
            slab.insert(entry(n));
        }

        // when
        slab.remove(5);
        slab.remove(40);
        let filled = [slab.insert(entry(100)), slab.insert(entry(101))];

        // then
        assert_eq!((filled, slab.slots()), ([40, 5], 64));
        assert_eq!(slab.entry(5).key, StoredKey::of(1, 101, 0));
        assert_eq!(slab.entry(6).key, StoredKey::of(1, 6, 0));
    }
}
