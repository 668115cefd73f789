//! The full drain of a quota, stored in a state: the longest of the quotas that may have written the state as it stands.

use super::super::DEBT_CEILING;

/// A drain of 2^n µs and a number of thirty-seconds of that more, rounded down: `n` in the upper six bits, the thirty-seconds
/// in the lower five. Ordered as drains are.
///
/// A state that owes no more than a full budget tells only `n`. That is enough: such a state lies at most twice 2^n ahead, and
/// eight times 2^n hold it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reach(u16);

const PARTS: u32 = 5;
/// The reach of the longest drain, [`MAX_DRAIN`](crate::MAX_DRAIN).
const MOST: u8 = 48;

impl Reach {
    pub(super) const BITS: u32 = 11;

    pub(super) const fn of(drain_us: u64) -> Self {
        let Some(n) = drain_us.checked_ilog2() else {
            return Self(0);
        };
        // Below 2^54: no drain is longer than 2^49 µs. The power of two itself stands above the five bits of the parts.
        let parts = drain_us << PARTS >> n;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "both are below 64: so many bits has a drain, and so many parts twice a power of two"
        )]
        Self::new(n as u8, parts as u8)
    }

    pub(crate) const fn new(exponent: u8, thirty_seconds: u8) -> Self {
        let exponent = if exponent > MOST { MOST } else { exponent };
        Self((exponent as u16) << PARTS | (thirty_seconds & 31) as u16)
    }

    pub(super) const fn of_bits(bits: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "eleven bits are asked for")]
        Self(bits as u16 & ((1 << Self::BITS) - 1))
    }

    pub(super) const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// The reach of a state that owes no more than a full budget.
    pub(super) const fn coarse(self) -> Self {
        Self(self.0 >> PARTS << PARTS)
    }

    #[expect(clippy::cast_possible_truncation, reason = "six bits are left")]
    pub(crate) const fn exponent(self) -> u8 {
        (self.0 >> PARTS) as u8
    }

    pub(crate) const fn thirty_seconds(self) -> u8 {
        let [low, _] = self.0.to_le_bytes();
        low & 31
    }

    /// The furthest that a debt of such a drain may lie ahead, in µs.
    pub(super) const fn ceiling_us(self) -> u64 {
        let parts = 32 + self.thirty_seconds() as u64;
        ((parts << self.exponent()) >> PARTS) * DEBT_CEILING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reach_is_a_drain_less_at_most_a_thirty_third_of_it() {
        let drains = (0..49_u32).flat_map(|n| {
            let power = 1_u64 << n;
            [
                power - 1,
                power,
                power + 1,
                power + power / 3,
                power + power / 32 * 31,
            ]
        });
        // And each drain that a few parts of a power of two tell apart.
        let drains = drains.chain(1..2_000);
        let (mut before, mut shorter) = (Reach::default(), 0);
        let mut drains: Vec<u64> = drains.filter(|us| *us > 0).collect();
        drains.sort_unstable();
        for us in drains {
            let reach = Reach::of(us);
            let said = reach.ceiling_us() / DEBT_CEILING;
            assert!(said <= us && us - said <= us / 33 + 1, "{us}: {said}");
            assert!(reach.coarse().ceiling_us() >= 4 * us || us < 2, "{us}");
            assert!(reach >= before && reach.coarse() <= reach, "{us}");
            // A longer drain lacks no rest of a microsecond against eight of the shorter.
            assert!(reach == before || reach.ceiling_us() >= DEBT_CEILING * (shorter + 1));
            assert_eq!(Reach::of_bits(reach.bits()), reach);
            assert_eq!(Reach::new(reach.exponent(), reach.thirty_seconds()), reach);
            (before, shorter) = (reach, us);
        }
    }

    #[test]
    fn a_reach_that_no_drain_has_is_that_of_the_longest() {
        assert_eq!(Reach::new(200, 0), Reach::new(48, 0));
        assert_eq!(Reach::of(0), Reach::of(1));
    }
}
