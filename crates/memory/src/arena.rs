//! The bytes of the keys that are too long for an entry, without an allocation for each of them.

/// Blocks of whole [`UNIT`]s in chunks of two KiB. A block that was freed is kept for the next key of its size; when much is
/// free and yet no free block fits, the [shard](crate::shard) moves all keys into a new arena.
#[derive(Debug)]
pub(crate) struct Arena {
    #[expect(
        clippy::vec_box,
        reason = "one block for all would be copied, and half empty, whenever it grows"
    )]
    chunks: Vec<Box<Chunk>>,
    /// The number of units of the last chunk that were handed out.
    used: usize,
    /// The position of a free block for each size in units; [`NONE`] if there is none. A free block begins with the position of
    /// the next.
    free: [Position; SIZES],
    free_units: usize,
}

type Chunk = [u8; UNIT * UNITS_PER_CHUNK];
type Position = u32;

/// Eight bytes: on average four are lost to rounding up, and any block has room for a link of the free list.
const UNIT: usize = 8;
/// Small enough that an idle limiter with many shards stays small. Large enough that the end of a chunk, which no block fits,
/// costs less than four bytes per key, whatever their length.
const UNITS_PER_CHUNK: usize = 256;
/// The bytes before a key: the number of its scope.
const NUMBER: usize = size_of::<u32>();
/// Sizes 0 to 17 units: `Key::MAX_LEN` is 128 bytes.
const SIZES: usize = (tollgate_core::Key::MAX_LEN + NUMBER).div_ceil(UNIT) + 1;
const NONE: Position = Position::MAX;

impl Arena {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            used: UNITS_PER_CHUNK,
            free: [NONE; SIZES],
            free_units: 0,
        }
    }

    /// Says whether this key of this scope lies at `position`, where a key of its length lies.
    #[inline]
    pub(crate) fn holds(&self, position: Position, scope: u32, key: &[u8]) -> bool {
        let bytes = self.bytes(position, NUMBER + key.len());
        bytes
            .split_first_chunk()
            .is_some_and(|(number, bytes)| *number == scope.to_le_bytes() && are_equal(bytes, key))
    }

    /// The number of the scope of the key at `position`.
    pub(crate) fn scope(&self, position: Position) -> u32 {
        let number = self.bytes(position, NUMBER).first_chunk();
        number.map_or(0, |number| u32::from_le_bytes(*number))
    }

    /// The key of `len` bytes at `position`.
    pub(crate) fn key(&self, position: Position, len: usize) -> &[u8] {
        &self.bytes(position, NUMBER + len)[NUMBER..]
    }

    /// Keeps a copy of `key`, at most `Key::MAX_LEN`, behind the number of its scope. Returns its position.
    pub(crate) fn insert(&mut self, scope: u32, key: &[u8]) -> Position {
        let units = units(key.len());
        let position = self.reuse(units).unwrap_or_else(|| self.extend(units));
        let (number, bytes) = self
            .bytes_mut(position, NUMBER + key.len())
            .split_at_mut(NUMBER);
        number.copy_from_slice(&scope.to_le_bytes());
        bytes.copy_from_slice(key);
        position
    }

    /// Keeps a copy of a key of `len` bytes that another arena has at `position`.
    pub(crate) fn insert_from(&mut self, other: &Self, position: Position, len: usize) -> Position {
        self.insert(other.scope(position), other.key(position, len))
    }

    pub(crate) fn remove(&mut self, position: Position, len: usize) {
        self.release(position, units(len));
    }

    /// Says whether inserting a key of `len` bytes would take another chunk although a quarter of the arena is free. Moving the
    /// live keys then costs three bytes for each byte that was freed before, and keeps the arena within 4/3 of its live bytes.
    pub(crate) fn should_be_packed_before(&self, len: usize) -> bool {
        let units = units(len);
        self.free[units] == NONE
            && self.used + units > UNITS_PER_CHUNK
            && self.free_units * 4 > self.chunks.len() * UNITS_PER_CHUNK
    }

    #[inline]
    fn bytes(&self, position: Position, len: usize) -> &[u8] {
        let (chunk, start) = split(position);
        &self.chunks[chunk][start..start + len]
    }

    fn reuse(&mut self, units: usize) -> Option<Position> {
        let position = self.free[units];
        if position == NONE {
            return None;
        }
        let link = self.bytes(position, LINK);
        self.free[units] = link
            .first_chunk()
            .map_or(NONE, |bytes| Position::from_le_bytes(*bytes));
        self.free_units -= units;
        Some(position)
    }

    fn extend(&mut self, units: usize) -> Position {
        if self.used + units > UNITS_PER_CHUNK {
            let rest = UNITS_PER_CHUNK - self.used;
            if rest > 0 {
                self.release(self.end(), rest);
            }
            self.chunks.push(Box::new([0; UNIT * UNITS_PER_CHUNK]));
            self.used = 0;
        }
        let position = self.end();
        self.used += units;
        position
    }

    fn release(&mut self, position: Position, units: usize) {
        let next = self.free[units];
        self.bytes_mut(position, LINK)
            .copy_from_slice(&next.to_le_bytes());
        self.free[units] = position;
        self.free_units += units;
    }

    /// The first unit of the last chunk that was never handed out.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a shard has at most 2^20 keys of 17 units each"
    )]
    fn end(&self) -> Position {
        ((self.chunks.len() - 1) * UNITS_PER_CHUNK + self.used) as Position
    }

    fn bytes_mut(&mut self, position: Position, len: usize) -> &mut [u8] {
        let (chunk, start) = split(position);
        &mut self.chunks[chunk][start..start + len]
    }
}

