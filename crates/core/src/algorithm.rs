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
mod sliding_log;
mod sliding_window;
mod snapshot;
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
pub(crate) use self::sliding_log::SlidingLog;
pub(crate) use self::sliding_window::SlidingWindow;
pub use self::snapshot::{CreditMark, GapMark, QueueMark, Snapshot};
pub use self::unit::Unit;

use self::gcra::Reach;
use crate::{Calendar, Timestamp};

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

/// The state that a backend remembers of one key under one [`Scope`](crate::Scope).
///
/// Opaque: only [`decide`](crate::decide) and [`Receipt`](crate::Receipt) read it. It takes 24 bytes, so that a million of them
/// are cheap; buckets and logs live on the heap.
///
/// # Clocks that step
///
/// A clock that steps back by *D* never refills a budget. It may make one look up to *D* fuller, never fuller than full: a
/// state further ahead of now than eight budgets is brought back to that. A window or log stays where it is while the clock is
/// less than a period behind it, and new charges go into it. If the clock is further back, the window moves to now with its
/// counts. A step forward drains what it covers.
///
/// # Quotas that share a state
///
/// Callers may name different quotas for one state, as while a deploy changes a limit. No quota mistakes the other's debt for a
/// clock that stepped back: the ceiling of eight budgets is counted by the longer drain of the two quotas, the one that asks
/// and the one that wrote the state. Meanwhile a caller of the shorter quota waits for at most one full drain of the longer, or
/// for eight if the key owes more than a budget. The verdict's retry-after says so.
///
/// # Units that are held
///
/// The state of a [`Concurrent`](crate::Concurrent) limit knows no time. It is not meaningless, and must not be forgotten, while
/// anything is held.
#[derive(Clone, Debug)]
pub struct State(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Gcra(gcra::Bucket),
    FixedWindow(fixed_window::WindowCount),
    SlidingWindow(sliding_window::WindowPair),
    RollingWindow(rolling_window::BucketCounts),
    SlidingLog(sliding_log::ChargeLog),
    IntervalRefill(interval_refill::OwedRefills),
    Calendar(calendar_window::CalendarCount),
    Held(held::HeldPlaces),
    Ban(penalty::StrikeRecord),
    Once(once::SeenId),
}

impl State {
    /// The state of a key that was never seen, in this unit: its budget is full.
    #[must_use]
    pub fn empty(unit: Unit) -> Self {
        Self(match unit {
            Unit::Gcra => Repr::Gcra(gcra::Bucket::default()),
            Unit::FixedWindow { .. } => Repr::FixedWindow(fixed_window::WindowCount::default()),
            Unit::SlidingWindow { .. } => {
                Repr::SlidingWindow(sliding_window::WindowPair::default())
            }
            Unit::RollingWindow { buckets, .. } => {
                Repr::RollingWindow(rolling_window::BucketCounts::of(buckets))
            }
            Unit::SlidingLog { .. } => Repr::SlidingLog(sliding_log::ChargeLog::default()),
            Unit::IntervalRefill { .. } => {
                Repr::IntervalRefill(interval_refill::OwedRefills::default())
            }
            Unit::Calendar(_) => Repr::Calendar(calendar_window::CalendarCount::default()),
            Unit::Held => Repr::Held(held::HeldPlaces::default()),
            Unit::Ban => Repr::Ban(penalty::StrikeRecord::default()),
            Unit::Once => Repr::Once(once::SeenId::default()),
        })
    }

