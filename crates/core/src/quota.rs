//! Quotas: how much, per how long, by which algorithm.

pub(crate) mod text;

use std::fmt;
use std::time::Duration;

use crate::Calendar;
use crate::algorithm::{
    Algorithm, CalendarWindow, FixedWindow, Gcra, Held, IntervalRefill, OnceRule, Onset, Penalty,
    RollingWindow, Rule, SlidingLog, SlidingWindow, State, Unit,
};
use crate::bounds::{MAX_BUCKETS, MAX_LIMIT, MAX_LOG_LIMIT, MAX_PERIOD, MAX_WAIT, MAX_WARM_UP};
use crate::quota_error::QuotaError;

/// A limit: how much, per how long, by which algorithm.
///
/// `Quota::per_second(10)` admits a *burst* of 10 at once and then 10 per second, evenly spaced: a caller that has been quiet
/// may spend a second's worth in an instant. [`burst`](Self::burst) sets that first number alone: `per_second(10).burst(1)`
/// admits one request every 100 ms and never two together; `.burst(50)` lets a quiet caller spend 50 at once, and still only 10
/// per second after that. The burst is *not* the limit of a window. Over any period the default algorithm admits at most `burst
/// + limit`; see [`Algorithm`] for the others.
///
/// Every value is a quota that works: a quota that could not be decided exactly cannot be built. Literals panic while they are
/// built (in a `const`, the program does not compile); input from outside goes through [`try_new`](Self::try_new),
/// [`FromStr`](std::str::FromStr) or serde and gets an error.
///
/// ```
/// use tollgate::{Algorithm, Quota};
///
/// const API: Quota = Quota::per_second(10).burst(50);
/// const LOGIN: Quota = Quota::per_minute(5).using(Algorithm::SlidingLog);
///
/// assert_eq!("10/s burst 50".parse(), Ok(API));
/// assert_eq!(LOGIN.to_string(), "5/min sliding-log");
/// ```
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Algorithm, Quota, Unit};
///
/// let quota = Quota::per_minute(100).burst(20);
/// assert_eq!((quota.limit(), quota.period()), (100, Duration::from_secs(60)));
/// assert_eq!((quota.capacity(), quota.algorithm(), quota.unit()), (20, Algorithm::Gcra, Unit::Gcra));
/// ```
///
/// # As text
///
/// `LIMIT/PERIOD [burst N] [wait PERIOD] [warm up PERIOD [cold factor N]] [ALGORITHM …]`, where a period is a unit (`us`, `ms`,
/// `s`, `min`, `h`, `day`, `week`) with an optional number before it, and an algorithm is `gcra`, `fixed-window [offset PERIOD]`,
/// `sliding-window`, `rolling-window [N buckets]`, `sliding-log` or `interval-refill [offset PERIOD]`: `10/s`, `100/min burst
/// 20`, `5/10s`, `1000/day sliding-window`, `1000/day fixed-window offset 6h`, `300/h rolling-window 60 buckets`, `10/min
/// interval-refill burst 30`, `100/s burst 1 warm up 10s`. With the feature `calendar` also the windows of a [`Calendar`]:
/// `1000/month in Europe/Berlin`, `100/day in UTC`. Everyday forms are read as well: `10 per minute`, `10 req/s`, `5 every 10 s`,
/// in capitals or not. [`parse_all`](Self::parse_all) reads several.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    /// The units per period. Under a refill in intervals, whose rule has those, the burst: the capacity of all rules but one is
    /// then one field.
    limit: u64,
    period_us: u64,
    rule: Rule,
}

