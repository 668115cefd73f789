//! What one lock guards: some of the keys, and the hand that goes round them to forget.

use std::slice;

use hashbrown::HashTable;
use tollgate_core::{Charge, Decision, State, Timestamp, decide};

use crate::arena::Arena;
use crate::hashing::Hashing;
use crate::slab::{Entry, Slab, Slot};
use crate::sought::Sought;

/// At most so many entries does the hand look at when a key comes or, now and then, when one comes back. More than one
/// for each that comes, so that what has become meaningless is found long before the table is full of it.
const STEP: Slot = 4;
/// At most so many when the shard is full: of sixteen the one that matters least is, with near certainty, not one of the
/// few that matter.
const SAMPLE: Slot = 16;
/// The hand also moves on every so many calls, so that states which own memory (rolling
/// windows, logs) are given up even when no new key ever comes. Rare enough to cost a call only a few instructions.
const CALLS_PER_STEP: u32 = 64;

#[derive(Debug)]
pub(crate) struct Shard {
    /// Slots by the hash of their keys.
    index: HashTable<Slot>,
    slab: Slab,
    arena: Arena,
    /// At least 1.
    most_keys: Slot,
    hand: Slot,
    calls: u32,
    pub(crate) counts: Counts,
}

/// What happened in a shard so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) evicted: u64,
    pub(crate) expired: u64,
    pub(crate) longest_scan: Slot,
}

/// What a walk of the hand is done for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// To give up what is meaningless by now.
    Tidy,
    /// To have room for one key more, whoever must go.
    MakeRoom,
}

impl Shard {
    pub(crate) fn new(most_keys: Slot) -> Self {
        Self {
            index: HashTable::new(),
            slab: Slab::new(),
            arena: Arena::new(),
            most_keys: most_keys.max(1),
            hand: 0,
            calls: 0,
            counts: Counts::default(),
        }
    }

    /// How many keys are remembered.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// How many may be.
    pub(crate) fn most_keys(&self) -> usize {
        self.most_keys as usize
    }

    /// To be called with each call, before anything is sought: what it gives up now nobody has found.
    #[inline]
    pub(crate) fn tidy_now_and_then(&mut self, hashing: &Hashing, now: Timestamp) {
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(CALLS_PER_STEP) {
            self.walk(hashing, now, Walk::Tidy);
        }
    }

    /// Decides a call of one charge on a key that was just sought in vain. Its budget is full, and it stays away unless
    /// something was taken from that.
    #[inline(never)]
    pub(crate) fn decide_unseen(
        &mut self,
        hashing: &Hashing,
        now: Timestamp,
        sought: Sought<'_>,
        charge: &Charge<'_>,
    ) -> Decision {
        let mut state = State::full(charge.quota);
        let decision = decide(now, slice::from_ref(charge), slice::from_mut(&mut state));
        if decision
            .verdicts()
            .iter()
            .any(|verdict| verdict.taken() > 0)
        {
            self.insert(hashing, now, &sought, state);
        }
        decision
    }

    // Always: it is called from where every instruction counts, twice.
    #[inline(always)]
    pub(crate) fn find(&self, sought: &Sought<'_>) -> Option<Slot> {
        if sought.key.is_inline() {
            let holds = |&slot: &Slot| self.may_hold(slot, sought);
            return self.index.find(sought.hash, holds).copied();
        }
        self.find_long(sought)
    }

    /// Of a long key the entry has a few bits of the hash. They mislead once in millions of searches, so its bytes are
    /// compared only once a search is over.
    #[inline]
    fn find_long(&self, sought: &Sought<'_>) -> Option<Slot> {
        let slot = *self
            .index
            .find(sought.hash, |&slot| self.may_hold(slot, sought))?;
        // What may be the key is as long as it is.
        let holds = |slot: Slot| {
            let position = self.slab.entry(slot).key.position();
            self.arena.bytes(position, sought.bytes.len()) == sought.bytes
        };
        if holds(slot) {
            return Some(slot);
        }
        let holds = |&slot: &Slot| self.may_hold(slot, sought) && holds(slot);
        self.index.find(sought.hash, holds).copied()
    }

    #[inline]
    fn may_hold(&self, slot: Slot, sought: &Sought<'_>) -> bool {
        let entry = self.slab.entry(slot);
        sought.key.may_be(entry.key) && entry.scope == Some(sought.scope)
    }

