//! The rule while the backend cannot decide.

use std::fmt;

use crate::{Concurrent, Quota, QuotaError};

/// The rule for a request while the backend cannot decide about it.
///
/// If several policies cover a request, any [`Deny`](Self::Deny) denies; else [`Local`](Self::Local) decides; else it
/// passes. Shadow policies have no say.
///
/// The default is [`Allow`](Self::Allow): a limiter stands in front of everything, and its outage should not become an outage of
/// the service. Choose [`Deny`](Self::Deny) where an unlimited caller is worse than none (a login form), and
/// [`Local`](Self::Local) where something in between is right.
///
/// ```
/// use tollgate::{OnFailure, Policy, Quota, Share};
///
/// // Passwords must not be guessed while Redis is away.
/// let login = Policy::new("login", Quota::per_minute(5)).on_failure(OnFailure::Deny);
/// // Each of ten processes enforces a tenth by itself.
/// let api = Policy::new("api", Quota::per_second(100)).on_failure(OnFailure::Local(Share::one_in(10)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// The request passes, undecided.
    #[default]
    Allow,
    /// The request is refused with 503, because the caller did nothing wrong.
    Deny,
    /// A budget of this process decides.
    ///
    /// Such budgets are charged only while the backend fails, are kept from one outage to the next, and refill only while
    /// there is one. Over an outage a fleet thus admits at most what the backend had admitted, plus for each process the
    /// local burst and the local rate times the outage. A cost above a process's share is refused with 503, since the
    /// real budget might hold it.
    Local(Share),
}

