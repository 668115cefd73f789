//! The callers that a policy refuses. There may be a million of them, so that a row is small, stands once, and is never moved.

use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU64;

use foldhash::fast::{FixedState, RandomState};
use hashbrown::HashTable;
use tollgate::Key;

use crate::log::Entry;

/// Programs of one caller that are told apart.
const MOST_AGENTS: usize = 16;

/// Rows that are allocated together: growing moves nothing and takes no second copy.
const PIECE: usize = 1 << 12;

/// Counts of a caller that is refused.
#[derive(Debug, Default)]
pub(super) struct OfCaller {
    pub(super) refused: u64,
    pub(super) first_us: u64,
    pub(super) last_us: u64,
    /// The hash of the program by which it called first, and those of others: many programs are many people.
    agent: Option<NonZeroU64>,
    others: Option<Box<Agents>>,
}

/// Hashes of programs.
type Agents = Vec<NonZeroU64>;

impl OfCaller {
    /// The number of programs, and true if there may be more.
    pub(super) fn programs(&self) -> (usize, bool) {
        let others = self.others.as_ref().map_or(0, |others| others.len());
        let programs = usize::from(self.agent.is_some()) + others;
        (programs, programs >= MOST_AGENTS)
    }

    fn count(&mut self, entry: &Entry<'_>) {
        if self.refused == 0 {
            self.first_us = entry.time_us;
        }
        self.refused += 1;
        self.last_us = entry.time_us;
        if self.programs().1 {
            return;
        }
        let Some(agent) = entry.user_agent().map(hash) else {
            return;
        };
        if *self.agent.get_or_insert(agent) == agent {
            return;
        }
        let others = self.others.get_or_insert_default();
        if !others.contains(&agent) {
            others.push(agent);
        }
    }
}

/// A hash that is equal in every run.
fn hash(bytes: &[u8]) -> NonZeroU64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(bytes);
    NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN)
}

/// The refused callers of one policy.
#[derive(Debug, Default)]
pub(super) struct RefusedCallers {
    /// The numbers of rows, by their callers.
    numbers: HashTable<u32>,
    pieces: Vec<Vec<(Option<Key>, OfCaller)>>,
    hasher: RandomState,
}

impl RefusedCallers {
    pub(super) fn count(&mut self, key: &Option<Key>, entry: &Entry<'_>) {
        let (pieces, hasher) = (&self.pieces, &self.hasher);
        let is_its = |number: &u32| row(pieces, *number).is_some_and(|row| row.0 == *key);
        let hash_of =
            |number: &u32| hasher.hash_one(row(pieces, *number).and_then(|row| row.0.as_ref()));
        let hash = hasher.hash_one(key.as_ref());
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let found = self.numbers.entry(hash, is_its, hash_of);
        let number = *found.or_insert(next).get();
        if number == next {
            if (next as usize).is_multiple_of(PIECE) {
                self.pieces.push(Vec::with_capacity(PIECE));
            }
            if let Some(piece) = self.pieces.last_mut() {
                piece.push((key.clone(), OfCaller::default()));
            }
        }
        let place = number as usize;
        if let Some((_, of)) = self.pieces[place / PIECE].get_mut(place % PIECE) {
            of.count(entry);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(Option<Key>, OfCaller)> {
        self.pieces.iter().flatten()
    }
}

fn row(pieces: &[Vec<(Option<Key>, OfCaller)>], number: u32) -> Option<&(Option<Key>, OfCaller)> {
    let place = number as usize;
    pieces.get(place / PIECE)?.get(place % PIECE)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::log::Entry;

    #[test]
    fn a_caller_has_one_row_however_many_there_are() {
        let mut callers = RefusedCallers::default();
        for round in 1..=3 {
            for number in 0..10_000_u32 {
                let address = IpAddr::from(Ipv4Addr::from_bits(number));
                let entry = Entry::new(round, address, b"GET", b"/", 200);
                callers.count(&Some(Key::address(address, 64)), &entry);
            }
        }

        assert_eq!(callers.len(), 10_000);
        assert_eq!(callers.iter().count(), 10_000);
        let is_counted = |of: &OfCaller| (of.refused, of.first_us, of.last_us) == (3, 1, 3);
        assert!(callers.iter().all(|(_, of)| is_counted(of)));
        // A million of these, with the table and what else a replay has, are less than 200 MB.
        assert!(size_of::<(Option<Key>, OfCaller)>() <= 88);
    }
}
