//! Whole numbers as wide as a quota needs them.

use std::num::NonZero;
use std::ops::{Add, Mul, Sub};

use super::Point;

/// The integer that counts parts: see [`Width`](super::Width). 128 bits hold any number of them.
pub(super) trait Parts:
    Copy + Ord + From<u64> + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>
{
    /// True if a rest may be smaller than one of them; otherwise every distance is a whole number.
    const TELL_RESTS: bool = true;

    /// The distance of `point` ahead of now, in parts; zero if it has passed. If the distance does not fit, any number beyond a
    /// quota's ceiling stands for it. A rest of more than a microsecond counts as one.
    fn ahead(point: Point, now: u64, denominator: u32) -> Self;

    /// The quotient and the remainder. Quotients are times or counts, which are below 2^53 by construction of the quota.
    fn divide(self, divisor: NonZero<u64>) -> (u64, u64);

    /// This length as time: whole microseconds, and the parts that are left.
    #[inline]
    fn micros_and_rest(self, denominator: u32) -> (u64, u64) {
        self.divide(NonZero::new(denominator.into()).unwrap_or(NonZero::<u64>::MIN))
    }
}

/// Parts that are microseconds: no multiplication or division turns one into the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Micros(u64);

impl From<u64> for Micros {
    #[inline]
    fn from(us: u64) -> Self {
        Self(us)
    }
}

impl Add for Micros {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Micros {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul for Micros {
    type Output = Self;

    #[inline]
    fn mul(self, other: Self) -> Self {
        Self(self.0 * other.0)
    }
}

impl Parts for Micros {
    const TELL_RESTS: bool = false;

    /// One subtraction is enough: a point that has passed has passed with its rest.
    #[inline]
    fn ahead(point: Point, now: u64, _denominator: u32) -> Self {
        Self(point.rounded_up().saturating_sub(now))
    }

    #[inline]
    fn divide(self, divisor: NonZero<u64>) -> (u64, u64) {
        self.0.divide(divisor)
    }

    #[inline]
    fn micros_and_rest(self, _denominator: u32) -> (u64, u64) {
        (self.0, 0)
    }
}

impl Parts for u64 {
    #[inline]
    fn ahead(point: Point, now: u64, denominator: u32) -> Self {
        point.us.checked_sub(now).map_or(0, |us| {
            us.saturating_mul(denominator.into())
                .saturating_add(point.rest.min(denominator).into())
        })
    }

    #[inline]
    fn divide(self, divisor: NonZero<u64>) -> (u64, u64) {
        (self / divisor, self % divisor)
    }
}

impl Parts for u128 {
    #[inline]
    fn ahead(point: Point, now: u64, denominator: u32) -> Self {
        point.us.checked_sub(now).map_or(0, |us| {
            Self::from(us) * Self::from(denominator) + Self::from(point.rest.min(denominator))
        })
    }

    #[inline]
    fn divide(self, divisor: NonZero<u64>) -> (u64, u64) {
        // A division of 128 bits costs many times one of 64, and is almost never needed.
        if let Ok(narrow) = u64::try_from(self) {
            return narrow.divide(divisor);
        }
        let wide = Self::from(divisor.get());
        let quotient = u64::try_from(self / wide).unwrap_or(u64::MAX);
        (quotient, u64::try_from(self % wide).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_more_than_64_bits_is_divided_with_its_rest() {
        let divisor = NonZero::new(1 << 40).unwrap_or(NonZero::<u64>::MIN);
        assert_eq!(((1_u128 << 70) + 5).divide(divisor), (1 << 30, 5));
        assert_eq!(((1_u128 << 50) + 5).divide(divisor), (1 << 10, 5));
    }
}
