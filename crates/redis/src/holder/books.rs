//! The books: what this process holds under each key, by generation.

use std::collections::HashMap;

use crate::name::Name;

/// The holdings of each key. A key that is not in the books holds nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    generation: u64,
    /// The calls of this generation that are under way, and those of the earlier ones.
    under_way: usize,
    earlier_under_way: usize,
    rows: HashMap<Name, Row>,
}

/// The effect of this process's calls on a key, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// By all calls of generations before `generation`.
    old: i64,
    /// By the calls of `generation`.
    new: i64,
    generation: u64,
    /// A call was given up. The key has to be told, even if nothing is held.
    in_doubt: bool,
    is_being_told: bool,
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

    /// Says whether something is held, which is not being told.
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

    /// Notes the departure of a call. Returns its generation.
    pub(crate) fn departs(&mut self) -> u64 {
        self.under_way += 1;
        self.generation
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

    /// Enters that a call of this generation added so many units.
    pub(crate) fn count(&mut self, name: &Name, generation: u64, units: i64) {
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
        if row.is_blank() {
            self.rows.remove(name);
        }
    }

    /// Notes that a call was given up that may have changed a key.
    pub(crate) fn doubt(&mut self, name: Name) {
        self.rows.entry(name).or_default().in_doubt = true;
    }

    /// Notes that a server has no entry for a key. If anything is held of it, its lease is lost: the key has to be told at once.
    /// Otherwise the releases of what was lost would count against what is acquired later. Says whether anything is.
    pub(crate) fn has_no_entry(&mut self, name: &Name) -> bool {
        let row = self.rows.get_mut(name).filter(|row| row.old + row.new > 0);
        let is_lost = row.as_ref().is_some_and(|row| !row.in_doubt);
        if let Some(row) = row {
            row.in_doubt = true;
        }
        is_lost
    }

    pub(crate) fn doubt_all(&mut self) {
        self.rows.values_mut().for_each(|row| row.in_doubt = true);
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

    /// Notes the end of a telling.
    pub(crate) fn was_told(&mut self, name: &Name) {
        if let Some(row) = self.rows.get_mut(name) {
            row.is_being_told = false;
            if row.is_blank() {
                self.rows.remove(name);
            }
        }
    }

    /// The units that are held of all keys.
    pub(crate) fn held(&self) -> u64 {
        let held = |row: &Row| u64::try_from(row.old + row.new).unwrap_or(0);
        self.rows.values().map(held).sum()
    }
}