    /// The time from which this state says only that the budget is full, so that forgetting it changes nothing. A window or log
    /// loses its meaning a period after its end: if the clock stepped back, a forgotten window would begin anew.
    #[must_use]
    pub fn meaningless_at(&self, unit: Unit) -> Timestamp {
        // A state of another unit has no meaning in this one.
        const NOW: u64 = 0;
        Timestamp::from_micros(match unit {
            Unit::Gcra => match &self.0 {
                Repr::Gcra(state) => state.meaningless_at(),
                _ => NOW,
            },
            Unit::FixedWindow {
                period_us,
                offset_us,
            } => match &self.0 {
                Repr::FixedWindow(state) => state.meaningless_at(period_us, offset_us),
                _ => NOW,
            },
            Unit::SlidingWindow { period_us } => match &self.0 {
                Repr::SlidingWindow(state) => state.meaningless_at(period_us),
                _ => NOW,
            },
            Unit::RollingWindow { period_us, buckets } => match &self.0 {
                Repr::RollingWindow(state) => state.meaningless_at(period_us, buckets),
                _ => NOW,
            },
            Unit::SlidingLog { period_us } => match &self.0 {
                Repr::SlidingLog(state) => state.meaningless_at(period_us),
                _ => NOW,
            },
            Unit::IntervalRefill {
                period_us,
                offset_us,
            } => match &self.0 {
                Repr::IntervalRefill(state) => state.meaningless_at(period_us, offset_us),
                _ => NOW,
            },
            Unit::Calendar(_) => match &self.0 {
                Repr::Calendar(state) => state.meaningless_at(),
                _ => NOW,
            },
            Unit::Held => match &self.0 {
                Repr::Held(state) => state.meaningless_at(),
                _ => NOW,
            },
            Unit::Ban => match &self.0 {
                Repr::Ban(state) => state.meaningless_at(),
                _ => NOW,
            },
            Unit::Once => match &self.0 {
                Repr::Once(state) => state.meaningless_at(),
                _ => NOW,
            },
        })
    }

    /// The time for which an identity with this state is still banned at `now`; `None` if it is not.
    #[must_use]
    pub fn banned_for(&self, now: Timestamp) -> Option<Duration> {
        match &self.0 {
            Repr::Ban(state) => state.banned_for(now.as_micros()),
            _ => None,
        }
    }

    /// The state as plain numbers.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        match &self.0 {
            Repr::Gcra(state) => state.snapshot(),
            Repr::FixedWindow(state) => state.snapshot(),
            Repr::SlidingWindow(state) => state.snapshot(),
            Repr::RollingWindow(state) => state.snapshot(),
            Repr::SlidingLog(state) => state.snapshot(),
            Repr::IntervalRefill(state) => state.snapshot(),
            Repr::Calendar(state) => state.snapshot(),
            Repr::Held(state) => state.snapshot(),
            Repr::Ban(state) => state.snapshot(),
            Repr::Once(state) => state.snapshot(),
        }
    }
}

impl From<Snapshot> for State {
    fn from(snapshot: Snapshot) -> Self {
        Self(match snapshot {
            Snapshot::Gcra {
                full_at_us,
                rest,
                rest_of,
                exponent,
                thirty_seconds,
                credits,
                queue,
                cold_at_us,
                cold_at_ticks,
            } => {
                let point = Point {
                    us: full_at_us,
                    rest,
                };
                let reach = Reach::new(exponent, thirty_seconds);
                let cold_at = (cold_at_us, cold_at_ticks);
                Repr::Gcra(gcra::Bucket::restore(
                    point, rest_of, reach, &credits, &queue, cold_at,
                ))
            }
            Snapshot::FixedWindow { window, count } => {
                Repr::FixedWindow(fixed_window::WindowCount::restore(window, count))
            }
            Snapshot::SlidingWindow {
                window,
                previous,
                current,
            } => Repr::SlidingWindow(sliding_window::WindowPair::restore(
                window, previous, current,
            )),
            Snapshot::RollingWindow { newest, counts } => {
                Repr::RollingWindow(rolling_window::BucketCounts::restore(newest, counts))
            }
            Snapshot::SlidingLog { entries } => {
                Repr::SlidingLog(sliding_log::ChargeLog::restore(entries))
            }
            Snapshot::IntervalRefill {
                window,
                ahead,
                count,
            } => Repr::IntervalRefill(interval_refill::OwedRefills::restore(window, ahead, count)),
            Snapshot::Calendar {
                start_us,
                end_us,
                count,
            } => Repr::Calendar(calendar_window::CalendarCount::restore(
                start_us, end_us, count,
            )),
            Snapshot::Held {
                held,
                generation_us,
            } => Repr::Held(held::HeldPlaces::restore(held, generation_us)),
            Snapshot::Ban {
                since_us,
                until_us,
                level,
                strikes_us,
                kept_until_us,
            } => Repr::Ban(penalty::StrikeRecord::restore(
                since_us,
                until_us,
                level,
                strikes_us,
                kept_until_us,
            )),
            Snapshot::Once {
                since_us,
                until_us,
                replays,
            } => Repr::Once(once::SeenId::restore(since_us, until_us, replays)),
        })
    }
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

/// An algorithm with its precomputed figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    Gcra(Gcra),
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    RollingWindow(RollingWindow),
    SlidingLog(SlidingLog),
    IntervalRefill(IntervalRefill),
    Calendar(CalendarWindow),
    Held(Held),
    Ban(Penalty),
    Once(OnceRule),
}

