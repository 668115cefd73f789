//! The errors of invalid quotas.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::bounds::{
    MAX_BUCKETS, MAX_COLD_FACTOR, MAX_LIMIT, MAX_LOG_LIMIT, MAX_STRIKES, MAX_WAIT_INTERVALS,
};

/// The reason why a quota cannot be built.
///
/// ```
/// use tollgate::{Quota, QuotaError};
///
/// let error = Quota::per_second(10).try_burst(0).unwrap_err();
/// assert_eq!(error, QuotaError::ZeroBurst);
/// assert_eq!(error.to_string(), "a burst of 0 admits nothing");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaError {
    /// A limit of 0 admits nothing.
    ZeroLimit,
    /// A burst of 0 admits nothing.
    ZeroBurst,
    /// A period of 0 has no rate.
    ZeroPeriod,
    /// The limit or burst is above [`MAX_LIMIT`](crate::MAX_LIMIT).
    LimitTooLarge {
        /// The number that was asked for.
        limit: u64,
    },
    /// The period is above [`MAX_PERIOD`](crate::MAX_PERIOD).
    PeriodTooLong {
        /// The period that was asked for.
        period: Duration,
    },
    /// The period is not a whole number of microseconds.
    PeriodNotWhole {
        /// The period that was asked for.
        period: Duration,
    },
    /// The burst takes longer than [`MAX_DRAIN`](crate::MAX_DRAIN) to refill.
    DrainTooLong {
        /// The burst that was asked for.
        burst: u64,
    },
    /// The arithmetic of this rate and burst would leave the integers that a double holds exactly.
    Inexact {
        /// The limit that was asked for.
        limit: u64,
        /// The burst that was asked for.
        burst: u64,
    },
    /// Windows and logs have no burst: their budget is their limit.
    BurstOfWindow {
        /// The burst that was asked for.
        burst: u64,
    },
    /// The offset of a window or refill is not a whole number of microseconds below the period.
    Offset {
        /// The offset that was asked for.
        offset: Duration,
    },
    /// The number of buckets is not between 2 and [`MAX_BUCKETS`](crate::MAX_BUCKETS), or does not divide the period.
    Buckets {
        /// The number of buckets that was asked for.
        buckets: u32,
    },
    /// The limit is above [`MAX_LOG_LIMIT`](crate::MAX_LOG_LIMIT).
    LogTooLong {
        /// The limit that was asked for.
        limit: u64,
    },
    /// A wait of 0 has no effect.
    ZeroWait,
    /// The wait is above [`MAX_WAIT`](crate::MAX_WAIT), or above [`MAX_WAIT_INTERVALS`](crate::MAX_WAIT_INTERVALS) of the rate.
    WaitTooLong {
        /// The wait that was asked for.
        wait: Duration,
    },
    /// Only [`Gcra`](crate::Algorithm::Gcra) gives requests turns to wait for.
    WaitOfWindow,
    /// A warm-up of 0 has no effect.
    ZeroWarmUp,
    /// The warm-up is above [`MAX_WARM_UP`](crate::MAX_WARM_UP).
    WarmUpTooLong {
        /// The period that was asked for.
        warm_up: Duration,
    },
    /// The warm-up is shorter than one request takes at this rate on the way from cold to warm.
    WarmUpTooShort {
        /// The period that was asked for.
        warm_up: Duration,
    },
    /// A unit drains in less than a microsecond, in which warm-ups are counted.
    WarmUpOfFastRate,
    /// Only [`Gcra`](crate::Algorithm::Gcra) warms up.
    WarmUpOfWindow,
    /// Requests cannot wait for their turn under a quota that warms up.
    WaitOfWarmUp,
    /// The cold factor is not between 2 and [`MAX_COLD_FACTOR`](crate::MAX_COLD_FACTOR).
    ColdFactor {
        /// The factor that was asked for.
        factor: u64,
    },
    /// The quota does not warm up, and so is never cold.
    ColdFactorAlone,
    /// A ban counts 1 to 64 strikes.
    Strikes {
        /// The number that was asked for.
        strikes: u64,
    },
    /// A ban whose lengths double is at most as long as this, and lasts longer at first.
    Doubling {
        /// The length of the first ban.
        lasting: Duration,
        /// The longest that was asked for.
        most: Duration,
    },
    /// A ban whose doublings are forgiven after a time has none, because it does not double.
    ForgivenAlone,
    /// A ban is not a quota: it has no budget, burst, wait or algorithm. It stands beside the quotas of a policy.
    QuotaOfBan,
    /// No id is remembered for so long.
    OnceLife {
        /// The life that was asked for.
        life: Duration,
    },
    /// The number of replays of an id is 0 or too large.
    Replays {
        /// The number that was asked for.
        replays: u64,
    },
    /// The units that are kept for others are all that a full budget holds, or more.
    KeepsAll {
        /// The units that are kept.
        kept: u64,
        /// The units that a full budget holds.
        capacity: u64,
    },
    /// Units cannot be kept for others where requests wait for their turn: all turns are one line, and a point in it has no
    /// classes.
    KeptOfTurns,
    /// Units cannot be kept of a quota that warms up: cold units take more room than one each, and would take what is kept.
    KeptOfWarmUp,
    /// The period of a quota by a calendar is that calendar's, and no other.
    PeriodOfCalendar {
        /// The period that was asked for.
        period: Duration,
    },
    /// A limit on how many at once has no period, and no algorithm but its own: it is built by
    /// [`Concurrent`](crate::Concurrent).
    NoPeriod,
}

