//! A level of pressure.

use std::fmt;

/// A part of 1, in millionths, so that levels and thresholds are compared exactly.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Level(u32);

const MILLION: u32 = 1_000_000;

impl Level {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const FULL: Self = Self(MILLION);

    /// The level nearest to this part. A value below 0 counts as 0, and one above 1 as 1. `None` for NaN.
    #[expect(
        clippy::float_arithmetic,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a level is stated as a part of 1, and this is the one place where it becomes a whole number up to a million"
    )]
    pub(crate) fn of(part: f64) -> Option<Self> {
        let part = (!part.is_nan()).then_some(part)?;
        Some(Self(
            (part.clamp(0.0, 1.0) * f64::from(MILLION)).round() as u32
        ))
    }

    /// The level of this part of a whole, 1 at most. `None` if the whole is nothing.
    pub(super) fn ratio(part: u128, whole: u128) -> Option<Self> {
        let part = part.min(whole).saturating_mul(MILLION.into());
        let millionths = part.checked_div(whole)?;
        Some(Self(u32::try_from(millionths).unwrap_or(MILLION)))
    }

    /// The level in the middle between this one and another, rounded towards the other, so that it is reached.
    pub(super) fn half_way_to(self, other: Self) -> Self {
        let sum = self.0 + other.0;
        Self(if other > self {
            sum.div_ceil(2)
        } else {
            sum / 2
        })
    }

    pub(super) fn from_millionths(millionths: u32) -> Self {
        Self(millionths.min(MILLION))
    }

    pub(super) fn millionths(self) -> u32 {
        self.0
    }

    /// The level as a part of 1.
    #[expect(
        clippy::float_arithmetic,
        reason = "metrics are floats, and no decision depends on this one"
    )]
    pub(crate) fn part(self) -> f64 {
        f64::from(self.0) / f64::from(MILLION)
    }

    /// The level that is so much lower, 0 at least.
    pub(crate) fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.part(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_between_0_and_1_and_nan_is_none() {
        let cases = [
            (0.0, 0),
            (-0.0, 0),
            (-0.3, 0),
            (f64::NEG_INFINITY, 0),
            (0.8, 800_000),
            (0.7 - 0.05, 650_000),
            (1.0, 1_000_000),
            (1.000_1, 1_000_000),
            (f64::INFINITY, 1_000_000),
        ];
        for (part, millionths) in cases {
            assert_eq!(
                Level::of(part).map(Level::millionths),
                Some(millionths),
                "{part}"
            );
        }
        assert_eq!(Level::of(f64::NAN), None);
    }
}
