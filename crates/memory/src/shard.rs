//! The state under one lock: some of the keys, and the hand that goes round them to forget.

use std::time::Duration;

use tollgate_core::{
    BackendError, BannedCaller, Charge, Clock, Decision, FailureKind, Key, KeyHashing, Scope,
    State, Timestamp, Unit,
};

use crate::arena::Arena;
use crate::lookup::Lookup;
use crate::stored_key::StoredKey;
use crate::table::{Entry, Slot, Table};

/// The number of slots that the hand passes when a new key comes and, now and then, when a known one comes back. More than one
/// per new key, so that expired entries are found long before the table is full of them.
const STEP: usize = 4;
/// The most entries that the hand examines when the shard is full: the least important of sixteen is almost never an important
/// one. It counts entries, not slots. Otherwise a sparse stretch of the table would lose as many entries as a dense one, and in
/// the end important ones.
const SAMPLE: usize = 16;
/// The most bans in force that the hand passes by to find another entry. In a shard of which nine tenths are bans the hand finds
/// none among so many once in 10^11 times. Then, or if all are bans, the hand evicts the ban that would end first.
const MOST_BANS_PASSED: usize = 256;
/// The hand also moves on every so many calls. So states that own memory (rolling windows, logs) are freed even when no new key
/// ever comes. Rare enough to cost a call only a few instructions.
const CALLS_PER_STEP: u32 = 64;

/// A call whose time is earlier than the last decided one by less than this has waited for the lock. No call holds a lock for
/// longer. A larger difference means that the clock stepped back.
const WAITED: Duration = Duration::from_millis(1);

/// The end of the meaning of a state of which something is held: it must not be forgotten.
const FOR_EVER: Timestamp = Timestamp::from_micros(u64::MAX);

/// The fields that every call touches come first, beside the lock, so that they share a cache line.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard {
    table: Table,
    /// The time of the last call that was decided.
    last: Timestamp,
    calls: u32,
    hand: Slot,
    /// The number of keys of which something is held, or was lately. None of which something is held can be evicted.
    held: usize,
    /// At least 1.
    most_keys: usize,
    arena: Arena,
    pub(crate) counts: Counts,
}

/// Counts of the shard's events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) evicted: u64,
    pub(crate) expired: u64,
    pub(crate) longest_scan: usize,
}

/// The purpose of a walk of the hand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// Drop the entries that have expired.
    Tidy,
    /// Make room for one more key, by evicting if need be.
    MakeRoom,
}

