//! Quotas that warm up.

use std::time::Duration;

use super::{Quota, built, whole_micros};
use crate::bounds::MAX_WARM_UP;
use crate::quota_error::QuotaError;

/// The price of a cold unit unless another is set: Guava's.
pub(super) const USUAL_COLD_FACTOR: u64 = 3;

impl Quota {
    /// This quota, which grows cold while it is not used, and then costs more until it has warmed up: for a service whose caches
    /// are empty after a start or a pause.
    ///
    /// A cold budget refills at a third of its rate, or at another part of it if [`cold_factor`](Self::cold_factor) is set. Under
    /// full load the rate rises evenly, and after `warm_up` it is the quota's own. A key that was never seen is cold; one that is
    /// not used for `warm_up` is cold again; one that uses a half of its rate or more becomes and stays warm (with a cold factor
    /// of 3). A request passes only if it would also pass without a warm-up.
    ///
    /// The burst stays as it is: `per_second(100)` lets a quiet caller spend 100 at once, warm or cold, at up to three times the
    /// time to refill. A burst of 1 spaces all requests, as Guava's `RateLimiter.create(100, 10, SECONDS)` does: every 30 ms at
    /// first, and every 10 ms after ten seconds. All of Guava's figures are the same: the permits that it stores while it is idle,
    /// their prices, and the times. Other than Guava, a request that does not fit is refused with the exact time of its turn, and a
    /// request of several units needs a burst of as many.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// const GENTLE: Quota = Quota::per_second(100).burst(1).warm_up(Duration::from_secs(10));
    /// assert_eq!("100/s burst 1 warm up 10s".parse(), Ok(GENTLE));
    /// assert_eq!(GENTLE.warm_up_period(), Duration::from_secs(10));
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_warm_up`](Self::try_warm_up).
    #[must_use]
    #[track_caller]
    pub const fn warm_up(self, warm_up: Duration) -> Self {
        built(self.try_warm_up(warm_up))
    }

    /// This quota, which [warms up](Self::warm_up).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Algorithm, Quota, QuotaError};
    ///
    /// let second = Duration::from_secs(1);
    /// let quota = Quota::per_second(10);
    /// assert_eq!(quota.try_warm_up(Duration::ZERO), Err(QuotaError::ZeroWarmUp));
    /// let window = quota.using(Algorithm::SlidingWindow);
    /// assert_eq!(window.try_warm_up(second), Err(QuotaError::WarmUpOfWindow));
    /// assert_eq!(quota.wait_up_to(second).try_warm_up(second), Err(QuotaError::WaitOfWarmUp));
    /// ```
    ///
    /// # Errors
    ///
    /// If the period is zero, not a whole number of microseconds, above [`MAX_WARM_UP`](crate::MAX_WARM_UP) or too short for one
    /// request, if more than one unit drains in a microsecond, if a cold burst takes longer than [`MAX_DRAIN`](crate::MAX_DRAIN)
    /// to refill, if the algorithm is not [`Gcra`](crate::Algorithm::Gcra), or if requests [wait](Self::wait_up_to) for their turn.
    pub const fn try_warm_up(self, warm_up: Duration) -> Result<Self, QuotaError> {
        let factor = match self.warm_up_figures() {
            Some((_, factor)) => factor as u64,
            None => USUAL_COLD_FACTOR,
        };
        self.warming_up(warm_up, factor)
    }

    pub(super) const fn warming_up(
        self,
        warm_up: Duration,
        factor: u64,
    ) -> Result<Self, QuotaError> {
        if warm_up.as_micros() > MAX_WARM_UP.as_micros() {
            return Err(QuotaError::WarmUpTooLong { warm_up });
        }
        match whole_micros(warm_up) {
            Some(warm_us) => self.with_warm_up(warm_us, factor),
            None => Err(QuotaError::PeriodNotWhole { period: warm_up }),
        }
    }

    /// This quota, of which a unit costs `factor` times as much while it is cold: 3 unless it is set, as in Guava.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// let quota = Quota::per_second(100).warm_up(Duration::from_secs(10)).cold_factor(5);
    /// assert_eq!(quota.to_string(), "100/s warm up 10s cold factor 5");
    /// assert_eq!(quota.price_when_cold(), 5);
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_cold_factor`](Self::try_cold_factor).
    #[must_use]
    #[track_caller]
    pub const fn cold_factor(self, factor: u64) -> Self {
        built(self.try_cold_factor(factor))
    }

    /// This quota with another [cold factor](Self::cold_factor).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, QuotaError};
    ///
    /// let quota = Quota::per_second(100);
    /// assert_eq!(quota.try_cold_factor(5), Err(QuotaError::ColdFactorAlone));
    /// let gentle = quota.warm_up(Duration::from_secs(10));
    /// assert_eq!(gentle.try_cold_factor(1), Err(QuotaError::ColdFactor { factor: 1 }));
    /// ```
    ///
    /// # Errors
    ///
    /// If the factor is not between 2 and [`MAX_COLD_FACTOR`](crate::MAX_COLD_FACTOR), if the quota does not warm up, or if its
    /// period is too short for one request at this price.
    pub const fn try_cold_factor(self, factor: u64) -> Result<Self, QuotaError> {
        match self.warm_up_figures() {
            Some((warm_us, _)) => self.with_warm_up(warm_us as u64, factor),
            None => Err(QuotaError::ColdFactorAlone),
        }
    }

    /// The time in which it [warms up](Self::warm_up). Zero if it does not.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// assert_eq!(Quota::per_second(10).warm_up_period(), Duration::ZERO);
    /// ```
    #[must_use]
    pub const fn warm_up_period(&self) -> Duration {
        match self.warm_up_figures() {
            Some((warm_us, _)) => Duration::from_micros(warm_us as u64),
            None => Duration::ZERO,
        }
    }

    /// The number of times as much that a unit costs while it is [cold](Self::cold_factor). 1 if the quota does not warm up.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// let quota = Quota::per_second(10);
    /// assert_eq!(quota.price_when_cold(), 1);
    /// assert_eq!(quota.warm_up(Duration::from_secs(10)).price_when_cold(), 3);
    /// ```
    #[must_use]
    pub const fn price_when_cold(&self) -> u64 {
        match self.warm_up_figures() {
            Some((_, factor)) => factor as u64,
            None => 1,
        }
    }

    pub(super) const fn warm_up_figures(&self) -> Option<(u32, u8)> {
        match self.rule.as_gcra() {
            Some(rule) => rule.warm_up(),
            None => None,
        }
    }

    /// The figures of a charge under a quota that warms up: the idle time that it spends in 2^-20 µs, the width of a step of the
    /// cold part likewise, the number of its steps, and the surcharge for all of that part in µs. For backends.
    #[doc(hidden)]
    #[must_use]
    pub const fn warmth(&self, cost: u64) -> Option<[u64; 4]> {
        match self.rule.as_gcra() {
            Some(rule) => rule.warmth(cost),
            None => None,
        }
    }

    /// This quota that warms up.
    pub(super) const fn with_warm_up(self, warm_us: u64, factor: u64) -> Result<Self, QuotaError> {
        let Some(rule) = self.rule.as_gcra() else {
            return Err(self.refusal(QuotaError::WarmUpOfWindow));
        };
        match rule.warming(warm_us, factor) {
            Ok(rule) => Ok(self.by_gcra(rule)),
            Err(error) => Err(error),
        }
    }
}