impl Quota {
    /// `limit` per second.
    ///
    /// # Panics
    ///
    /// While it is built, if `limit` is 0 or too large to be exact: see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn per_second(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(1))
    }

    /// `limit` per minute.
    ///
    /// # Panics
    ///
    /// While it is built, if `limit` is 0 or too large to be exact: see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn per_minute(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(60))
    }

    /// `limit` per hour.
    ///
    /// ```
    /// use tollgate::Quota;
    ///
    /// assert_eq!(Quota::per_hour(300).to_string(), "300/h");
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if `limit` is 0 or too large to be exact: see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn per_hour(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(60 * 60))
    }

    /// `limit` per day of 24 hours.
    ///
    /// ```
    /// use tollgate::Quota;
    ///
    /// assert_eq!(Quota::per_day(1_000).to_string(), "1000/day");
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if `limit` is 0 or too large to be exact: see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn per_day(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(24 * 60 * 60))
    }

    /// `limit` per `period`, with a burst of `limit`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// const FIVE_IN_TEN_SECONDS: Quota = Quota::new(5, Duration::from_secs(10));
    /// assert_eq!("5/10s".parse(), Ok(FIVE_IN_TEN_SECONDS));
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn new(limit: u64, period: Duration) -> Self {
        built(Self::try_new(limit, period))
    }

    /// `limit` in each window of a calendar: a day, week, month or year of a time zone.
    ///
    /// ```
    /// # #[cfg(feature = "calendar")] {
    /// use tollgate::{Calendar, Quota, Zone};
    ///
    /// const MONTHLY: Quota = Quota::per_calendar(1_000, Calendar::month(Zone::UTC));
    /// assert_eq!("1000/month in UTC".parse(), Ok(MONTHLY));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if `limit` is 0 or above [`MAX_LIMIT`](crate::MAX_LIMIT).
    #[must_use]
    #[track_caller]
    pub const fn per_calendar(limit: u64, calendar: Calendar) -> Self {
        built(Self::try_per_calendar(limit, calendar))
    }

    /// `limit` in each window of a calendar: see [`per_calendar`](Self::per_calendar).
    ///
    /// ```
    /// # #[cfg(feature = "calendar")] {
    /// use tollgate::{Calendar, Quota, QuotaError, Zone};
    ///
    /// let days = Calendar::day(Zone::UTC);
    /// assert_eq!(Quota::try_per_calendar(0, days), Err(QuotaError::ZeroLimit));
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If `limit` is 0 or above [`MAX_LIMIT`](crate::MAX_LIMIT).
    pub const fn try_per_calendar(limit: u64, calendar: Calendar) -> Result<Self, QuotaError> {
        Self::try_with(limit, calendar.period(), Algorithm::Calendar(calendar))
    }

    /// This quota with another burst: the amount that a caller that has been quiet may spend at once. See [`Quota`].
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_burst`](Self::try_burst).
    #[must_use]
    #[track_caller]
    pub const fn burst(self, burst: u64) -> Self {
        built(self.try_burst(burst))
    }

    /// This limit and period, decided by another algorithm.
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_using`](Self::try_using).
    #[must_use]
    #[track_caller]
    pub const fn using(self, algorithm: Algorithm) -> Self {
        built(self.try_using(algorithm))
    }

    /// `limit` per `period`, with a burst of `limit`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{MAX_LIMIT, MAX_PERIOD, Quota, QuotaError};
    ///
    /// assert_eq!(Quota::try_new(0, Duration::from_secs(1)), Err(QuotaError::ZeroLimit));
    /// assert!(Quota::try_new(MAX_LIMIT + 1, Duration::from_secs(1)).is_err());
    /// assert!(Quota::try_new(1, MAX_PERIOD).is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// If the limit or the period is zero or beyond [`MAX_LIMIT`] and [`MAX_PERIOD`], if the period is not a whole number
    /// of microseconds, or if the rate cannot be exact within 2^53.
    pub const fn try_new(limit: u64, period: Duration) -> Result<Self, QuotaError> {
        Self::try_with(limit, period, Algorithm::Gcra)
    }

    /// `limit` per `period`, decided by this algorithm. Like [`try_new`](Self::try_new) and then
    /// [`try_using`](Self::try_using), but it also takes windows whose limit would be no exact rate.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Algorithm, Quota};
    ///
    /// let quota = Quota::try_with(1_000, Duration::from_secs(3_600), Algorithm::SlidingWindow)?;
    /// assert_eq!(quota.to_string(), "1000/h sliding-window");
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for those two methods.
    pub const fn try_with(
        limit: u64,
        period: Duration,
        algorithm: Algorithm,
    ) -> Result<Self, QuotaError> {
        if limit == 0 {
            return Err(QuotaError::ZeroLimit);
        }
        if limit > MAX_LIMIT {
            return Err(QuotaError::LimitTooLarge { limit });
        }
        if period.is_zero() {
            return Err(QuotaError::ZeroPeriod);
        }
        if period.as_nanos() > MAX_PERIOD.as_nanos() {
            return Err(QuotaError::PeriodTooLong { period });
        }
        let Some(period_us) = whole_micros(period) else {
            return Err(QuotaError::PeriodNotWhole { period });
        };
        match rule(limit, period_us, algorithm) {
            Ok(rule) => Ok(Self {
                limit,
                period_us,
                rule,
            }),
            Err(error) => Err(error),
        }
    }

    /// `limit` per `period` with this burst. Like [`try_new`](Self::try_new) and then [`try_burst`](Self::try_burst), but it
    /// also takes rates that are exact with this burst and would not be with one of `limit`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// let quota = Quota::try_with_burst(100, Duration::from_secs(60), 20)?;
    /// assert_eq!(quota.to_string(), "100/min burst 20");
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for those two methods.
    pub const fn try_with_burst(
        limit: u64,
        period: Duration,
        burst: u64,
    ) -> Result<Self, QuotaError> {
        // Checks the limit and period alone, whatever the rate: two counters are always exact.
        match Self::try_with(limit, period, Algorithm::SlidingWindow) {
            Ok(quota) => quota.with_burst(burst),
            Err(error) => Err(error),
        }
    }

    /// This quota with another burst.
    ///
    /// ```
    /// use tollgate::{Quota, QuotaError};
    ///
    /// assert_eq!(Quota::per_second(10).try_burst(0), Err(QuotaError::ZeroBurst));
    /// ```
    ///
    /// # Errors
    ///
    /// If the burst is zero, beyond [`MAX_LIMIT`](crate::MAX_LIMIT), takes longer than [`MAX_DRAIN`](crate::MAX_DRAIN) to refill or
    /// cannot be exact within 2^53, or if the algorithm is neither [`Gcra`](Algorithm::Gcra) nor
    /// [`IntervalRefill`](Algorithm::IntervalRefill): a window's budget is its limit.
    pub const fn try_burst(self, burst: u64) -> Result<Self, QuotaError> {
        match self.rule {
            Rule::Gcra(_) | Rule::IntervalRefill(_) => {}
            Rule::Held(_) => return Err(QuotaError::NoPeriod),
            Rule::Ban(_) | Rule::Once(_) => return Err(QuotaError::QuotaOfBan),
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::Calendar(_) => return Err(QuotaError::BurstOfWindow { burst }),
        }
        self.with_burst(burst)
    }

    /// This limit and period as a bucket that holds `burst`, and is refilled in intervals if it was before.
    const fn with_burst(self, burst: u64) -> Result<Self, QuotaError> {
        if burst == 0 {
            return Err(QuotaError::ZeroBurst);
        }
        if burst > MAX_LIMIT {
            return Err(QuotaError::LimitTooLarge { limit: burst });
        }
        let (wait_us, warm_up) = match &self.rule {
            Rule::Gcra(rule) => (rule.wait_us(), rule.warm_up()),
            Rule::IntervalRefill(rule) => {
                let offset_us = rule.offset_us();
                return match IntervalRefill::new(rule.limit(), self.period_us, offset_us, burst) {
                    Ok(rule) => Ok(Self {
                        limit: burst,
                        rule: Rule::IntervalRefill(rule),
                        ..self
                    }),
                    Err(error) => Err(error),
                };
            }
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::Calendar(_)
            | Rule::Held(_)
            | Rule::Ban(_)
            | Rule::Once(_) => (0, None),
        };
        match Gcra::new(self.limit, self.period_us, burst) {
            Ok(rule) => Self {
                rule: Rule::Gcra(rule),
                ..self
            }
            .with_extras(wait_us, warm_up),
            Err(error) => Err(error),
        }
    }

    /// This quota with the wait and the warm-up of another. No quota has both.
    const fn with_extras(
        self,
        wait_us: u32,
        warm_up: Option<(u32, u8)>,
    ) -> Result<Self, QuotaError> {
        match warm_up {
            None => self.with_wait(wait_us),
            Some((warm_us, factor)) => self.with_warm_up(warm_us as u64, factor as u64),
        }
    }

    /// This quota that warms up.
    const fn with_warm_up(self, warm_us: u64, factor: u64) -> Result<Self, QuotaError> {
        match &self.rule {
            Rule::Gcra(rule) => match rule.warming(warm_us, factor) {
                Ok(rule) => Ok(Self {
                    rule: Rule::Gcra(rule),
                    ..self
                }),
                Err(error) => Err(error),
            },
            Rule::Held(_) => Err(QuotaError::NoPeriod),
            Rule::Ban(_) | Rule::Once(_) => Err(QuotaError::QuotaOfBan),
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::IntervalRefill(_)
            | Rule::Calendar(_) => Err(QuotaError::WarmUpOfWindow),
        }
    }

    /// This quota with this wait, or without one if it is 0.
    const fn with_wait(self, wait_us: u32) -> Result<Self, QuotaError> {
        if wait_us == 0 {
            return Ok(self);
        }
        match &self.rule {
            Rule::Gcra(rule) => match rule.waiting(wait_us) {
                Ok(rule) => Ok(Self {
                    rule: Rule::Gcra(rule),
                    ..self
                }),
                Err(error) => Err(error),
            },
            Rule::Held(rule) => Ok(Self {
                rule: Rule::Held(Held { wait_us, ..*rule }),
                ..self
            }),
            Rule::Ban(_) | Rule::Once(_) => Err(QuotaError::QuotaOfBan),
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::IntervalRefill(_)
            | Rule::Calendar(_) => Err(QuotaError::WaitOfWindow),
        }
    }

    /// This limit and period, decided by another algorithm. A burst that was set before is forgotten.
    ///
    /// ```
    /// use tollgate::{Algorithm, MAX_LOG_LIMIT, Quota};
    ///
    /// // A log remembers each charge, and so its limit is bounded.
    /// assert!(Quota::per_minute(MAX_LOG_LIMIT).try_using(Algorithm::SlidingLog).is_ok());
    /// assert!(Quota::per_minute(MAX_LOG_LIMIT + 1).try_using(Algorithm::SlidingLog).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If the algorithm's own parameters do not fit: an offset that is not below the period, a number of buckets that is
    /// not between 2 and [`MAX_BUCKETS`] or does not divide the period's microseconds, a log's limit above
    /// [`MAX_LOG_LIMIT`].
    pub const fn try_using(self, algorithm: Algorithm) -> Result<Self, QuotaError> {
        if self.is_ban() {
            return Err(QuotaError::QuotaOfBan);
        }
        let wait_us = saturating_micros(self.longest_wait());
        let warm_up = self.warm_up_figures();
        let limit = self.limit();
        match rule(limit, self.period_us, algorithm) {
            Ok(rule) => Self {
                limit,
                rule,
                ..self
            }
            .with_extras(wait_us, warm_up),
            Err(error) => Err(error),
        }
    }

    /// This quota, whose requests may wait up to `wait` for their turn instead of being refused at once: a queue, served in the
    /// order in which the requests were decided.
    ///
    /// The burst passes at once, and each request beyond it when its turn comes: `per_second(10).burst(1)` spaces requests
    /// 100 ms apart. A request whose turn is further away than `wait` is refused.
    ///
    /// A request that leaves before its turn gives it back, and the next that fits gets it; no waiting request passes earlier
    /// for that. While one waits, a request that has passed and costs less than announced gives nothing back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// const SMOOTH: Quota = Quota::per_second(10).burst(1).wait_up_to(Duration::from_secs(2));
    /// assert_eq!("10/s burst 1 wait 2s".parse(), Ok(SMOOTH));
    /// assert_eq!(SMOOTH.longest_wait(), Duration::from_secs(2));
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_wait_up_to`](Self::try_wait_up_to).
    #[must_use]
    #[track_caller]
    pub const fn wait_up_to(self, wait: Duration) -> Self {
        built(self.try_wait_up_to(wait))
    }

    /// This quota, whose requests may [wait](Self::wait_up_to).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Algorithm, Quota, QuotaError};
    ///
    /// let window = Quota::per_second(10).using(Algorithm::SlidingWindow);
    /// assert_eq!(window.try_wait_up_to(Duration::from_secs(1)), Err(QuotaError::WaitOfWindow));
    /// // 1,000 intervals of 100 ms.
    /// assert!(Quota::per_second(10).try_wait_up_to(Duration::from_secs(100)).is_ok());
    /// assert!(Quota::per_second(10).try_wait_up_to(Duration::from_secs(101)).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If the wait is less than a microsecond, above [`MAX_WAIT`](crate::MAX_WAIT) or
    /// [`MAX_WAIT_INTERVALS`](crate::MAX_WAIT_INTERVALS), or if the algorithm is not [`Gcra`](Algorithm::Gcra): all others give
    /// requests no turns.
    pub const fn try_wait_up_to(self, wait: Duration) -> Result<Self, QuotaError> {
        if wait.as_micros() == 0 {
            return Err(QuotaError::ZeroWait);
        }
        if wait.as_micros() > MAX_WAIT.as_micros() {
            return Err(QuotaError::WaitTooLong { wait });
        }
        self.with_wait(saturating_micros(wait))
    }

    /// This quota, which grows cold while it is not used, and then costs more until it has warmed up: for a service whose caches
    /// are empty after a start or a pause.
    ///
    /// A cold budget refills at a third of its rate, or at another part of it if [`cold_factor`](Self::cold_factor) is set. Under
    /// full load the rate rises evenly, and after `warm_up` it is the quota's own. A key that was never seen is cold; one that is
    /// not used for `warm_up` is cold again; one that uses a half of its rate or more becomes and stays warm (with a cold factor
    /// of 3). Nothing passes that would not pass without a warm-up.
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
    /// to refill, if the algorithm is not [`Gcra`](Algorithm::Gcra), or if requests [wait](Self::wait_up_to) for their turn.
    pub const fn try_warm_up(self, warm_up: Duration) -> Result<Self, QuotaError> {
        let factor = match self.warm_up_figures() {
            Some((_, factor)) => factor as u64,
            None => USUAL_COLD_FACTOR,
        };
        self.warming_up(warm_up, factor)
    }

    const fn warming_up(self, warm_up: Duration, factor: u64) -> Result<Self, QuotaError> {
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

    const fn warm_up_figures(&self) -> Option<(u32, u8)> {
        match &self.rule {
            Rule::Gcra(rule) => rule.warm_up(),
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::IntervalRefill(_)
            | Rule::Calendar(_)
            | Rule::Held(_)
            | Rule::Ban(_)
            | Rule::Once(_) => None,
        }
    }

    /// The figures of a charge under a quota that warms up: the idle time that it spends in 2^-20 µs, the width of a step of the
    /// cold part likewise, the number of its steps, and the surcharge for all of that part in µs. For backends.
    #[doc(hidden)]
    #[must_use]
    pub const fn warmth(&self, cost: u64) -> Option<[u64; 4]> {
        match &self.rule {
            Rule::Gcra(rule) => rule.warmth(cost),
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::IntervalRefill(_)
            | Rule::Calendar(_)
            | Rule::Held(_)
            | Rule::Ban(_)
            | Rule::Once(_) => None,
        }
    }

    /// This quota for one request that waits at most `most`, because its caller goes away then. A wait is never made longer,
    /// and a quota without one gets none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// let quota = Quota::per_second(10).wait_up_to(Duration::from_secs(2));
    /// let second = Duration::from_secs(1);
    /// assert_eq!(quota.waiting_at_most(second).longest_wait(), second);
    /// assert_eq!(quota.waiting_at_most(second * 3), quota);
    /// ```
    #[must_use]
    pub const fn waiting_at_most(self, most: Duration) -> Self {
        match self.rule {
            Rule::Gcra(rule) => Self {
                rule: Rule::Gcra(rule.waiting_at_most(saturating_micros(most))),
                ..self
            },
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::IntervalRefill(_)
            | Rule::Calendar(_)
            | Rule::Held(_)
            | Rule::Ban(_)
            | Rule::Once(_) => self,
        }
    }

    /// This quota with `kept` units reserved for other callers. Its budget is smaller by `kept`; all else stays. Both quotas share
    /// their states: a charge under the smaller one passes only if `kept` units remain afterwards.
    ///
    /// ```
    /// use tollgate::Quota;
    ///
    /// assert_eq!(Quota::per_minute(100).keeping(30), Quota::per_minute(100).burst(70));
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_keeping`](Self::try_keeping).
    #[must_use]
    #[track_caller]
    pub const fn keeping(self, kept: u64) -> Self {
        built(self.try_keeping(kept))
    }

    /// This quota, of which `kept` units are [left](Self::keeping) to others: the burst of [`Gcra`](Algorithm::Gcra) and
    /// [`IntervalRefill`](Algorithm::IntervalRefill) is smaller by them and the rate is the same; of all others the limit is
    /// smaller.
    ///
    /// ```
    /// use tollgate::{Algorithm, Quota, QuotaError};
    ///
    /// let quota = Quota::per_second(10).burst(50);
    /// assert_eq!(quota.keeping(20), Quota::per_second(10).burst(30));
    /// let window = Quota::per_day(100).using(Algorithm::SlidingWindow);
    /// assert_eq!(window.keeping(20), Quota::per_day(80).using(Algorithm::SlidingWindow));
    /// assert_eq!(window.try_keeping(100), Err(QuotaError::KeepsAll { kept: 100, capacity: 100 }));
    /// ```
    ///
    /// # Errors
    ///
    /// If nothing would be left, or if requests [wait](Self::wait_up_to) for their turn.
    pub const fn try_keeping(self, kept: u64) -> Result<Self, QuotaError> {
        let capacity = self.capacity();
        if kept >= capacity {
            return Err(QuotaError::KeepsAll { kept, capacity });
        }
        let limit = capacity - kept;
        let rule = match self.rule {
            Rule::Gcra(_) if self.waits() => return Err(QuotaError::KeptOfTurns),
            Rule::Gcra(_) | Rule::IntervalRefill(_) => return self.with_burst(limit),
            Rule::Held(held) => Ok(Rule::Held(Held { limit, ..held })),
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::Calendar(_)
            | Rule::Ban(_)
            | Rule::Once(_) => rule(limit, self.period_us, self.algorithm()),
        };
        match rule {
            Ok(rule) => Ok(Self {
                limit,
                rule,
                ..self
            }),
            Err(error) => Err(error),
        }
    }

    /// The longest time that a request may wait for its turn. Zero if a request that does not fit is refused at once.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// assert_eq!(Quota::per_second(10).longest_wait(), Duration::ZERO);
    /// ```
    #[must_use]
    pub const fn longest_wait(&self) -> Duration {
        match &self.rule {
            Rule::Gcra(rule) => Duration::from_micros(rule.wait_us() as u64),
            Rule::Held(rule) => Duration::from_micros(rule.wait_us as u64),
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::IntervalRefill(_)
            | Rule::Calendar(_)
            | Rule::Ban(_)
            | Rule::Once(_) => Duration::ZERO,
        }
    }

    /// Says whether requests may wait under this quota, be it for no time at all at this moment.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// let quota = Quota::per_second(10).wait_up_to(Duration::from_secs(2));
    /// assert!(quota.waits() && quota.waiting_at_most(Duration::ZERO).waits());
    /// ```
    #[must_use]
    #[inline]
    pub const fn waits(&self) -> bool {
        match &self.rule {
            Rule::Gcra(rule) => rule.waits(),
            Rule::Held(rule) => rule.wait_us > 0,
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::IntervalRefill(_)
            | Rule::Calendar(_)
            | Rule::Ban(_)
            | Rule::Once(_) => false,
        }
    }

    /// The furthest that a state of this quota may lie ahead, as its states [tell](crate::Snapshot) it: 2^n µs and the
    /// thirty-seconds of that more, eight times. For backends.
    #[doc(hidden)]
    #[must_use]
    pub const fn reach(&self) -> Option<(u8, u8)> {
        match &self.rule {
            Rule::Gcra(rule) => Some((rule.reach().exponent(), rule.reach().thirty_seconds())),
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::IntervalRefill(_)
            | Rule::Calendar(_)
            | Rule::Held(_)
            | Rule::Ban(_)
            | Rule::Once(_) => None,
        }
    }

    /// At most `limit` at once: see [`Concurrent`](crate::Concurrent).
    pub(crate) const fn held(limit: u64) -> Result<Self, QuotaError> {
        if limit == 0 {
            return Err(QuotaError::ZeroLimit);
        }
        if limit > MAX_LIMIT {
            return Err(QuotaError::LimitTooLarge { limit });
        }
        Ok(Self {
            limit,
            period_us: 0,
            rule: Rule::Held(Held { limit, wait_us: 0 }),
        })
    }

    /// A ban: see [`Ban`](crate::Ban).
    pub(crate) const fn banning(penalty: Penalty) -> Self {
        Self {
            limit: penalty.strikes as u64,
            period_us: penalty.within.us(),
            rule: Rule::Ban(penalty),
        }
    }

    pub(crate) const fn counting_once(once: OnceRule) -> Self {
        Self {
            limit: once.replays as u64,
            period_us: once.life_us.get(),
            rule: Rule::Once(once),
        }
    }

    /// The units per period, or the units at once of a [`Concurrent`](crate::Concurrent) limit.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        match &self.rule {
            Rule::IntervalRefill(rule) => rule.limit(),
            Rule::Gcra(_)
            | Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::Calendar(_)
            | Rule::Held(_)
            | Rule::Ban(_)
            | Rule::Once(_) => self.limit,
        }
    }

    /// The period. Zero for a [`Concurrent`](crate::Concurrent) limit, which has none. For the windows of a calendar the
    /// [usual length](Calendar::period).
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    /// Says whether this is a [`Concurrent`](crate::Concurrent) limit, whose units are held until they are given back.
    ///
    /// ```
    /// use tollgate::{Concurrent, Quota};
    ///
    /// assert!(Quota::from(Concurrent::at_most(5)).is_held());
    /// assert!(!Quota::per_second(5).is_held());
    /// ```
    #[must_use]
    #[inline]
    pub const fn is_held(&self) -> bool {
        matches!(self.rule, Rule::Held(_))
    }

    /// Says whether this is a [`Ban`](crate::Ban), which counts strikes and has no budget.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, Quota};
    ///
    /// assert!(Quota::from(Ban::after(5, Duration::from_secs(600))).is_ban());
    /// assert!(!Quota::per_second(5).is_ban());
    /// ```
    #[must_use]
    #[inline]
    pub const fn is_ban(&self) -> bool {
        matches!(self.rule, Rule::Ban(_))
    }

    /// True if this stands beside budgets, and has none itself.
    #[inline]
    pub(crate) const fn is_beside_budgets(&self) -> bool {
        matches!(self.rule, Rule::Ban(_) | Rule::Once(_))
    }

    /// True if this is a ban of which denials of the same call are strikes.
    pub(crate) const fn hears_denials(&self) -> bool {
        if let Rule::Ban(penalty) = &self.rule {
            !matches!(penalty.onset, Onset::Unheard)
        } else {
            false
        }
    }

    /// The capacity of a full budget: the burst, or the limit of a window or log. No request of a higher cost can ever pass.
    #[must_use]
    #[inline]
    pub const fn capacity(&self) -> u64 {
        match &self.rule {
            Rule::Gcra(rule) => rule.burst,
            Rule::FixedWindow(_)
            | Rule::SlidingWindow(_)
            | Rule::RollingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::IntervalRefill(_)
            | Rule::Calendar(_)
            | Rule::Held(_)
            | Rule::Ban(_)
            | Rule::Once(_) => self.limit,
        }
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.rule.algorithm()
    }

    /// The unit of this quota's states. Quotas of one unit can read each other's states.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.rule.unit()
    }

    #[inline]
    pub(crate) const fn rule(&self) -> &Rule {
        &self.rule
    }
}

