//! Quotas: how much, per how long, by which algorithm.

pub(crate) mod text;
mod waits;
mod warm_ups;

use std::fmt;
use std::time::Duration;

use self::waits::saturating_micros;
use crate::Calendar;
use crate::algorithm::{
    Algorithm, CalendarWindow, FixedWindow, Gcra, Held, IntervalRefill, OnceRule, Onset, Penalty,
    RollingWindow, Rule, SlidingLog, SlidingWindow, State, Unit,
};
use crate::bounds::{MAX_BUCKETS, MAX_LIMIT, MAX_LOG_LIMIT, MAX_PERIOD};
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
    /// [`try_using`](Self::try_using), but it also accepts windows whose limit is not an exact rate.
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
            Rule::Gcra(_) | Rule::IntervalRefill(_) => self.with_burst(burst),
            _ => Err(self.refusal(QuotaError::BurstOfWindow { burst })),
        }
    }

    /// This limit and period as a bucket that holds `burst`, and is refilled in intervals if it was before.
    const fn with_burst(self, burst: u64) -> Result<Self, QuotaError> {
        if burst == 0 {
            return Err(QuotaError::ZeroBurst);
        }
        if burst > MAX_LIMIT {
            return Err(QuotaError::LimitTooLarge { limit: burst });
        }
        if let Rule::IntervalRefill(rule) = &self.rule {
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
        let wait_us = saturating_micros(self.longest_wait());
        match Gcra::new(self.limit, self.period_us, burst) {
            Ok(rule) => self
                .by_gcra(rule)
                .with_extras(wait_us, self.warm_up_figures()),
            Err(error) => Err(error),
        }
    }

    const fn by_gcra(self, rule: Gcra) -> Self {
        Self {
            rule: Rule::Gcra(rule),
            ..self
        }
    }

    /// The reason why this quota has no burst, wait or warm-up: `of_window`, if a window or a log is the reason.
    const fn refusal(&self, of_window: QuotaError) -> QuotaError {
        match &self.rule {
            Rule::Held(_) => QuotaError::NoPeriod,
            Rule::Ban(_) | Rule::Once(_) => QuotaError::QuotaOfBan,
            _ => of_window,
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
    /// If nothing would be left, if requests [wait](Self::wait_up_to) for their turn, or if the quota [warms up](Self::warm_up): a
    /// cold unit takes more room than one, so that a request which leaves the share would spend it.
    pub const fn try_keeping(self, kept: u64) -> Result<Self, QuotaError> {
        let capacity = self.capacity();
        if kept >= capacity {
            return Err(QuotaError::KeepsAll { kept, capacity });
        }
        let limit = capacity - kept;
        let rule = match self.rule {
            Rule::Gcra(_) if self.waits() => return Err(QuotaError::KeptOfTurns),
            Rule::Gcra(gcra) if gcra.warm_up().is_some() => return Err(QuotaError::KeptOfWarmUp),
            Rule::Gcra(_) | Rule::IntervalRefill(_) => return self.with_burst(limit),
            Rule::Held(held) => Ok(Rule::Held(Held { limit, ..held })),
            _ => rule(limit, self.period_us, self.algorithm()),
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

    /// The furthest that a state of this quota may lie ahead, as its states [tell](crate::Snapshot) it: 2^n µs and the
    /// thirty-seconds of that more, eight times. For backends.
    #[doc(hidden)]
    #[must_use]
    pub const fn reach(&self) -> Option<(u8, u8)> {
        match self.rule.as_gcra() {
            Some(rule) => Some((rule.reach().exponent(), rule.reach().thirty_seconds())),
            None => None,
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
            _ => self.limit,
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

    /// True if this is a ban of which denials of the same call are strikes.
    pub(crate) const fn hears_denials(&self) -> bool {
        if let Rule::Ban(penalty) = &self.rule {
            !matches!(penalty.onset, Onset::Unheard)
        } else {
            false
        }
    }

    /// True if this is a ban that begins anew with each request of its caller.
    pub(crate) const fn hears_knocks(&self) -> bool {
        if let Rule::Ban(penalty) = &self.rule {
            matches!(penalty.onset, Onset::Extended)
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
            // That of refills in intervals is the burst.
            _ => self.limit,
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

pub(crate) const fn whole_micros(duration: Duration) -> Option<u64> {
    let micros = duration.as_micros();
    if duration.subsec_nanos().is_multiple_of(1000) && micros <= u64::MAX as u128 {
        #[expect(clippy::cast_possible_truncation, reason = "just checked")]
        return Some(micros as u64);
    }
    None
}

#[cfg(test)]
mod tests;