/// A part of an amount: one part in `n`, or so many percent. Applied to a quota, it is the part that one process may spend, or
/// that is kept for important requests.
///
/// ```
/// use tollgate::{OnFailure, Share};
///
/// let alone = OnFailure::Local(Share::WHOLE);
/// let one_of_ten = OnFailure::Local(Share::one_in(10));
/// assert_eq!(Share::percent(10), Share::one_in(10));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// In lowest terms.
    parts: u64,
    of: u64,
}

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self { parts: 1, of: 1 };

    /// One part in `n`: of a quota for each process, `n` is the number of processes, as a rule. 0 is taken as 1.
    #[must_use]
    pub const fn one_in(n: u64) -> Self {
        Self {
            parts: 1,
            of: if n == 0 { 1 } else { n },
        }
    }

    /// A share in hundredths. More than 100 is taken as 100.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, Share, key};
    ///
    /// # #[derive(Clone)] struct Job { class: &'static str }
    /// let api = Policy::new("api", Quota::per_minute(100))
    ///     .class_by(key::Extension::new(|job: &Job| job.class))
    ///     .keep_for("critical", Share::percent(15));
    /// ```
    #[must_use]
    pub const fn percent(percent: u64) -> Self {
        let (mut parts, mut of) = (if percent > 100 { 100 } else { percent }, 100);
        while of % 2 == 0 && parts % 2 == 0 {
            (parts, of) = (parts / 2, of / 2);
        }
        while of % 5 == 0 && parts % 5 == 0 {
            (parts, of) = (parts / 5, of / 5);
        }
        Self { parts, of }
    }

    /// The number of parts of the whole, if this is one of them.
    #[cfg(feature = "serde")]
    pub(crate) fn one_of(self) -> Option<u64> {
        (self.parts == 1).then_some(self.of)
    }

    /// This share in percent, rounded down.
    #[cfg(feature = "serde")]
    pub(crate) fn in_percent(self) -> u64 {
        self.parts * 100 / self.of
    }

    pub(crate) const fn is_nothing(self) -> bool {
        self.parts == 0
    }

    pub(crate) const fn is_whole(self) -> bool {
        self.parts == self.of
    }

    /// True if this share of `whole` is more than `part`. The comparison does not divide.
    #[doc(hidden)]
    pub fn is_more_than(self, part: u64, whole: u64) -> bool {
        u128::from(part) * u128::from(self.of) < u128::from(whole) * u128::from(self.parts)
    }

    /// This share of a number, rounded down.
    #[doc(hidden)]
    pub fn part_of(self, whole: u128) -> u128 {
        whole * u128::from(self.parts) / u128::from(self.of)
    }

    /// This share of a number of units, rounded down.
    pub(crate) fn units_of(self, whole: u64) -> u64 {
        // No more than the whole.
        u64::try_from(self.part_of(whole.into())).unwrap_or(whole)
    }

    /// This share of a number of units, rounded up, and never nothing.
    fn at_least_one_of(self, whole: u64) -> u64 {
        self.part_rounded_up(whole).max(1)
    }

    /// This share of a number of units, rounded up.
    pub(crate) fn part_rounded_up(self, whole: u64) -> u64 {
        let part = (u128::from(whole) * u128::from(self.parts)).div_ceil(self.of.into());
        u64::try_from(part).unwrap_or(whole)
    }

    /// This share of `quota`: limit and burst rounded up, so that a share of a small quota is not nothing, and on to the
    /// next round number if the part is not an exact rate.
    pub(crate) fn of(self, quota: &Quota) -> Quota {
        // A ban is not a budget, so a process cannot have a share of it.
        if quota.is_ban() {
            return *quota;
        }
        if quota.is_held() {
            let part = Concurrent::try_at_most(self.at_least_one_of(quota.limit()));
            return part.map_or(*quota, Quota::from);
        }
        let burst = self.at_least_one_of(quota.capacity());
        let mut step = 1_u64;
        loop {
            let limit = self.at_least_one_of(quota.limit()).next_multiple_of(step);
            if limit >= quota.limit() {
                return Self::resized(quota, quota.limit(), burst).unwrap_or(*quota);
            }
            if let Ok(part) = Self::resized(quota, limit, burst) {
                return part;
            }
            step *= 10;
        }
    }

    fn resized(quota: &Quota, limit: u64, burst: u64) -> Result<Quota, QuotaError> {
        let resized = Quota::try_new(limit, quota.period())?.try_using(quota.algorithm())?;
        let resized = match resized.try_burst(burst) {
            Err(QuotaError::BurstOfWindow { .. }) => resized,
            resized => resized?,
        };
        // A share may be so small that no request passes within the warm-up.
        let warm = resized.try_warm_up(quota.warm_up_period());
        let warm = warm.and_then(|warm| warm.try_cold_factor(quota.price_when_cold()));
        Ok(warm.unwrap_or(resized))
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({}/{})", self.parts, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    #[test]
    fn a_share_keeps_the_algorithm_and_is_never_nothing() {
        let refilled = |limit| {
            let offset = std::time::Duration::from_millis(300);
            Quota::per_second(limit).using(Algorithm::IntervalRefill { offset })
        };
        let minute = std::time::Duration::from_secs(60);
        let cases = [
            (
                Quota::per_second(10).burst(40),
                4,
                Quota::per_second(3).burst(10),
            ),
            (Quota::per_second(1), 10, Quota::per_second(1)),
            (
                Quota::per_minute(60).using(Algorithm::SlidingWindow),
                3,
                Quota::per_minute(20).using(Algorithm::SlidingWindow),
            ),
            (refilled(10).burst(40), 4, refilled(3).burst(10)),
            (
                Quota::per_second(100).warm_up(minute).cold_factor(5),
                4,
                Quota::per_second(25).warm_up(minute).cold_factor(5),
            ),
            // A request of it would take longer than the warm-up.
            (
                Quota::per_minute(10).warm_up(minute),
                10,
                Quota::per_minute(1),
            ),
            (Quota::per_second(10), 0, Quota::per_second(10)),
            // A third of it would be no exact rate.
            (
                Quota::per_day(1_000_000_000),
                3,
                Quota::per_day(333_333_340).burst(333_333_334),
            ),
        ];
        for (whole, n, expected) in cases {
            assert_eq!(Share::one_in(n).of(&whole), expected);
        }
    }

    #[test]
    fn percent_are_parts_in_a_hundred_and_never_more_than_the_whole() {
        assert_eq!(Share::percent(100), Share::WHOLE);
        assert_eq!(Share::percent(250), Share::WHOLE);
        for (percent, n) in [(1, 100), (4, 25), (20, 5), (25, 4), (50, 2)] {
            assert_eq!(Share::percent(percent), Share::one_in(n));
        }
        let thirty = Share::percent(30);
        assert_eq!(
            [0, 3, 10, 99].map(|whole| thirty.units_of(whole)),
            [0, 0, 3, 29]
        );
        assert!(thirty.is_more_than(29, 100) && !thirty.is_more_than(30, 100));
        assert_eq!(thirty.of(&Quota::per_second(10)), Quota::per_second(3));
        // A share of 0 would never admit a request, so it is one unit.
        assert_eq!(
            Share::percent(0).of(&Quota::per_second(10)),
            Quota::per_second(1)
        );
    }
}
