//! Integers of fewer bytes than eight and no alignment, so that a window's number and two counts fit a state of 24 bytes.

/// An integer of `N` bytes, at most 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PackedInteger<const N: usize>([u8; N]);

impl<const N: usize> PackedInteger<N> {
    pub(super) const ZERO: Self = Self([0; N]);
    const MAX: u64 = u64::MAX >> (64 - 8 * N);

    /// This value, or the largest that there is.
    pub(crate) const fn of(value: u64) -> Self {
        Self::fitting(if value > Self::MAX { Self::MAX } else { value })
    }

    /// This value, which fits.
    pub(crate) const fn fitting(value: u64) -> Self {
        debug_assert!(value <= Self::MAX);
        let all = value.to_le_bytes();
        let mut bytes = [0; N];
        bytes.copy_from_slice(all.split_at(N).0);
        Self(bytes)
    }

    pub(crate) const fn get(self) -> u64 {
        let mut bytes = [0; 8];
        bytes.split_at_mut(N).0.copy_from_slice(&self.0);
        u64::from_le_bytes(bytes)
    }
}

impl<const N: usize> Default for PackedInteger<N> {
    fn default() -> Self {
        Self::ZERO
    }
}

impl<const N: usize> From<u64> for PackedInteger<N> {
    fn from(value: u64) -> Self {
        Self::of(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_every_count_and_window_there_can_be() {
        for value in [
            0,
            1,
            255,
            256,
            1 << 40,
            crate::DEBT_CEILING << 40,
            (1 << 48) - 1,
        ] {
            assert_eq!(PackedInteger::<6>::from(value).get(), value);
        }
        assert_eq!(PackedInteger::<7>::from(1 << 53).get(), 1 << 53);
        assert_eq!(PackedInteger::<6>::from(u64::MAX).get(), (1 << 48) - 1);
    }
}
