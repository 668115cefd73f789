//! A time of at most 366 days.

/// A time in microseconds, in six bytes. 366 days take 45 bits, and a ban has four times: a quota is copied with each receipt, so
/// that all of them pay for the largest rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Span([u16; 3]);

impl Span {
    /// This time. The upper bits of a longer one are lost.
    #[expect(clippy::cast_possible_truncation, reason = "a part at a time")]
    pub(crate) const fn of_us(us: u64) -> Self {
        Self([us as u16, (us >> 16) as u16, (us >> 32) as u16])
    }

    pub(crate) const fn us(self) -> u64 {
        let [low, middle, high] = self.0;
        low as u64 | (middle as u64) << 16 | (high as u64) << 32
    }
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} µs", self.us())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_PERIOD;

    #[test]
    fn every_time_up_to_the_longest_is_kept() {
        let most = u64::try_from(MAX_PERIOD.as_micros()).unwrap();
        for us in (0..64).map(|bit| 1 << bit).chain([0, most - 1, most]) {
            if us <= most {
                assert_eq!(Span::of_us(us).us(), us);
            }
        }
    }
}