/// Runs one expression with the rule and the state of its algorithm. A state of another algorithm is replaced by that of a new
/// key; scopes do not let this happen.
macro_rules! with_rule {
    ($of:expr, $state:expr, |$rule:ident, $inner:ident| $body:expr) => {{
        if !$of.reads($state) {
            *$state = State::empty($of.unit());
        }
        match $of {
            Rule::Gcra($rule) => with_rule!(@state Gcra $state, |$inner| $body),
            Rule::FixedWindow($rule) => with_rule!(@state FixedWindow $state, |$inner| $body),
            Rule::SlidingWindow($rule) => with_rule!(@state SlidingWindow $state, |$inner| $body),
            Rule::RollingWindow($rule) => with_rule!(@state RollingWindow $state, |$inner| $body),
            Rule::SlidingLog($rule) => with_rule!(@state SlidingLog $state, |$inner| $body),
            Rule::IntervalRefill($rule) => with_rule!(@state IntervalRefill $state, |$inner| $body),
            Rule::Calendar($rule) => with_rule!(@state Calendar $state, |$inner| $body),
            Rule::Held($rule) => with_rule!(@state Held $state, |$inner| $body),
            Rule::Ban($rule) => with_rule!(@state Ban $state, |$inner| $body),
            Rule::Once($rule) => with_rule!(@state Once $state, |$inner| $body),
        }
    }};
    (@state $algorithm:ident $state:expr, |$inner:ident| $body:expr) => {
        match &mut $state.0 {
            Repr::$algorithm($inner) => $body,
            _ => unreachable!("the state was just made for this rule"),
        }
    };
}

