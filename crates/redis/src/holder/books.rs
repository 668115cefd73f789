//! The books: what this process holds under each key, by generation.

use std::collections::HashMap;
use std::mem;

use crate::name::Name;

/// The holdings of each key. A key that is not in the books holds nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    generation: u64,
    /// The number of calls that have departed.
    departed: u64,
    /// The calls of this generation that are under way, and those of the earlier ones.
    under_way: usize,
    earlier_under_way: usize,
    rows: HashMap<Name, Row>,
}

/// The generation of a call, and its number among all that departed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) generation: u64,
    pub(crate) number: u64,
}

/// The effect of this process's calls on a key, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// By all calls of generations before `generation`.
    old: i64,
    /// By the calls of `generation`.
    new: i64,
    generation: u64,
    /// It is unknown what the server counts. The key has to be told, even if nothing is held.
    in_doubt: bool,
    is_being_told: bool,
    /// The number of calls that had departed when a reply told that the server has an entry for what is held now. Calls that depart
    /// after it find that entry, or it is lost. The findings of earlier calls tell nothing, because replies overtake each other.
    entered_at: Option<u64>,
    /// The entry, by when it was entered, that was found gone last.
    lost: Option<u64>,
}

impl Row {
    /// Brings it to this generation. No count is below zero, though a child of a fork may release what its parent held.
    fn at(&mut self, generation: u64) -> &mut Self {
        if self.generation < generation {
            (self.old, self.new) = ((self.old + self.new).max(0), 0);
            self.generation = generation;
        }
        self
    }

    /// Says whether something is held and is not being told.
    fn is_due(&self) -> bool {
        self.old + self.new > 0 && !self.is_being_told
    }

    /// Says whether it is equal to no row.
    fn is_blank(&self) -> bool {
        self.old == 0 && self.new == 0 && !self.in_doubt && !self.is_being_told
    }
}

impl Books {
    /// The present generation.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Begins another generation.
    pub(crate) fn begin(&mut self) {
        self.generation += 1;
        self.earlier_under_way += self.under_way;
        self.under_way = 0;
    }

    /// Notes the departure of a call.
    pub(crate) fn departs(&mut self) -> Ticket {
        self.under_way += 1;
        self.departed += 1;
        Ticket {
            generation: self.generation,
            number: self.departed,
        }
    }

    /// Notes the end of a call. Says whether it was the last of the earlier generations.
    pub(crate) fn ends(&mut self, generation: u64) -> bool {
        let calls = if generation == self.generation {
            &mut self.under_way
        } else {
            &mut self.earlier_under_way
        };
        *calls = calls.saturating_sub(1);
        generation != self.generation && self.is_settled()
    }

    /// Says whether all calls of earlier generations have ended.
    pub(crate) fn is_settled(&self) -> bool {
        self.earlier_under_way == 0
    }

    /// Enters that a call of this generation added so many units. Returns the entry that it finds, see
    /// [`entry`](Self::entry).
    pub(crate) fn count(&mut self, name: &Name, generation: u64, units: i64) -> Option<u64> {
        let present = self.generation;
        let row = match self.rows.get_mut(name) {
            Some(row) => row,
            None => self.rows.entry(name.clone()).or_default(),
        };
        let row = row.at(present);
        if generation == present {
            row.new += units;
        } else {
            row.old += units;
        }
        let entry = row.entered_at;
        if row.old + row.new <= 0 {
            // The server drops entries that hold nothing.
            row.entered_at = None;
        }
        if row.is_blank() {
            self.rows.remove(name);
        }
        entry
    }

    /// Notes an acquire by which the server has an entry for what is held of a key. While the key is in doubt, the server may have
    /// an entry for a part of it only.
    pub(crate) fn is_entered(&mut self, name: &Name) {
        let row = self.rows.get_mut(name);
        Self::enter(row.filter(|row| !row.is_being_told), self.departed);
    }

    /// Notes a telling by which the server has an entry for what is held of a key.
    pub(crate) fn has_told(&mut self, name: &Name) {
        Self::enter(self.rows.get_mut(name), self.departed);
    }

