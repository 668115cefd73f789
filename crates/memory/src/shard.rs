//! What one lock guards: some of the keys, and the hand that goes round them to forget.

use std::slice;
use std::time::Duration;

use tollgate_core::{Charge, Clock, Decision, Scope, State, Timestamp, decide};

use crate::arena::Arena;
use crate::hashing::Hashing;
use crate::lookup::Lookup;
use crate::stored_key::StoredKey;
use crate::table::{Entry, Slot, Table};

/// So many slots does the hand pass when a key comes or, now and then, when one comes back. More than one
/// for each that comes, so that what has become meaningless is found long before the table is full of it.
const STEP: usize = 4;
/// At most so many entries does it look at when the shard is full: of sixteen the one that matters least is, with near
/// certainty, not one of the few that matter. Entries and not slots, or else a stretch that happens to be emptier than others
/// would lose as many as they do, and in the end those that matter.
const SAMPLE: usize = 16;
/// The hand also moves on every so many calls, so that states which own memory (rolling
/// windows, logs) are given up even when no new key ever comes. Rare enough to cost a call only a few instructions.
const CALLS_PER_STEP: u32 = 64;

/// A call that came so much earlier than the last one decided has waited for it. Longer nobody holds a lock, so that it must be
/// the clock, which stepped back.
const WAITED: Duration = Duration::from_millis(1);

/// What every call touches comes first, beside the lock, so that it is one line of a cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard {
    table: Table,
    /// The time of the last call that was decided.
    last: Timestamp,
    calls: u32,
    hand: Slot,
    /// At least 1.
    most_keys: usize,
    arena: Arena,
    pub(crate) counts: Counts,
}

/// What happened in a shard so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) evicted: u64,
    pub(crate) expired: u64,
    pub(crate) longest_scan: usize,
}

/// What a walk of the hand is done for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// To give up what is meaningless by now.
    Tidy,
    /// To have room for one key more, whoever must go.
    MakeRoom,
}

/// When a call is decided that came at `time`, before it had its locks, if `last` somebody else was. Of two calls the one decided
/// later never has the earlier time, so that no window is entered, left and entered again; and nobody waits while a clock is
/// read.
#[inline]
pub(crate) fn not_before(last: Timestamp, time: Timestamp, clock: &dyn Clock) -> Timestamp {
    if time >= last {
        time
    } else if time.saturating_add(WAITED) >= last {
        last
    } else {
        clock.now()
    }
}

impl Shard {
    pub(crate) fn new(most_keys: usize) -> Self {
        Self {
            table: Table::new(),
            last: Timestamp::default(),
            calls: 0,
            hand: 0,
            most_keys: most_keys.max(1),
            arena: Arena::new(),
            counts: Counts::default(),
        }
    }

    /// How many keys are remembered.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// How many may be.
    pub(crate) fn most_keys(&self) -> usize {
        self.most_keys
    }

    /// The time of the last call that was decided.
    #[inline]
    pub(crate) fn last(&self) -> Timestamp {
        self.last
    }

    /// The time of a call that is now decided.
    #[inline]
    pub(crate) fn set_time(&mut self, now: Timestamp) {
        self.last = now;
    }

    /// The time of a call that came at `time`, before it had the lock.
    #[inline]
    pub(crate) fn time(&mut self, time: Timestamp, clock: &dyn Clock) -> Timestamp {
        let now = not_before(self.last, time, clock);
        self.set_time(now);
        now
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
        lookup: Lookup<'_>,
        charge: &Charge<'_>,
    ) -> Decision {
        let mut state = State::full(charge.quota);
        let decision = decide(now, slice::from_ref(charge), slice::from_mut(&mut state));
        if decision
            .verdicts()
            .iter()
            .any(|verdict| verdict.taken() > 0)
        {
            self.insert(hashing, now, &lookup, state);
        }
        decision
    }

    // Always: it is called from where every instruction counts, twice.
    #[inline(always)]
    pub(crate) fn find(&self, lookup: &Lookup<'_>) -> Option<Slot> {
        if lookup.key.is_long() {
            return self.find_long(lookup);
        }
        self.table.find(lookup, |_| true)
    }

    /// Of a long key the entry has a few bits of the hash. They mislead once in a million searches.
    #[inline]
    fn find_long(&self, lookup: &Lookup<'_>) -> Option<Slot> {
        let (scope, bytes) = (lookup.scope.number(), lookup.bytes);
        // What may be the key is as long as it is.
        let holds = |key: StoredKey| self.arena.holds(key.position(), scope, bytes);
        self.table.find(lookup, holds)
    }

    /// The state of a key that was just found, which is thereby seen again.
    #[inline]
    pub(crate) fn state_mut(&mut self, slot: Slot) -> &mut State {
        let entry = self.table.entry_mut(slot);
        entry.key.mark_seen_again();
        &mut entry.state
    }

    /// Remembers a key that was just sought in vain. If the shard is full, another one is forgotten for it.
    pub(crate) fn insert(
        &mut self,
        hashing: &Hashing,
        now: Timestamp,
        lookup: &Lookup<'_>,
        state: State,
    ) {
        self.walk(hashing, now, Walk::MakeRoom);
        let mut key = lookup.key;
        if key.is_long() {
            if self.arena.should_be_packed_before(key.len()) {
                self.pack_arena();
            }
            let scope = lookup.scope.number();
            key = key.at(self.arena.insert(scope, lookup.bytes));
        }
        let entry = Entry { key, state };
        self.table
            .insert(hashing, lookup.hash, entry, self.most_keys);
    }

    pub(crate) fn remove(&mut self, hashing: &Hashing, slot: Slot) {
        let key = self.table.entry(slot).key;
        if key.is_long() {
            self.arena.remove(key.position(), key.len());
        }
        self.table.remove(hashing, slot);
    }

    /// Moves the hand over a few entries and gives up those that say nothing any more. If there must be room and is none,
    /// the entry that matters least of those it passed goes as well.
    fn walk(&mut self, hashing: &Hashing, now: Timestamp, walk: Walk) {
        let slots = self.table.slots();
        if slots == 0 {
            return;
        }
        let mut least: Option<(Worth, Slot)> = None;
        let (mut passed, mut examined) = (0, 0);
        while passed < STEP
            || (walk == Walk::MakeRoom && self.is_full() && examined < SAMPLE && passed < slots)
        {
            passed += 1;
            self.hand = if self.hand + 1 < slots {
                self.hand + 1
            } else {
                0
            };
            let Some(worth) = self.worth(self.hand) else {
                continue;
            };
            examined += 1;
            if worth.until <= now {
                // What moves up for it has its turn another time. Nobody else goes now: there is room.
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
        self.table.len() >= self.most_keys
    }

    /// None of a vacancy.
    fn worth(&self, slot: Slot) -> Option<Worth> {
        let entry = self.table.entry(slot);
        let key = entry.key;
        if key.is_vacant() {
            return None;
        }
        let scope = if key.is_long() {
            self.arena.scope(key.position())
        } else {
            key.short_scope()
        };
        Some(Worth {
            seen_again: key.is_seen_again(),
            until: entry.state.meaningless_at(Scope::numbered(scope)?.unit()),
        })
    }

    #[inline(never)]
    fn pack_arena(&mut self) {
        let mut packed = Arena::new();
        for entry in self.table.iter_mut() {
            let key = entry.key;
            if key.is_long() {
                entry.key = key.at(packed.insert_from(&self.arena, key.position(), key.len()));
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