impl Rule {
    pub(crate) const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Gcra(_) => Algorithm::Gcra,
            Self::FixedWindow(rule) => Algorithm::FixedWindow {
                offset: Duration::from_micros(rule.offset_us),
            },
            Self::SlidingWindow(_) => Algorithm::SlidingWindow,
            Self::RollingWindow(rule) => Algorithm::RollingWindow {
                buckets: rule.buckets,
            },
            Self::SlidingLog(_) => Algorithm::SlidingLog,
            Self::IntervalRefill(rule) => Algorithm::IntervalRefill {
                offset: Duration::from_micros(rule.offset_us()),
            },
            Self::Calendar(rule) => Algorithm::Calendar(rule.calendar),
            Self::Held(_) => Algorithm::Concurrent,
            Self::Ban(_) => Algorithm::Ban,
            Self::Once(_) => Algorithm::Once,
        }
    }

    /// The unit that the states of this rule are counted in.
    pub(crate) const fn unit(&self) -> Unit {
        match self {
            Self::Gcra(_) => Unit::Gcra,
            Self::FixedWindow(rule) => Unit::FixedWindow {
                period_us: rule.period_us,
                offset_us: rule.offset_us,
            },
            Self::SlidingWindow(rule) => Unit::SlidingWindow {
                period_us: rule.period_us,
            },
            Self::RollingWindow(rule) => Unit::RollingWindow {
                period_us: rule.period_us(),
                buckets: rule.buckets,
            },
            Self::SlidingLog(rule) => Unit::SlidingLog {
                period_us: rule.period_us,
            },
            Self::IntervalRefill(rule) => Unit::IntervalRefill {
                period_us: rule.period_us(),
                offset_us: rule.offset_us(),
            },
            Self::Calendar(rule) => Unit::Calendar(rule.calendar),
            Self::Held(_) => Unit::Held,
            Self::Ban(_) => Unit::Ban,
            Self::Once(_) => Unit::Once,
        }
    }

    /// This rule, if it is GCRA.
    #[inline]
    pub(crate) const fn as_gcra(&self) -> Option<&Gcra> {
        match self {
            Self::Gcra(rule) => Some(rule),
            Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::RollingWindow(_)
            | Self::SlidingLog(_)
            | Self::IntervalRefill(_)
            | Self::Calendar(_)
            | Self::Held(_)
            | Self::Ban(_)
            | Self::Once(_) => None,
        }
    }

    /// The longest time that a charge waits for its turn; `None` if none waits.
    #[inline]
    pub(crate) const fn wait_us(&self) -> Option<u32> {
        match self {
            Self::Gcra(rule) if rule.waits() => Some(rule.wait_us()),
            Self::Held(rule) if rule.wait_us > 0 => Some(rule.wait_us),
            Self::Gcra(_)
            | Self::Held(_)
            | Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::RollingWindow(_)
            | Self::SlidingLog(_)
            | Self::IntervalRefill(_)
            | Self::Calendar(_)
            | Self::Ban(_)
            | Self::Once(_) => None,
        }
    }

    #[inline]
    fn reads(&self, state: &State) -> bool {
        match self {
            Self::Gcra(_) => matches!(state.0, Repr::Gcra(_)),
            Self::FixedWindow(_) => matches!(state.0, Repr::FixedWindow(_)),
            Self::SlidingWindow(_) => matches!(state.0, Repr::SlidingWindow(_)),
            Self::RollingWindow(rule) => {
                matches!(&state.0, Repr::RollingWindow(state) if state.fits(rule))
            }
            Self::SlidingLog(_) => matches!(state.0, Repr::SlidingLog(_)),
            Self::IntervalRefill(_) => matches!(state.0, Repr::IntervalRefill(_)),
            Self::Calendar(_) => matches!(state.0, Repr::Calendar(_)),
            Self::Held(_) => matches!(state.0, Repr::Held(_)),
            Self::Ban(_) => matches!(state.0, Repr::Ban(_)),
            Self::Once(_) => matches!(state.0, Repr::Once(_)),
        }
    }

    /// Asks if `cost` passes now. This brings the state to now, which no caller can observe.
    #[inline]
    pub(crate) fn passage(&self, state: &mut State, now: u64, cost: u64) -> Passage {
        // The commonest algorithm comes first, because a `match` over all of them costs as much as the question.
        if let (Self::Gcra(rule), Repr::Gcra(inner)) = (self, &mut state.0) {
            return rule.passage(inner, now, cost);
        }
        self.passage_of_any(state, now, cost)
    }

    #[inline(never)]
    fn passage_of_any(&self, state: &mut State, now: u64, cost: u64) -> Passage {
        with_rule!(self, state, |rule, inner| {
            rule.advance(inner, now);
            rule.passage(inner, now, cost)
        })
    }

    /// Reads the rest of a state that was just asked for passage.
    pub(crate) fn budget(&self, state: &mut State, now: u64) -> Budget {
        with_rule!(self, state, |rule, inner| rule.budget(inner, now))
    }

    /// Asks for passage, takes the charge if it passes and `take` is set, and tells when the budget will be full again and what
    /// is left.
    #[inline(never)]
    pub(crate) fn step(&self, state: &mut State, now: u64, cost: u64, take: bool) -> Step {
        with_rule!(self, state, |rule, inner| rule.step(inner, now, cost, take))
    }

    /// Takes the step of the commonest algorithm in 64 bits; `None` if the quota needs the general way.
    // Inlined always: a call would hand the result over in memory.
    #[inline(always)]
    pub(crate) fn quick_step(
        &self,
        state: &mut State,
        now: u64,
        cost: u64,
        take: bool,
    ) -> Option<Step> {
        let (Self::Gcra(rule), Repr::Gcra(inner)) = (self, &mut state.0) else {
            return None;
        };
        rule.quick_step(inner, now, cost, take)
    }

    /// Takes the step of a limit on how many at once; `None` for every other quota.
    #[inline]
    pub(crate) fn held_step(
        &self,
        state: &mut State,
        now: u64,
        cost: u64,
        take: bool,
    ) -> Option<Step> {
        let (Self::Held(rule), Repr::Held(inner)) = (self, &mut state.0) else {
            return None;
        };
        Some(rule.step(inner, now, cost, take))
    }

    #[inline]
    pub(crate) fn credit(&self, state: &mut State, now: u64, at: u64, full_at: Point, cost: u64) {
        if let (Self::Held(rule), Repr::Held(inner)) = (self, &mut state.0) {
            return rule.give_back(inner, now, at, full_at, cost);
        }
        self.credit_of_any(state, now, at, full_at, cost);
    }

    #[inline(never)]
    fn credit_of_any(&self, state: &mut State, now: u64, at: u64, full_at: Point, cost: u64) {
        with_rule!(self, state, |rule, inner| {
            rule.advance(inner, now);
            rule.give_back(inner, now, at, full_at, cost);
        });
    }

    /// The point at which a charge that may wait would be drained if it took this much less.
    pub(crate) fn earlier(&self, full_at: Point, cost: u64) -> Point {
        match self {
            Self::Gcra(rule) if rule.waits() => rule.earlier(full_at, cost),
            Self::Gcra(_)
            | Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::RollingWindow(_)
            | Self::SlidingLog(_)
            | Self::IntervalRefill(_)
            | Self::Calendar(_)
            | Self::Held(_)
            | Self::Ban(_)
            | Self::Once(_) => full_at,
        }
    }

    /// Counts a denial of the charges that this ban guards. Other rules count none.
    pub(crate) fn strike(&self, state: &mut State, now: u64) {
        if let (Self::Ban(rule), Repr::Ban(inner)) = (self, &mut state.0) {
            rule.strike_once(inner, now);
        }
    }

    /// Says whether this remembers an id of which a request is a replay. Other rules remember none.
    pub(crate) fn is_replay(&self, state: &mut State, now: u64) -> bool {
        match (self, &mut state.0) {
            (Self::Once(rule), Repr::Once(inner)) => rule.is_replay(inner, now),
            _ => false,
        }
    }

    /// Counts a replay of an id.
    pub(crate) fn replay(&self, state: &mut State) {
        if let (Self::Once(_), Repr::Once(inner)) = (self, &mut state.0) {
            inner.count_replay();
        }
    }

    pub(crate) fn debit(&self, state: &mut State, now: u64, cost: u64) {
        with_rule!(self, state, |rule, inner| {
            rule.advance(inner, now);
            rule.debit(inner, now, cost);
        });
    }
}

