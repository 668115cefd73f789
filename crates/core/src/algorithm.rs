//! The rules, one file each, and the state that each keeps of a key.
//!
//! A rule is a handful of pure functions over (state, now, cost). [`decide`](crate::decide) and [`Receipt`](crate::Receipt) say
//! how a backend uses them; no other code touches a state.

mod calendar_window;
mod fixed_window;
mod gcra;
mod held;
mod interval_refill;
mod once;
mod packed;
mod penalty;
mod rolling_window;
mod rule;
mod sliding_log;
mod sliding_window;
mod snapshot;
mod state;
mod unit;

use std::time::Duration;

pub(crate) use self::calendar_window::CalendarWindow;
pub(crate) use self::fixed_window::FixedWindow;
pub(crate) use self::gcra::{Gcra, Point};
pub(crate) use self::held::Held;
pub(crate) use self::interval_refill::IntervalRefill;
pub(crate) use self::once::OnceRule;
pub(crate) use self::packed::PackedInteger;
pub(crate) use self::penalty::{Onset, Penalty, Span};
pub(crate) use self::rolling_window::RollingWindow;
pub(crate) use self::rule::Rule;
pub(crate) use self::sliding_log::SlidingLog;
pub(crate) use self::sliding_window::SlidingWindow;
pub use self::snapshot::{CreditMark, GapMark, QueueMark, Snapshot};
pub use self::state::State;
pub use self::unit::Unit;

use crate::Calendar;

/// The ceiling for charges and debts together, as a multiple of a budget's capacity: eight.
///
/// Enforced charges stop at the capacity itself. A [debit](crate::Backend::debit) may go on to seven more: enough to pay the
/// real cost of a few requests in full when they turn out far larger than announced, and little enough that a wrong figure, or
/// a clock that stepped back, locks a caller out for eight refills and not for ever.
pub const DEBT_CEILING: u64 = 8;

/// The rule that decides a quota, with the most that it lets through in any window of one period.
///
/// ```
/// use tollgate::{Algorithm, Quota};
///
/// // Spaces requests evenly after the burst.
/// let api = Quota::per_second(10);
/// assert_eq!(api.algorithm(), Algorithm::Gcra);
///
/// // As many as the contract says between two midnights, UTC.
/// let contract = Quota::per_day(1_000).using(Algorithm::FixedWindow { offset: std::time::Duration::ZERO });
///
/// // Never more than five in any minute.
/// let login = Quota::per_minute(5).using(Algorithm::SlidingLog);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket that drains at limit/period and holds one burst, also known as token bucket, or leaky bucket as a meter. State:
    /// one point in time. Worst case: burst + limit, of a period and its last instant.
    #[default]
    Gcra,
    /// A count that starts anew in each window. Windows start at the Unix epoch plus an offset.
    /// State: two numbers. Worst case: twice the limit, around the end of a window.
    FixedWindow {
        /// The start of the windows after each multiple of the period; less than the period. An offset of `6h` makes a day
        /// start at six o'clock UTC.
        offset: Duration,
    },
    /// Two counts, of this window and of the previous one. The previous count is weighed by the share of its window that the
    /// sliding period still covers. State: three numbers. Worst case: just under twice the limit, when all of the previous
    /// window came at its end.
    SlidingWindow,
    /// A count for each of the last `buckets` parts of the period.
    /// State: a number per bucket. Worst case: twice the limit, around the end of a bucket; the limit in any period that
    /// starts with a bucket.
    RollingWindow {
        /// The number of parts that the period is cut into: 2 to 128. It must divide the period's microseconds.
        buckets: u32,
    },
    /// Each charge is remembered until it is a period old. Exact and expensive: use it for small limits. State: up to an entry
    /// per unit. Worst case: the limit.
    SlidingLog,
    /// The limit comes all at once at the start of each period, up to the burst: a bucket that is refilled in intervals. Periods
    /// start at the Unix epoch plus an offset. State: three numbers. Worst case: burst + limit, around the start of a period.
    ///
    /// A key that was never seen has a full burst. Over any time ℓ, burst + limit × (⌊ℓ/period⌋ + 1) pass at most. A burst below
    /// the limit admits no more than the burst in each period.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Algorithm, Quota};
    ///
    /// // Ten come at the start of each minute; a caller that has been quiet may have saved thirty.
    /// let offset = Duration::ZERO;
    /// let quota = Quota::per_minute(10).using(Algorithm::IntervalRefill { offset }).burst(30);
    /// assert_eq!("10/min interval-refill burst 30".parse(), Ok(quota));
    /// ```
    IntervalRefill {
        /// The start of the periods after each multiple of the period; less than the period. An offset of `6h` makes a day's
        /// units come at six o'clock UTC.
        offset: Duration,
    },
    /// A count that starts anew in each day, week, month or year of a time zone: see [`Calendar`], and
    /// [`Quota::per_calendar`](crate::Quota::per_calendar), which builds such a quota. State: three numbers. Worst case: twice the
    /// limit, around the end of a window.
    Calendar(Calendar),
    /// A count of the units that are held at this moment: see [`Concurrent`](crate::Concurrent), which builds such a limit. No
    /// period belongs to it. State: two numbers.
    Concurrent,
    /// A ban after a number of strikes: see [`Ban`](crate::Ban), which builds one. It admits any number until then. State: up to
    /// a time for each strike.
    Ban,
    /// Charges that count once: see [`Once`](crate::Once). It admits any number, and has no budget. State: two times and a number.
    Once,
}