impl QuotaError {
    /// The reason without its figures, for places where nothing can be formatted: in a `const`.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::ZeroLimit => "a limit of 0 admits nothing",
            Self::ZeroBurst => "a burst of 0 admits nothing",
            Self::ZeroPeriod => "a period of 0 has no rate",
            Self::LimitTooLarge { .. } => "the limit or burst is above the largest limit, 2^40",
            Self::PeriodTooLong { .. } => "the period is longer than 366 days",
            Self::PeriodNotWhole { .. } => "the period is not a whole number of microseconds",
            Self::DrainTooLong { .. } => "the burst takes longer than ten years to refill",
            Self::Inexact { .. } => {
                "the rate and burst cannot be exact within 2^53: choose a rounder limit or a smaller burst"
            }
            Self::BurstOfWindow { .. } => {
                "a burst has no meaning for a window or log, whose budget is its limit"
            }
            Self::Offset { .. } => {
                "the offset is not a whole number of microseconds below the period"
            }
            Self::Buckets { .. } => {
                "the buckets are not between 2 and 128, or do not divide the period"
            }
            Self::LogTooLong { .. } => {
                "a sliding log keeps an entry per unit and at most 1024 of them: use a rolling window"
            }
            Self::ZeroWait => "a wait of 0 has no effect: leave it out",
            Self::WaitTooLong { .. } => {
                "the wait is longer than an hour, or than 1000 intervals of the rate"
            }
            Self::WaitOfWindow => {
                "requests cannot wait for a window, a log or a refill, which give them no turns: use gcra"
            }
            Self::ZeroWarmUp => "a warm-up of 0 has no effect: leave it out",
            Self::WarmUpTooLong { .. } => "the warm-up is longer than an hour",
            Self::WarmUpTooShort { .. } => {
                "the warm-up is over before one request has passed at this rate"
            }
            Self::WarmUpOfFastRate => {
                "more than one unit in a microsecond: warm-ups are counted in microseconds"
            }
            Self::WarmUpOfWindow => "a window, a log or a refill does not warm up: use gcra",
            Self::WaitOfWarmUp => {
                "requests cannot wait for their turn under a quota that warms up: leave out one of them"
            }
            Self::ColdFactor { .. } => "the cold factor is not between 2 and 100",
            Self::ColdFactorAlone => "a cold factor has no meaning without a warm-up",
            Self::Strikes { .. } => "a ban counts 1 to 64 strikes",
            Self::Doubling { .. } => "the longest ban is shorter than the first",
            Self::ForgivenAlone => {
                "`forgiven after` needs `doubling to`: a ban that never doubles has no doubling to forgive"
            }
            Self::QuotaOfBan => {
                "a ban has no budget, burst, wait or algorithm: it stands beside the quotas of a policy"
            }
            Self::OnceLife { .. } => "an id is remembered for a day at most",
            Self::Replays { .. } => "an id has 1 to 100 replays, and then its request is charged",
            Self::KeepsAll { .. } => "all that a full budget holds is kept: nothing ever passes",
            Self::KeptOfTurns => {
                "no share can be kept where requests wait for their turn: a line of turns has no classes"
            }
            Self::KeptOfWarmUp => {
                "no share can be kept of a quota that warms up: cold units take more room than one each, and would take the share"
            }
            Self::PeriodOfCalendar { .. } => {
                "a quota by a calendar has the period of that calendar: use Quota::per_calendar"
            }
            Self::NoPeriod => {
                "a limit on how many at once has no period, burst or other algorithm: it is written \"5 at once\""
            }
        }
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroLimit
            | Self::ZeroBurst
            | Self::ZeroPeriod
            | Self::ZeroWait
            | Self::WaitOfWindow
            | Self::ZeroWarmUp
            | Self::WarmUpOfFastRate
            | Self::WarmUpOfWindow
            | Self::WaitOfWarmUp
            | Self::ColdFactorAlone
            | Self::ForgivenAlone
            | Self::QuotaOfBan
            | Self::KeptOfTurns
            | Self::KeptOfWarmUp
            | Self::NoPeriod => f.write_str(self.reason()),
            Self::OnceLife { life } => write!(f, "a life of {life:?}: {}", self.reason()),
            Self::Replays { replays } => write!(f, "{replays} replays: {}", self.reason()),
            Self::Strikes { strikes } => {
                write!(
                    f,
                    "a ban after {strikes} strikes: a ban counts 1 to {MAX_STRIKES}"
                )
            }
            Self::Doubling { lasting, most } => write!(
                f,
                "a ban that lasts {lasting:?} at first cannot double up to {most:?}, which is less"
            ),
            Self::WaitTooLong { wait } => write!(
                f,
                "a wait of {wait:?} is longer than an hour, or than {MAX_WAIT_INTERVALS} intervals of the rate"
            ),
            Self::WarmUpTooLong { warm_up } => {
                write!(f, "a warm-up of {warm_up:?} is longer than an hour")
            }
            Self::WarmUpTooShort { warm_up } => write!(
                f,
                "a warm-up of {warm_up:?} is over before one request has passed at this rate"
            ),
            Self::ColdFactor { factor } => write!(
                f,
                "a cold factor of {factor} is not between 2 and {MAX_COLD_FACTOR}"
            ),
            Self::KeepsAll { kept, capacity } => write!(
                f,
                "{kept} kept of a full budget of {capacity}: nothing ever passes"
            ),
            Self::LimitTooLarge { limit } => {
                write!(f, "{limit} is above the largest limit, {MAX_LIMIT}")
            }
            Self::PeriodTooLong { period } => {
                write!(f, "a period of {period:?} is longer than 366 days")
            }
            Self::PeriodOfCalendar { period } => write!(
                f,
                "a period of {period:?} is not that of the calendar: use Quota::per_calendar"
            ),
            Self::PeriodNotWhole { period } => {
                write!(f, "{period:?} is not a whole number of microseconds")
            }
            Self::DrainTooLong { burst } => {
                write!(
                    f,
                    "a burst of {burst} takes longer than ten years to refill"
                )
            }
            Self::Inexact { limit, burst } => write!(
                f,
                "a limit of {limit} with a burst of {burst} cannot be exact within 2^53: choose a rounder limit or a \
                 smaller burst"
            ),
            Self::BurstOfWindow { burst } => write!(
                f,
                "a burst of {burst} has no meaning for a window or log, whose budget is its limit"
            ),
            Self::Offset { offset } => write!(
                f,
                "the offset {offset:?} is not a whole number of microseconds below the period"
            ),
            Self::Buckets { buckets } => write!(
                f,
                "{buckets} buckets are not between 2 and {MAX_BUCKETS}, or do not divide the period's microseconds"
            ),
            Self::LogTooLong { limit } => write!(
                f,
                "a log of {limit} entries is too long: a sliding log keeps one per unit and at most {MAX_LOG_LIMIT}; use \
                 a rolling window"
            ),
        }
    }
}