/// A window's count after taking `cost`, at most the ceiling for debts, and never less than it was.
fn count_up(count: u64, cost: u64, limit: u64) -> u64 {
    count.max(count.saturating_add(cost).min(limit * DEBT_CEILING))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Concurrent, Quota};

    #[test]
    fn a_state_is_24_bytes() {
        assert_eq!(size_of::<State>(), 24);
    }

    /// It is copied with each receipt and each verdict that is shown.
    #[test]
    fn a_rule_is_32_bytes() {
        assert_eq!(size_of::<Rule>(), 32);
    }

    /// A state from a backend may belong to another algorithm, though scopes rule this out.
    #[test]
    fn a_state_of_another_unit_is_replaced_by_that_of_a_key_never_seen() {
        const NOW: u64 = 1_000_000_000;
        let offset = Duration::ZERO;
        let quotas = [
            Algorithm::Gcra,
            Algorithm::FixedWindow { offset },
            Algorithm::SlidingWindow,
            Algorithm::RollingWindow { buckets: 2 },
            Algorithm::RollingWindow { buckets: 4 },
            Algorithm::RollingWindow { buckets: 5 },
            Algorithm::SlidingLog,
            Algorithm::IntervalRefill { offset },
        ]
        .map(|algorithm| Quota::per_second(10).using(algorithm));
        let quotas = quotas.into_iter().chain([
            Concurrent::at_most(10).into(),
            #[cfg(feature = "calendar")]
            Quota::per_calendar(10, Calendar::day(crate::Zone::UTC)),
        ]);
        let quotas: Vec<Quota> = quotas.collect();
        let pairs = quotas
            .iter()
            .flat_map(|one| quotas.iter().map(move |other| (one, other)));
        for (one, other) in pairs.filter(|(one, other)| one.unit() != other.unit()) {
            // given a state that was spent by another rule
            let mut state = State::empty(other.unit());
            let (passage, ..) = other.rule().step(&mut state, NOW, 10, true);
            assert_eq!(passage, Passage::Open);

            // when a charge asks for it
            let step = one.rule().step(&mut state, NOW, 3, true);

            // then the answer is that of a new key
            let mut none = State::empty(one.unit());
            assert_eq!(step, one.rule().step(&mut none, NOW, 3, true));
            assert_eq!(state.snapshot(), none.snapshot(), "{other}, then {one}");
        }
    }

    #[test]
    fn a_state_comes_back_from_its_snapshot_as_it_was() {
        let credit = |at_us| CreditMark {
            at_us,
            from_us: 5,
            length_us: 3,
            last_us: 90,
        };
        let gcra = |rest, rest_of, thirty_seconds, credits| Snapshot::Gcra {
            full_at_us: 77,
            rest,
            rest_of,
            exponent: 4,
            thirty_seconds,
            credits,
            queue: QueueMark::default(),
            cold_at_us: 0,
            cold_at_ticks: 0,
        };
        for snapshot in [
            gcra(0, 0, 0, vec![]),
            gcra(2, 7, 31, vec![credit(3), credit(4)]),
            Snapshot::FixedWindow {
                window: 9,
                count: 3,
            },
            Snapshot::SlidingWindow {
                window: 9,
                previous: 2,
                current: 3,
            },
            Snapshot::RollingWindow {
                newest: 9,
                counts: vec![1, 0, 2],
            },
            Snapshot::SlidingLog {
                entries: vec![(4, 1), (9, 2)],
            },
            Snapshot::IntervalRefill {
                window: 9,
                ahead: 2,
                count: 3,
            },
            Snapshot::Calendar {
                start_us: 4,
                end_us: 9,
                count: 3,
            },
            Snapshot::Held {
                held: 3,
                generation_us: 9,
            },
        ] {
            assert_eq!(State::from(snapshot.clone()).snapshot(), snapshot);
        }
        // A rest of zero has no denominator, and a point beyond the largest time is cut off.
        let none = State::from(gcra(0, 7, 0, vec![]));
        assert_eq!(none.snapshot(), gcra(0, 0, 0, vec![]));
        let late = State::from(Snapshot::Gcra {
            full_at_us: u64::MAX,
            rest: 0,
            rest_of: 0,
            exponent: 4,
            thirty_seconds: 9,
            credits: vec![],
            queue: QueueMark::default(),
            cold_at_us: 0,
            cold_at_ticks: 0,
        });
        let Snapshot::Gcra {
            full_at_us,
            exponent,
            thirty_seconds,
            ..
        } = late.snapshot()
        else {
            panic!("{late:?}");
        };
        assert_eq!(
            (full_at_us, exponent, thirty_seconds),
            ((1 << 53) - 1, 4, 9)
        );
    }

    #[test]
    fn a_state_is_kept_until_no_clock_that_is_less_than_a_period_behind_can_miss_it() {
        let fixed = Unit::FixedWindow {
            period_us: 100,
            offset_us: 7,
        };
        let sliding = Unit::SlidingWindow { period_us: 100 };
        let rolling = Unit::RollingWindow {
            period_us: 100,
            buckets: 4,
        };
        let log = Unit::SlidingLog { period_us: 100 };
        let refill = Unit::IntervalRefill {
            period_us: 100,
            offset_us: 7,
        };
        let of_fixed = |window, count| Snapshot::FixedWindow { window, count };
        let of_sliding = |window, previous, current| Snapshot::SlidingWindow {
            window,
            previous,
            current,
        };
        let of_rolling = |newest, counts: [u64; 4]| Snapshot::RollingWindow {
            newest,
            counts: counts.to_vec(),
        };
        let of_refill = |window, ahead, count| Snapshot::IntervalRefill {
            window,
            ahead,
            count,
        };
        let of_held = |held| Snapshot::Held {
            held,
            generation_us: 9,
        };
        let of_gcra = |rest, credits: &[(u64, u64)]| Snapshot::Gcra {
            full_at_us: 77,
            rest,
            rest_of: 3,
            exponent: 4,
            thirty_seconds: 0,
            credits: { credits.iter() }
                .map(|&(at_us, last_us)| CreditMark {
                    at_us,
                    from_us: 5,
                    length_us: 3,
                    last_us,
                })
                .collect(),
            queue: QueueMark::default(),
            cold_at_us: 0,
            cold_at_ticks: 0,
        };
        for (unit, snapshot, until_us) in [
            (fixed, of_fixed(0, 0), 0),
            (fixed, of_fixed(5, 0), 507),
            (fixed, of_fixed(5, 1), 607),
            (fixed, of_fixed(0, 1), 107),
            (sliding, of_sliding(0, 0, 0), 0),
            (sliding, of_sliding(5, 0, 0), 600),
            (sliding, of_sliding(5, 1, 0), 700),
            (sliding, of_sliding(5, 0, 1), 800),
            (sliding, of_sliding(0, 0, 1), 300),
            (sliding, of_sliding(0, 1, 0), 200),
            (rolling, of_rolling(0, [0; 4]), 0),
            (rolling, of_rolling(6, [0; 4]), 250),
            (rolling, of_rolling(6, [0, 0, 1, 0]), 350),
            (rolling, of_rolling(6, [0, 1, 0, 0]), 325),
            (rolling, of_rolling(6, [2, 1, 0, 0]), 325),
            (log, Snapshot::SlidingLog { entries: vec![] }, 0),
            (
                log,
                Snapshot::SlidingLog {
                    entries: vec![(1, 1), (50, 2)],
                },
                250,
            ),
            (refill, of_refill(0, 0, 0), 0),
            (refill, of_refill(5, 0, 0), 507),
            (refill, of_refill(5, 0, 1), 607),
            (refill, of_refill(5, 3, 1), 907),
            (refill, of_refill(0, 0, 1), 107),
            (Unit::Held, of_held(0), 10_000_009),
            (Unit::Held, of_held(1), u64::MAX),
            (Unit::Gcra, of_gcra(0, &[]), 77),
            (Unit::Gcra, of_gcra(1, &[]), 78),
            (Unit::Gcra, of_gcra(0, &[(3, 90), (4, 80)]), 90),
            (Unit::Gcra, of_gcra(0, &[(3, 70)]), 77),
        ] {
            let state = State::from(snapshot.clone());
            let said = state.meaningless_at(unit);
            assert_eq!(said, Timestamp::from_micros(until_us), "{snapshot:?}");
        }
    }
}
