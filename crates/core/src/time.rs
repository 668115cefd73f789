//! Points in time, in whole microseconds.

use std::time::Duration;

/// A point in time: whole microseconds since the Unix epoch, as the backend's clock tells it.
///
/// The largest is [`Timestamp::MAX`], in the year 2112. That is half of the largest whole number that a double holds
/// exactly, so that a time plus the longest debt is exact in Lua as well.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Timestamp;
///
/// let time = Timestamp::from_micros(1_700_000_000_000_000);
/// let later = time.saturating_add(Duration::from_secs(2));
/// assert_eq!(later.as_micros() - time.as_micros(), 2_000_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last representable point in time, some time in 2112.
    pub const MAX: Self = Self((1 << 52) - 1);

    /// The point `micros` after the Unix epoch, or [`Timestamp::MAX`] if that lies beyond it.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 {
            Self::MAX
        } else {
            Self(micros)
        }
    }

    /// Whole microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The point `duration` later, in whole microseconds, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self::from_micros(self.0.saturating_add(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_past_the_last_one_is_the_last_one() {
        assert_eq!(Timestamp::from_micros(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.saturating_add(Duration::MAX), Timestamp::MAX);
    }
}