impl State {
    /// The state of a key that was never seen: its budget is full.
    #[must_use]
    pub fn full(quota: &Quota) -> Self {
        Self::empty(quota.unit())
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}

/// The price of a cold unit unless another is set: Guava's.
const USUAL_COLD_FACTOR: u64 = 3;

const fn rule(limit: u64, period_us: u64, algorithm: Algorithm) -> Result<Rule, QuotaError> {
    // The period of a limit on how many at once, which no other algorithm can decide.
    if period_us == 0 {
        return Err(QuotaError::NoPeriod);
    }
    Ok(match algorithm {
        Algorithm::Gcra => match Gcra::new(limit, period_us, limit) {
            Ok(rule) => Rule::Gcra(rule),
            Err(error) => return Err(error),
        },
        Algorithm::FixedWindow { offset } => match whole_micros(offset) {
            Some(offset_us) if offset_us < period_us => Rule::FixedWindow(FixedWindow {
                limit,
                period_us,
                offset_us,
            }),
            _ => return Err(QuotaError::Offset { offset }),
        },
        Algorithm::SlidingWindow => Rule::SlidingWindow(SlidingWindow { limit, period_us }),
        Algorithm::RollingWindow { buckets } => {
            if buckets < 2 || buckets > MAX_BUCKETS || !period_us.is_multiple_of(buckets as u64) {
                return Err(QuotaError::Buckets { buckets });
            }
            Rule::RollingWindow(RollingWindow::new(limit, period_us, buckets))
        }
        Algorithm::SlidingLog => {
            if limit > MAX_LOG_LIMIT {
                return Err(QuotaError::LogTooLong { limit });
            }
            Rule::SlidingLog(SlidingLog { limit, period_us })
        }
        Algorithm::IntervalRefill { offset } => match whole_micros(offset) {
            Some(offset_us) if offset_us < period_us => {
                match IntervalRefill::new(limit, period_us, offset_us, limit) {
                    Ok(rule) => Rule::IntervalRefill(rule),
                    Err(error) => return Err(error),
                }
            }
            _ => return Err(QuotaError::Offset { offset }),
        },
        Algorithm::Calendar(calendar) => {
            if calendar.period().as_micros() != period_us as u128 {
                let period = Duration::from_micros(period_us);
                return Err(QuotaError::PeriodOfCalendar { period });
            }
            Rule::Calendar(CalendarWindow { limit, calendar })
        }
        Algorithm::Concurrent => return Err(QuotaError::NoPeriod),
        Algorithm::Ban | Algorithm::Once => return Err(QuotaError::QuotaOfBan),
    })
}

#[track_caller]
const fn built(quota: Result<Quota, QuotaError>) -> Quota {
    match quota {
        Ok(quota) => quota,
        #[expect(
            clippy::panic,
            reason = "literals fail while they are built, by design"
        )]
        Err(error) => panic!("{}", error.reason()),
    }
}

