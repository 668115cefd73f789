//! An integer of 48 bits, so that two counts and a window's number fit a state of 24 bytes.

/// An integer of 48 bits. The largest count, eight times 2^40, needs 44.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct U48([u8; 6]);

impl U48 {
    pub(super) fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

impl From<u64> for U48 {
    fn from(value: u64) -> Self {
        let [a, b, c, d, e, f, ..] = value.min((1 << 48) - 1).to_le_bytes();
        Self([a, b, c, d, e, f])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_every_count_there_can_be() {
        for value in [
            0,
            1,
            255,
            256,
            1 << 40,
            crate::DEBT_CEILING << 40,
            (1 << 48) - 1,
        ] {
            assert_eq!(U48::from(value).get(), value);
        }
        assert_eq!(U48::from(u64::MAX).get(), (1 << 48) - 1);
    }
}