const LINK: usize = size_of::<Position>();

/// The units that a key of `len` bytes takes.
fn units(len: usize) -> usize {
    (NUMBER + len).div_ceil(UNIT)
}

#[inline]
fn split(position: Position) -> (usize, usize) {
    let position = position as usize;
    (
        position / UNITS_PER_CHUNK,
        position % UNITS_PER_CHUNK * UNIT,
    )
}

/// Compares two keys of one length. A key of 16 to 32 bytes, as most API keys are, is compared in two halves, which may
/// overlap: a call of memcmp takes twice as long.
#[inline]
fn are_equal(a: &[u8], b: &[u8]) -> bool {
    const HALF: usize = size_of::<u128>();
    let halves = |bytes: &[u8]| {
        let number = |half: &[u8; HALF]| u128::from_le_bytes(*half);
        let first = bytes.first_chunk().map(number);
        first.zip(bytes.last_chunk().map(number))
    };
    match (halves(a), halves(b)) {
        (Some(a_halves), Some(b_halves)) if a.len() <= 2 * HALF && b.len() == a.len() => {
            (a_halves.0 ^ b_halves.0) | (a_halves.1 ^ b_halves.1) == 0
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_come_back_as_they_were() {
        // given
        let keys: Vec<Vec<u8>> = (1..=1000_u32)
            .map(|n| n.to_le_bytes().repeat(32)[..1 + n as usize % 128].to_vec())
            .collect();
        let mut arena = Arena::new();

        // when
        let numbered = (0..).zip(&keys);
        let positions: Vec<_> = numbered.map(|(n, key)| arena.insert(n, key)).collect();

        // then
        for (n, (key, position)) in (0..).zip(keys.iter().zip(positions)) {
            assert!(arena.holds(position, n, key) && arena.scope(position) == n);
            assert!(!arena.holds(position, n + 1, key));
        }
    }

    #[test]
    fn what_was_freed_is_used_again_before_anything_grows() {
        // given
        let mut arena = Arena::new();
        let positions: Vec<_> = (0..100).map(|_| arena.insert(7, &[1; 31])).collect();
        let chunks = arena.chunks.len();

        // when
        for position in positions {
            arena.remove(position, 31);
        }
        for _ in 0..100 {
            arena.insert(7, &[2; 29]);
        }

        // then
        assert_eq!(arena.chunks.len(), chunks);
    }

    #[test]
    fn an_arena_that_is_mostly_free_asks_to_be_packed_rather_than_grow() {
        // given
        let mut arena = Arena::new();
        let positions: Vec<_> = (0..128).map(|_| arena.insert(7, &[1; 12])).collect();
        assert!(!arena.should_be_packed_before(100));

        // when
        for position in positions {
            arena.remove(position, 12);
        }

        // then
        assert!(arena.should_be_packed_before(100));
        assert!(!arena.should_be_packed_before(12));
    }
}