/// The time at which a call is decided. It came at `time`, before it had its locks, and the latest decided call had the time
/// `last`. A later decision never has an earlier time, so that no window is entered, left and entered again; and no lock is
/// held while a clock is read.
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
            held: 0,
            most_keys: most_keys.max(1),
            arena: Arena::new(),
            counts: Counts::default(),
        }
    }

    /// The number of keys that are remembered.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The most keys that may be remembered.
    pub(crate) fn most_keys(&self) -> usize {
        self.most_keys
    }

    /// The time of the last call that was decided.
    #[inline]
    pub(crate) fn last(&self) -> Timestamp {
        self.last
    }

    /// Sets the time of a call that is now decided.
    #[inline]
    pub(crate) fn set_time(&mut self, now: Timestamp) {
        self.last = now;
    }

    /// The time at which a call is decided. `time` is the time at which the call came, before it had the lock.
    #[inline]
    pub(crate) fn time(&mut self, time: Timestamp, clock: &dyn Clock) -> Timestamp {
        let now = not_before(self.last, time, clock);
        self.set_time(now);
        now
    }

    /// Moves the hand now and then. Each call does this before any search, because an entry that the hand drops must not have
    /// been found before.
    #[inline]
    pub(crate) fn tidy_now_and_then(&mut self, hashing: &KeyHashing, now: Timestamp) {
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(CALLS_PER_STEP) {
            self.walk(hashing, now, Walk::Tidy);
        }
    }

    /// Decides a call of one charge on a key whose search just failed. The budget is full, and the key gets an entry only if
    /// the call takes from it.
    #[inline(never)]
    pub(crate) fn decide_unseen(
        &mut self,
        hashing: &KeyHashing,
        now: Timestamp,
        lookup: Lookup<'_>,
        charge: &Charge<'_>,
        decide: impl FnOnce(&mut State) -> Decision,
    ) -> Result<Decision, BackendError> {
        let mut state = State::full(charge.quota);
        let decision = decide(&mut state);
        if decision
            .verdicts()
            .iter()
            .any(|verdict| verdict.taken() > 0)
        {
            self.insert(hashing, now, &lookup, state, charge.quota.is_ban())?;
        }
        Ok(decision)
    }

    // Inlined always: it is called from two places where every instruction counts.
    #[inline(always)]
    pub(crate) fn find(&self, lookup: &Lookup<'_>) -> Option<Slot> {
        if lookup.key.is_long() {
            return self.find_long(lookup);
        }
        self.table.find(lookup, |_| true)
    }

    /// Finds the entry of a key. The entry of a long key has only a few bits of its hash; these mislead once in a million
    /// searches.
    #[inline]
    fn find_long(&self, lookup: &Lookup<'_>) -> Option<Slot> {
        let (scope, bytes) = (lookup.scope.number(), lookup.bytes);
        // A candidate has the key's length.
        let holds = |key: StoredKey| self.arena.holds(key.position(), scope, bytes);
        self.table.find(lookup, holds)
    }

    /// The state of a key that was just found, which counts as seen again.
    #[inline]
    pub(crate) fn state_mut(&mut self, slot: Slot) -> &mut State {
        let entry = self.table.entry_mut(slot);
        entry.key.mark_seen_again();
        &mut entry.state
    }

    /// The state of a key that was just found to settle what its caller did before. That is no second visit.
    #[inline]
    pub(crate) fn settled_mut(&mut self, slot: Slot) -> &mut State {
        &mut self.table.entry_mut(slot).state
    }

    /// Remembers a key whose search just failed, as one that was seen again or not. A full shard evicts another one for it.
    ///
    /// # Errors
    ///
    /// If something is to be held of the key, and is held already of as many as may be. Then nothing is remembered.
    pub(crate) fn insert(
        &mut self,
        hashing: &KeyHashing,
        now: Timestamp,
        lookup: &Lookup<'_>,
        state: State,
        is_again: bool,
    ) -> Result<(), BackendError> {
        self.walk(hashing, now, Walk::MakeRoom);
        let is_held = lookup.scope.unit() == Unit::Held;
        if self.is_full() || is_held && self.held >= self.most_held() {
            return Err(most_are_held(self.held));
        }
        self.held += usize::from(is_held);
        let mut key = lookup.key;
        if key.is_long() {
            if self.arena.should_be_packed_before(key.len()) {
                self.pack_arena();
            }
            let scope = lookup.scope.number();
            key = key.at(self.arena.insert(scope, lookup.bytes));
        }
        if is_again {
            key.mark_seen_again();
        }
        let entry = Entry { key, state };
        self.table
            .insert(hashing, lookup.hash, entry, self.most_keys);
        Ok(())
    }

    /// Forgets a key of which nothing is held any more, if others may soon need its room. Otherwise its caller may come back.
    #[inline]
    pub(crate) fn gave_back(&mut self, hashing: &KeyHashing, unit: Unit, slot: Slot) {
        if unit != Unit::Held || self.held <= self.most_held() / 2 {
            return;
        }
        if self.table.entry(slot).state.meaningless_at(unit) != FOR_EVER {
            self.remove(hashing, slot);
        }
    }

    pub(crate) fn remove(&mut self, hashing: &KeyHashing, slot: Slot) {
        let key = self.table.entry(slot).key;
        self.held -= usize::from(self.unit(key) == Some(Unit::Held));
        if key.is_long() {
            self.arena.remove(key.position(), key.len());
        }
        self.table.remove(hashing, slot);
    }

    /// Moves the hand over a few entries and drops those that have expired. If room is needed and none was found, the least
    /// important of the passed entries is evicted as well. An entry of which something is held is passed by, and so is a ban in
    /// force while anything else can go.
    fn walk(&mut self, hashing: &KeyHashing, now: Timestamp, walk: Walk) {
        let slots = self.table.slots();
        if slots == 0 {
            return;
        }
        let mut least: Option<(EntryValue, Slot)> = None;
        let (mut passed, mut examined, mut banned) = (0, 0, 0);
        while passed < STEP
            || (walk == Walk::MakeRoom
                && self.is_full()
                && examined < SAMPLE
                && banned < MOST_BANS_PASSED
                && passed < slots)
        {
            passed += 1;
            self.hand = if self.hand + 1 < slots {
                self.hand + 1
            } else {
                0
            };
            let Some(worth) = self
                .worth(self.hand, now)
                .filter(|worth| worth.until != FOR_EVER)
            else {
                continue;
            };
            if worth.rank == Rank::Ban {
                banned += 1;
            } else {
                examined += 1;
            }
            if worth.until <= now {
                // An entry that moves up into this slot is examined another time. No other entry goes now: there is room.
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

    /// Adds the identities that are banned in a scope, until there are `most` of them.
    pub(crate) fn list_bans(
        &self,
        scope: Scope,
        now: Timestamp,
        most: usize,
        callers: &mut Vec<BannedCaller>,
    ) {
        for entry in self.table.iter() {
            let key = entry.key;
            let Some(left) = entry.state.banned_for(now) else {
                continue;
            };
            if self.scope(key) != scope.number() {
                continue;
            }
            if callers.len() == most {
                return;
            }
            let short = key.short_bytes();
            let bytes = if key.is_long() {
                self.arena.key(key.position(), key.len())
            } else {
                short.get(..key.len()).unwrap_or_default()
            };
            let key = Key::from_canonical(bytes);
            callers.extend(key.map(|key| BannedCaller::new(key, left)));
        }
    }

    /// The number of a key's scope.
    fn scope(&self, key: StoredKey) -> u32 {
        if key.is_long() {
            self.arena.scope(key.position())
        } else {
            key.short_scope()
        }
    }

    fn unit(&self, key: StoredKey) -> Option<Unit> {
        Some(Scope::numbered(self.scope(key))?.unit())
    }

    /// The most keys of which something may be held: half of all, so that budgets always have the other half.
    fn most_held(&self) -> usize {
        self.most_keys.div_ceil(2)
    }

    fn is_full(&self) -> bool {
        self.table.len() >= self.most_keys
    }

    /// The worth of an entry; `None` for a vacancy.
    fn worth(&self, slot: Slot, now: Timestamp) -> Option<EntryValue> {
        let entry = self.table.entry(slot);
        let key = entry.key;
        if key.is_vacant() {
            return None;
        }
        let unit = self.unit(key)?;
        let rank = if unit == Unit::Ban && entry.state.banned_for(now).is_some() {
            Rank::Ban
        } else if key.is_seen_again() {
            Rank::SeenAgain
        } else {
            Rank::SeenOnce
        };
        Some(EntryValue {
            rank,
            until: entry.state.meaningless_at(unit),
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

/// The value that is lost with an entry; the least valuable goes first.
///
/// Within a rank the next to go are those that would be full again soonest: the deepest debt stays longest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EntryValue {
    rank: Rank,
    until: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Charged once and never seen again, so that no caller waits for it.
    SeenOnce,
    /// Seen again. A strike by a denial counts as such from the first: its caller came back, to be denied. A strike by a response does
    /// so from the second.
    SeenAgain,
    /// A ban in force. It has to hold although its caller stays away.
    Ban,
}

#[cold]
fn most_are_held(keys: usize) -> BackendError {
    BackendError::new(
        FailureKind::Full,
        format!("there is no room for another key of which something is held, beside {keys}"),
    )
}