/// This time in microseconds, rounded down; the most that there is if it is more. No wait is so long.
const fn saturating_micros(duration: Duration) -> u32 {
    let micros = duration.as_micros();
    if micros > u32::MAX as u128 {
        return u32::MAX;
    }
    #[expect(clippy::cast_possible_truncation, reason = "just checked")]
    let micros = micros as u32;
    micros
}

pub(crate) const fn whole_micros(duration: Duration) -> Option<u64> {
    let micros = duration.as_micros();
    if duration.subsec_nanos().is_multiple_of(1000) && micros <= u64::MAX as u128 {
        #[expect(clippy::cast_possible_truncation, reason = "just checked")]
        return Some(micros as u64);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Concurrent;

    #[test]
    fn literals_are_const() {
        const QUOTA: Quota = Quota::per_second(7).burst(3);
        assert_eq!(
            (QUOTA.limit(), QUOTA.capacity(), QUOTA.period()),
            (7, 3, Duration::from_secs(1))
        );
    }

    #[test]
    #[should_panic(expected = "a limit of 0 admits nothing")]
    fn a_literal_that_is_nonsense_panics_while_it_is_built() {
        let _ = Quota::per_second(0);
    }

    #[test]
    fn a_quota_that_keeps_units_for_others_differs_in_its_capacity_alone() {
        let wait = Duration::from_secs(2);
        let offset = Duration::from_secs(20);
        let minute = |limit| Quota::per_minute(limit);
        let alike =
            |algorithm: Algorithm| (minute(100).using(algorithm), minute(70).using(algorithm));
        let cases = [
            (minute(100), minute(100).burst(70)),
            (minute(5).burst(100), minute(5).burst(70)),
            alike(Algorithm::FixedWindow { offset }),
            alike(Algorithm::SlidingWindow),
            alike(Algorithm::RollingWindow { buckets: 6 }),
            alike(Algorithm::SlidingLog),
            (
                minute(100).using(Algorithm::IntervalRefill { offset }),
                minute(100)
                    .using(Algorithm::IntervalRefill { offset })
                    .burst(70),
            ),
            (
                minute(100).warm_up(wait).cold_factor(4),
                minute(100).burst(70).warm_up(wait).cold_factor(4),
            ),
            (
                Concurrent::at_most(100).into(),
                Concurrent::at_most(70).into(),
            ),
            (
                Concurrent::at_most(100).wait_up_to(wait).into(),
                Concurrent::at_most(70).wait_up_to(wait).into(),
            ),
        ];
        for (whole, expected) in cases {
            assert_eq!(whole.keeping(30), expected, "{whole}");
            assert_eq!(whole.keeping(30).unit(), whole.unit());
            assert_eq!(whole.keeping(0), whole);
            assert!(whole.try_keeping(99).is_ok() && whole.try_keeping(100).is_err());
        }
    }

    #[test]
    fn ordinary_and_awkward_rates_are_exact() {
        for (limit, secs) in [
            (7, 1),
            (999_983, 86_400),
            (1_000_000, 86_400),
            (300_000, 1),
            (1, 31_536_000),
        ] {
            Quota::try_new(limit, Duration::from_secs(secs)).unwrap();
        }
        // It could not be exact as a rate; two counters can.
        let tebibyte = Quota::try_with(
            1 << 40,
            Duration::from_secs(86_400),
            Algorithm::SlidingWindow,
        );
        assert_eq!(
            "1099511627776/day sliding-window".parse::<Quota>().ok(),
            tebibyte.ok()
        );
        assert!(Quota::try_new((1 << 40) - 87, Duration::from_secs(1)).is_err());
        // A gibibyte per second, in bytes, and a prime about a billion.
        Quota::try_new(1 << 30, Duration::from_secs(1)).unwrap();
        Quota::try_new(1_000_000_007, Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        let second = Duration::from_secs(1);
        let quota = Quota::per_second(10);
        let refilled = |limit| {
            let offset = Duration::ZERO;
            Quota::per_day(limit).using(Algorithm::IntervalRefill { offset })
        };
        assert!(refilled(1).try_burst(3_660).is_ok() && refilled(2).try_burst(7_320).is_ok());
        let cases = [
            (Quota::try_new(0, second), "a limit of 0 admits nothing"),
            (
                Quota::try_new(1, Duration::ZERO),
                "a period of 0 has no rate",
            ),
            (
                Quota::try_new(MAX_LIMIT + 1, second),
                "1099511627777 is above the largest limit",
            ),
            (
                Quota::try_new(1, MAX_PERIOD + second),
                "longer than 366 days",
            ),
            (
                Quota::try_new(1, Duration::from_nanos(1500)),
                "1.5µs is not a whole number of microseconds",
            ),
            (Quota::try_new((1 << 40) - 87, second), "cannot be exact"),
            (quota.try_burst(0), "a burst of 0 admits nothing"),
            (quota.try_burst(MAX_LIMIT + 1), "above the largest limit"),
            (
                Quota::per_day(1).try_burst(100_000),
                "longer than ten years to refill",
            ),
            (
                quota.using(Algorithm::SlidingWindow).try_burst(5),
                "a burst of 5 has no meaning",
            ),
            (
                quota.try_using(Algorithm::FixedWindow { offset: second }),
                "the offset 1s",
            ),
            (
                quota.try_using(Algorithm::IntervalRefill { offset: second }),
                "the offset 1s",
            ),
            (refilled(10).try_burst(0), "a burst of 0 admits nothing"),
            (
                refilled(10).try_burst(MAX_LIMIT + 1),
                "above the largest limit",
            ),
            // 3,660 days of whole refills are the most.
            (
                refilled(1).try_burst(3_661),
                "a burst of 3661 takes longer than ten years to refill",
            ),
            (
                refilled(2).try_burst(7_321),
                "a burst of 7321 takes longer than ten years to refill",
            ),
            (refilled(1).try_wait_up_to(second), "requests cannot wait"),
            (
                quota.try_using(Algorithm::RollingWindow { buckets: 1 }),
                "1 buckets",
            ),
            (
                quota.try_using(Algorithm::RollingWindow { buckets: 129 }),
                "129 buckets",
            ),
            (
                quota.try_using(Algorithm::RollingWindow { buckets: 3 }),
                "3 buckets",
            ),
            (
                quota.try_using(Algorithm::Concurrent),
                "a limit on how many at once has no period",
            ),
            (
                Quota::from(Concurrent::at_most(5)).try_burst(3),
                "a limit on how many at once has no period",
            ),
            (
                Quota::from(Concurrent::at_most(5)).try_using(Algorithm::Gcra),
                "a limit on how many at once has no period",
            ),
            (
                quota.try_keeping(10),
                "10 kept of a full budget of 10: nothing ever passes",
            ),
            (
                quota.wait_up_to(second).try_keeping(1),
                "a line of turns has no classes",
            ),
            (
                quota.try_warm_up(Duration::ZERO),
                "a warm-up of 0 has no effect: leave it out",
            ),
            (
                quota.try_warm_up(Duration::from_nanos(1500)),
                "1.5µs is not a whole number of microseconds",
            ),
            (
                quota.try_warm_up(MAX_WARM_UP + Duration::from_micros(1)),
                "a warm-up of 3600.000001s is longer than an hour",
            ),
            (
                quota.try_warm_up(Duration::MAX),
                "a warm-up of 18446744073709551615.999999999s is longer than an hour",
            ),
            // A cold unit takes 300 ms, and a warm one 100.
            (
                quota.try_warm_up(Duration::from_micros(199_999)),
                "a warm-up of 199.999ms is over before one request has passed at this rate",
            ),
            (
                Quota::new(1_000_001, second).try_warm_up(second),
                "more than one unit in a microsecond: warm-ups are counted in microseconds",
            ),
            (
                quota.warm_up(second).try_cold_factor(20),
                "a warm-up of 1s is over before one request has passed at this rate",
            ),
            (
                quota.using(Algorithm::SlidingLog).try_warm_up(second),
                "a window, a log or a refill does not warm up: use gcra",
            ),
            (
                quota.warm_up(second).try_using(Algorithm::SlidingLog),
                "a window, a log or a refill does not warm up: use gcra",
            ),
            (
                quota.wait_up_to(second).try_warm_up(second),
                "requests cannot wait for their turn under a quota that warms up",
            ),
            (
                quota.warm_up(second).try_wait_up_to(second),
                "requests cannot wait for their turn under a quota that warms up",
            ),
            (
                Quota::from(Concurrent::at_most(5)).try_warm_up(second),
                "a limit on how many at once has no period",
            ),
            (
                quota.try_cold_factor(3),
                "a cold factor has no meaning without a warm-up",
            ),
            (
                quota.warm_up(second).try_cold_factor(0),
                "a cold factor of 0 is not between 2 and 100",
            ),
            (
                quota.warm_up(second).try_cold_factor(1),
                "a cold factor of 1 is not between 2 and 100",
            ),
            (
                quota.warm_up(second).try_cold_factor(101),
                "a cold factor of 101 is not between 2 and 100",
            ),
            (
                quota.warm_up(second).try_burst(0),
                "a burst of 0 admits nothing",
            ),
            // Three times ten years and a little.
            (
                Quota::per_day(100).burst(122_100).try_warm_up(MAX_WARM_UP),
                "a burst of 122100 takes longer than ten years to refill",
            ),
            (
                Quota::per_day(1025).try_using(Algorithm::SlidingLog),
                "a log of 1025 entries",
            ),
        ];
        for (result, expected) in cases {
            let message = result.unwrap_err().to_string();
            assert!(
                message.contains(expected),
                "{message:?} does not say {expected:?}"
            );
        }
    }
}