    fn enter(row: Option<&mut Row>, departed: u64) {
        if let Some(row) = row.filter(|row| row.old + row.new > 0 && !row.in_doubt) {
            row.entered_at.get_or_insert(departed);
        }
    }

    /// Notes that it is unknown what the server counts of a key: a call which may have changed it was given up, or a reply shows
    /// that the server has lost what it counted.
    pub(crate) fn doubt(&mut self, name: Name) {
        self.rows.entry(name).or_default().in_doubt = true;
    }

    /// The entry that the server is known to have for a key. A call that departs now finds it, or it is lost.
    pub(crate) fn entry(&self, name: &Name) -> Option<u64> {
        self.rows.get(name)?.entered_at
    }

    /// The entry that the call of this number finds, as far as is known after its departure.
    pub(crate) fn entry_of(&self, name: &Name, call: u64) -> Option<u64> {
        self.entry(name).filter(|entry| *entry < call)
    }

    /// Notes that a call did not find this entry of a key. Says whether it is the first: each loss is told once. The key is in doubt
    /// for as long as other calls may find it as well.
    pub(crate) fn is_lost(&mut self, name: &Name, entry: Option<u64>) -> bool {
        if entry.is_none() {
            return false;
        }
        let row = self.rows.entry(name.clone()).or_default();
        row.entered_at.take_if(|since| Some(*since) == entry);
        mem::replace(&mut row.lost, entry) != entry
    }

    /// Notes that the process goes on under another name, of which the servers have no entries.
    pub(crate) fn is_renamed(&mut self) {
        for row in self.rows.values_mut() {
            (row.in_doubt, row.entered_at) = (true, None);
        }
    }

    /// The units that the calls of all earlier generations hold of a key; `None` while that is not known.
    pub(crate) fn known(&mut self, name: &Name) -> Option<u64> {
        if !self.is_settled() {
            return None;
        }
        let generation = self.generation;
        let row = self.rows.get_mut(name);
        let old = row.map_or(0, |row| row.at(generation).old);
        Some(u64::try_from(old).unwrap_or(0))
    }

    /// The keys in doubt, except those that are being told. From here on these are being told.
    pub(crate) fn take_doubts(&mut self) -> Vec<Name> {
        let generation = self.generation;
        self.rows.retain(|_, row| !row.at(generation).is_blank());
        let in_doubt = |row: &&mut Row| row.in_doubt && !row.is_being_told;
        let rows = self.rows.iter_mut();
        rows.filter(|(_, row)| in_doubt(row))
            .map(|(name, row)| {
                (row.in_doubt, row.is_being_told) = (false, true);
                name.clone()
            })
            .collect()
    }

    /// The keys of which something is held, except those that are being told.
    pub(crate) fn held_keys(&self) -> Vec<Name> {
        let rows = self.rows.iter().filter(|(_, row)| row.is_due());
        rows.map(|(name, _)| name.clone()).collect()
    }

    /// Those of these keys of which something is held by now, except those that are being told. From here on these are being
    /// told.
    pub(crate) fn take_held(&mut self, names: impl Iterator<Item = Name>) -> Vec<Name> {
        let take = |name: &Name| {
            let row = self.rows.get_mut(name).filter(|row| row.is_due());
            if let Some(row) = row {
                (row.in_doubt, row.is_being_told) = (false, true);
                true
            } else {
                false
            }
        };
        names.filter(take).collect()
    }

    /// Notes the end of a telling. Says whether the key is in doubt again.
    pub(crate) fn was_told(&mut self, name: &Name) -> bool {
        let Some(row) = self.rows.get_mut(name) else {
            return false;
        };
        row.is_being_told = false;
        let in_doubt = row.in_doubt;
        if row.is_blank() {
            self.rows.remove(name);
        }
        in_doubt
    }

    /// The units that are held of all keys.
    pub(crate) fn held(&self) -> u64 {
        let held = |row: &Row| u64::try_from(row.old + row.new).unwrap_or(0);
        self.rows.values().map(held).sum()
    }
}