impl Error for QuotaError {}

/// The reason why a text is an invalid quota.
///
/// ```
/// use tollgate::{ParseQuotaError, Quota};
///
/// let error = "ten a second".parse::<Quota>().unwrap_err();
/// assert!(matches!(error, ParseQuotaError::Syntax { .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseQuotaError {
    /// The text is of neither form: `LIMIT/PERIOD [burst N] [ALGORITHM …]` or `LIMIT at once`.
    Syntax {
        /// The text that stood where something else was expected, shortened if it is long.
        found: String,
        /// The text that was expected.
        expected: &'static str,
        /// The nearest quota that works, if one is near.
        instead: Option<String>,
    },
    /// The text is a quota that cannot be built.
    Quota(QuotaError),
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax {
                found,
                expected,
                instead,
            } => {
                write!(f, "expected {expected}, found ")?;
                match found.as_str() {
                    "" => f.write_str("the end")?,
                    found => write!(f, "{found:?}")?,
                }
                match instead {
                    Some(instead) => write!(f, "; did you mean {instead:?}"),
                    None => Ok(()),
                }
            }
            Self::Quota(error) => write!(f, "{error}"),
        }
    }
}

// `Quota` shows its error in full, so it is not a source as well.
impl Error for ParseQuotaError {}

impl From<QuotaError> for ParseQuotaError {
    fn from(error: QuotaError) -> Self {
        Self::Quota(error)
    }
}
