//! Numbers in the form of the protocol: whole ones as little-endian doubles.

use smallvec::SmallVec;

/// Bytes to send. A charge of a bucket has 43, and needs no allocation.
pub(super) type Words = SmallVec<[u8; 64]>;

/// The bound of all numbers: a double holds every whole number below it exactly.
pub(super) const EXACT: u64 = 1 << 53;

/// Appends a whole number below 2^53.
pub(super) fn put(out: &mut Words, number: u64) {
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let double = number.min(EXACT) as f64;
    out.extend_from_slice(&double.to_le_bytes());
}

/// Takes numbers off the front of bytes. A missing number, or one that is not whole, is an error.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(super) fn u56(&mut self) -> Option<u64> {
        let [a, b, c, d, e, f, g] = self.bytes()?;
        Some(u64::from_le_bytes([a, b, c, d, e, f, g, 0]))
    }

    pub(super) fn u48(&mut self) -> Option<u64> {
        let [a, b, c, d, e, f] = self.bytes()?;
        Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    /// A number that may be negative.
    pub(super) fn i48(&mut self) -> Option<i64> {
        Some((self.u48()? << 16).cast_signed() >> 16)
    }

    pub(super) fn whole(&mut self) -> Option<u64> {
        let double = f64::from_le_bytes(self.bytes()?);
        #[expect(clippy::cast_precision_loss, reason = "a power of two")]
        let is_whole = (0.0..EXACT as f64).contains(&double) && double.fract() == 0.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, not negative and below 2^53"
        )]
        is_whole.then_some(double as u64)
    }
}
