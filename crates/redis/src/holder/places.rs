//! The places of this process's entries in long states, so that the script need not search them.

use std::collections::HashMap;

use crate::name::Name;

/// The most places that are remembered. States are long only where many processes hold, so few keys have any.
const MOST: usize = 4_096;

/// The numbers of entries, from 1, as replies told them. They are guesses: the script looks whose entry stands there.
#[derive(Debug, Default)]
pub(crate) struct Places(HashMap<Name, u16>);

impl Places {
    /// Notes what a reply told; 0 if it told that the state is short.
    pub(crate) fn learn(&mut self, name: &Name, place: u16) {
        if place == 0 {
            if !self.0.is_empty() {
                self.0.remove(name);
            }
            return;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(name.clone(), place);
    }

    /// The places for the keys of a call; nothing if none is known.
    pub(crate) fn of(&self, keys: &[&[u8]]) -> Vec<u16> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let place = |key: &&[u8]| self.0.get(*key).copied().unwrap_or(0);
        let places: Vec<_> = keys.iter().map(place).collect();
        if places.iter().all(|place| *place == 0) {
            return Vec::new();
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_last_is_remembered_and_no_more_than_there_is_room_for() {
        let mut places = Places::default();
        let (one, other) = (b"one".to_vec(), b"other".to_vec());
        assert!(places.of(&[b"one"]).is_empty());
        places.learn(&one, 30);
        places.learn(&other, 40);
        places.learn(&one, 31);
        assert_eq!(places.of(&[b"third", b"one", b"other"]), [0, 31, 40]);
        places.learn(&other, 0);
        assert!(places.of(&[b"other"]).is_empty());
        for number in 0..2 * MOST {
            places.learn(&number.to_string().into_bytes(), 1);
        }
        assert!(places.0.len() <= MOST);
    }
}
