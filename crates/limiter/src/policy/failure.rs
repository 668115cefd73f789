//! The rule while the backend cannot decide.

use crate::{Algorithm, Concurrent, Quota, QuotaError};

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

/// The whole of an amount, or one part in `n` of it: the part of a quota that one process may spend, for example.
///
/// ```
/// use tollgate::{OnFailure, Share};
///
/// let alone = OnFailure::Local(Share::WHOLE);
/// let one_of_ten = OnFailure::Local(Share::one_in(10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    one_in: u64,
}

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self { one_in: 1 };

    /// One part in `n`: of a quota for each process, `n` is the number of processes, as a rule. 0 is taken as 1.
    #[must_use]
    pub const fn one_in(n: u64) -> Self {
        Self {
            one_in: if n == 0 { 1 } else { n },
        }
    }

    /// The number of parts of the whole.
    #[cfg(feature = "serde")]
    pub(crate) fn parts(self) -> u64 {
        self.one_in
    }

    /// True if this share of `whole` is more than `part`. The comparison does not divide.
    #[doc(hidden)]
    pub fn is_more_than(self, part: u64, whole: u64) -> bool {
        u128::from(part) * u128::from(self.one_in) < u128::from(whole)
    }

    /// This share of a number, rounded down.
    #[doc(hidden)]
    pub fn part_of(self, whole: u128) -> u128 {
        whole / u128::from(self.one_in)
    }

    /// This share of `quota`: limit and burst rounded up, so that a share of a small quota is not nothing, and on to the
    /// next round number if the part is not an exact rate.
    pub(crate) fn of(self, quota: &Quota) -> Quota {
        // A ban is no budget of which a process could have a share.
        if quota.is_ban() {
            return *quota;
        }
        if quota.is_held() {
            let part = Concurrent::try_at_most(quota.limit().div_ceil(self.one_in));
            return part.map_or(*quota, Quota::from);
        }
        let burst = quota.capacity().div_ceil(self.one_in);
        let mut step = 1_u64;
        loop {
            let limit = quota.limit().div_ceil(self.one_in).next_multiple_of(step);
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
        match quota.algorithm() {
            Algorithm::Gcra => resized.try_burst(burst),
            _ => Ok(resized),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_keeps_the_algorithm_and_is_never_nothing() {
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
}