/// The wait after which a denied charge would pass if nothing else arrives.
///
/// ```
/// use tollgate::RetryAfter;
///
/// // A wait sorts by its length, and never is the longest.
/// assert!(RetryAfter::Micros(1) < RetryAfter::Micros(100_000));
/// assert!(RetryAfter::Micros(u64::MAX) < RetryAfter::Unknown);
/// assert!(RetryAfter::Unknown < RetryAfter::Never);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryAfter {
    /// After this many microseconds, and not one earlier. Never 0.
    Micros(u64),
    /// The call passes once other requests have given back enough. The time of that is unknown.
    Unknown,
    /// Never: it costs more than a full budget holds.
    Never,
}

/// The outcome for a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Open,
    /// It is taken now and passes after this many microseconds, at least one.
    Later(u64),
    Closed(RetryAfter),
}

impl Passage {
    pub(crate) const NEVER: Self = Self::Closed(RetryAfter::Never);

    pub(crate) const fn after(us: u64) -> Self {
        Self::Closed(RetryAfter::Micros(us))
    }

    /// Says whether the charge passes, now or later.
    pub(crate) const fn passes(self) -> bool {
        matches!(self, Self::Open | Self::Later(_))
    }
}

/// The rest of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) remaining: u64,
    pub(crate) reset_after_us: u64,
}

/// The operations of every algorithm. States are [advanced](Self::advance) to now before anything else is asked.
trait Decider {
    type State;

    /// Brings the state to now, whatever the limit: windows that have passed are dropped.
    fn advance(&self, _state: &mut Self::State, _now: u64) {}

    /// Asks if `cost` passes. A cost of 0 always does. A clock that stepped back may leave a state further ahead than debts can
    /// reach. Such a state is brought back to the longer of two debts: this quota's, and that of the quota that wrote the
    /// state. Only a decision does so.
    fn passage(&self, state: &mut Self::State, now: u64, cost: u64) -> Passage;

    /// Takes `cost`, even if it does not fit, up to the ceiling for debts.
    fn take(&self, state: &mut Self::State, now: u64, cost: u64);

    /// Takes `cost` after the fact.
    fn debit(&self, state: &mut Self::State, now: u64, cost: u64) {
        self.take(state, now, cost);
    }

    /// Gives back at most `cost` of a charge that was taken at `at`, after which the budget was to be full at `full_at`.
    fn give_back(&self, state: &mut Self::State, now: u64, at: u64, full_at: Point, cost: u64);

    /// Reads the rest of the budget.
    fn budget(&self, state: &Self::State, now: u64) -> Budget;

    /// Does all of the above at once: asks for passage, takes the charge if it passes and `take` is set, and reads the rest.
    fn step(&self, state: &mut Self::State, now: u64, cost: u64, take: bool) -> Step {
        self.advance(state, now);
        let passage = self.passage(state, now, cost);
        let mut full_at = Point::ZERO;
        if take && cost > 0 && passage == Passage::Open {
            self.take(state, now, cost);
            full_at = self.full_at(state);
        }
        (passage, full_at, self.budget(state, now))
    }

    /// The time at which the budget will be full again, for a receipt. A log gives the time of the charge's entry instead.
    /// Algorithms whose credits need only the time of the charge give zero.
    fn full_at(&self, _state: &Self::State) -> Point {
        Point::ZERO
    }
}

/// A step of a rule: whether the charge passes, when the budget will be full again, and the rest of it.
pub(crate) type Step = (Passage, Point, Budget);

/// A window's count after taking `cost`, at most the ceiling for debts, and never less than it was.
fn count_up(count: u64, cost: u64, limit: u64) -> u64 {
    count.max(count.saturating_add(cost).min(limit * DEBT_CEILING))
}