    /// The state of a key that was just found, which is thereby seen again.
    #[inline]
    pub(crate) fn state_mut(&mut self, slot: Slot) -> &mut State {
        let entry = self.slab.entry_mut(slot);
        entry.key.mark_seen_again();
        &mut entry.state
    }

    /// Remembers a key that was just sought in vain. If the shard is full, another one is forgotten for it.
    pub(crate) fn insert(
        &mut self,
        hashing: &Hashing,
        now: Timestamp,
        sought: &Sought<'_>,
        state: State,
    ) {
        self.walk(hashing, now, Walk::MakeRoom);
        let mut key = sought.key;
        if !key.is_inline() {
            if self.arena.should_be_packed_before(key.len()) {
                self.pack_arena();
            }
            key = key.at(self.arena.insert(sought.bytes));
        }
        let scope = Some(sought.scope);
        let slot = self.slab.insert(Entry { state, scope, key });
        let (slab, arena) = (&self.slab, &self.arena);
        self.index.insert_unique(sought.hash, slot, |&slot| {
            slab.entry(slot).hash(hashing, arena).unwrap_or_default()
        });
    }

    pub(crate) fn remove(&mut self, hashing: &Hashing, slot: Slot) {
        let entry = self.slab.entry(slot);
        let Some(hash) = entry.hash(hashing, &self.arena) else {
            return;
        };
        if !entry.key.is_inline() {
            self.arena.remove(entry.key.position(), entry.key.len());
        }
        if let Ok(indexed) = self.index.find_entry(hash, |&other| other == slot) {
            indexed.remove();
        }
        self.slab.remove(slot);
    }

    /// Moves the hand over a few entries and gives up those that say nothing any more. If there must be room and is none,
    /// the entry that matters least of those it passed goes as well.
    fn walk(&mut self, hashing: &Hashing, now: Timestamp, walk: Walk) {
        // Slots are taken from the lowest, so those from `most_keys` on were never used, and of a full shard none
        // below is vacant.
        let slots = self.slab.slots().min(self.most_keys);
        if slots == 0 {
            return;
        }
        let mut least: Option<(Worth, Slot)> = None;
        let mut examined = 0;
        while examined < STEP || (examined < SAMPLE && walk == Walk::MakeRoom && self.is_full()) {
            examined += 1;
            self.hand = if self.hand + 1 < slots {
                self.hand + 1
            } else {
                0
            };
            let Some(worth) = self.slab.entry(self.hand).worth() else {
                continue;
            };
            if worth.until <= now {
                self.remove(hashing, self.hand);
                self.counts.expired += 1;
            } else if least.is_none_or(|(least, _)| worth < least) {
                least = Some((worth, self.hand));
            }
        }
        self.counts.longest_scan = self.counts.longest_scan.max(examined);
        if let Some((_, slot)) = least
            && walk == Walk::MakeRoom
            && self.is_full()
        {
            self.remove(hashing, slot);
            self.counts.evicted += 1;
        }
    }

    fn is_full(&self) -> bool {
        self.index.len() >= self.most_keys as usize
    }

    #[inline(never)]
    fn pack_arena(&mut self) {
        let mut packed = Arena::new();
        for slot in 0..self.slab.slots() {
            let entry = self.slab.entry_mut(slot);
            if !entry.key.is_inline() {
                let bytes = self.arena.bytes(entry.key.position(), entry.key.len());
                entry.key = entry.key.at(packed.insert(bytes));
            }
        }
        self.arena = packed;
    }
}

/// How much forgetting an entry would lose; the least goes first.
///
/// First what was charged once and never seen again: nobody waits for it. Then what would be full again soonest: who is
/// deepest in debt stays longest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    seen_again: bool,
    until: Timestamp,
}

impl Entry {
    /// None of a vacancy.
    fn worth(&self) -> Option<Worth> {
        Some(Worth {
            seen_again: self.key.is_seen_again(),
            until: self.state.meaningless_at(self.scope?.unit()),
        })
    }

    /// None of a vacancy.
    fn hash(&self, hashing: &Hashing, arena: &Arena) -> Option<u64> {
        let (scope, key) = (self.scope?, self.key);
        Some(if key.is_inline() {
            hashing.hash(scope, &[], key.content().into(), key.len())
        } else {
            hashing.hash_bytes(scope, arena.bytes(key.position(), key.len()))
        })
    }
}
