//! A model of `lua/held.lua`: what Redis knows of one key. The script is held to it by a differential, and the books of processes
//! by every order in which calls can come.

/// A name of a process.
pub(crate) type Id = [u8; 8];

/// The most processes that may hold something of a key.
pub(crate) const MOST: usize = 1_024;

/// The age at which a call has long been given up.
pub(crate) const OLDEST: u64 = 255;

/// A process's call: its name and generation, and the lease that it asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From {
    pub(crate) holder: Id,
    pub(crate) generation: u64,
    pub(crate) lease_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) holder: Id,
    pub(crate) old: i64,
    pub(crate) new: i64,
    pub(crate) generation: u64,
    /// The generations since it was told, at most `OLDEST`.
    pub(crate) age: u64,
    pub(crate) expires_ms: u64,
}

impl Entry {
    pub(crate) fn units(&self) -> u64 {
        u64::try_from(self.old + self.new).unwrap_or(0)
    }

    fn holds_nothing(&self) -> bool {
        self.old == 0 && self.new == 0 && self.age == OLDEST
    }
}

/// The reason why a call takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    Full,
    Void,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) entries: Vec<Entry>,
    /// True if the present call changed anything.
    is_touched: bool,
}

impl Key {
    pub(crate) fn total(&self) -> u64 {
        self.entries.iter().map(Entry::units).sum()
    }

    /// Brings it to the time of a call. Returns the units of other processes that this makes free.
    pub(crate) fn at(&mut self, now_ms: u64, from: From) -> u64 {
        self.is_touched = false;
        let latest = now_ms + 4 * from.lease_ms;
        let expired = { self.entries.iter() }.filter(|entry| entry.expires_ms <= now_ms);
        let of_others = expired.filter(|entry| entry.holder != from.holder);
        let reclaimed = of_others.map(Entry::units).sum();
        self.entries.retain(|entry| entry.expires_ms > now_ms);
        for entry in &mut self.entries {
            entry.expires_ms = entry.expires_ms.min(latest);
        }
        reclaimed
    }

    pub(crate) fn own(&self, holder: Id) -> Option<Entry> {
        self.entries
            .iter()
            .copied()
            .find(|entry| entry.holder == holder)
    }

    pub(crate) fn bar(&self, from: From) -> Option<Bar> {
        match self.own(from.holder) {
            Some(own) => (from.generation + own.age < own.generation).then_some(Bar::Void),
            None => (self.entries.len() >= MOST).then_some(Bar::Full),
        }
    }

    /// Counts what a call changes, if nothing bars it.
    pub(crate) fn count(&mut self, now_ms: u64, from: From, units: i64) -> &mut Entry {
        self.is_touched = true;
        let blank = Entry {
            holder: from.holder,
            old: 0,
            new: 0,
            generation: from.generation,
            age: OLDEST,
            expires_ms: 0,
        };
        let place = self
            .entries
            .iter()
            .position(|entry| entry.holder == from.holder);
        let place = place.unwrap_or_else(|| {
            self.entries.push(blank);
            self.entries.len() - 1
        });
        let entry = &mut self.entries[place];
        if from.generation > entry.generation {
            (entry.old, entry.new) = (entry.old + entry.new, units);
            let since = from.generation - entry.generation;
            (entry.generation, entry.age) = (from.generation, (entry.age + since).min(OLDEST));
        } else if from.generation == entry.generation {
            entry.new += units;
        } else {
            entry.old += units;
        }
        entry.expires_ms = now_ms - now_ms % (from.lease_ms / 4) + from.lease_ms;
        entry
    }

    /// Returns the number of units that come free.
    pub(crate) fn release(&mut self, now_ms: u64, from: From, units: u64) -> u64 {
        let before = match self.own(from.holder) {
            Some(own) if self.bar(from).is_none() => own.units(),
            _ => return 0,
        };
        let entry = self.count(now_ms, from, -i64::try_from(units).unwrap());
        before - entry.units()
    }

    pub(crate) fn tell(&mut self, now_ms: u64, from: From, units: u64) {
        let is_late = self
            .own(from.holder)
            .is_some_and(|own| from.generation < own.generation);
        if self.bar(from).is_none() && !is_late {
            let entry = self.count(now_ms, from, 0);
            (entry.old, entry.age) = (i64::try_from(units).unwrap(), 0);
        }
    }

    /// Ends a call of this process.
    pub(crate) fn tidy(&mut self, holder: Id) {
        if self.is_touched
            && let [entry] = &self.entries[..]
            && entry.holder == holder
            && entry.holds_nothing()
        {
            self.entries.clear();
        }
    }
}
