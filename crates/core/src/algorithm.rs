//! The rules, one file each, and the state that each keeps of a key.
//!
//! A rule is a handful of pure functions over (state, now, cost). What a backend may do with them is in
//! [`decide`](crate::decide) and [`Receipt`](crate::Receipt); nobody else touches a state.

mod fixed_window;
mod gcra;
mod packed;
mod rolling_window;
mod sliding_log;
mod sliding_window;
mod snapshot;

use std::time::Duration;

pub(crate) use self::fixed_window::FixedWindow;
pub(crate) use self::gcra::{Gcra, Point};
pub(crate) use self::rolling_window::RollingWindow;
pub(crate) use self::sliding_log::SlidingLog;
pub(crate) use self::sliding_window::SlidingWindow;
pub use self::snapshot::{CreditMark, Snapshot};

use crate::{Mode, Quota, RetryAfter, Timestamp, Verdict};

/// How many times its capacity a budget can be charged with, debts included: eight.
///
/// Enforced charges stop at once the capacity. A [debit](crate::Backend::debit) may go on to seven more: enough that the
/// real cost of a few requests that turned out far larger than they said is paid in full, little enough that a mistaken
/// figure, or a clock that stepped back, locks a caller out for eight refills and not for ever.
pub const DEBT_CEILING: u64 = 8;

/// By which rule a quota is decided, and what it lets through at worst in any window of one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket that drains at limit/period and holds one burst: token bucket and leaky bucket as a meter are this.
    /// State: one point in time. Worst case: burst + limit, of a period and its last instant.
    #[default]
    Gcra,
    /// A count that starts anew in each window. Windows start at the Unix epoch plus an offset.
    /// State: two numbers. Worst case: twice the limit, around the end of a window.
    FixedWindow {
        /// How long after a multiple of the period a window starts; less than the period. `6h` lets a day start at six
        /// o'clock UTC.
        offset: Duration,
    },
    /// Two counts: the previous window's counts for as much of it as the sliding period still covers.
    /// State: three numbers. Worst case: just under twice the limit, when all of the previous window came at its end.
    SlidingWindow,
    /// A count for each of the last `buckets` parts of the period.
    /// State: a number per bucket. Worst case: twice the limit, around the end of a bucket; the limit in any period that
    /// starts with a bucket.
    RollingWindow {
        /// Into how many parts the period is cut: 2 to 128, and it must divide the period's microseconds.
        buckets: u32,
    },
    /// Each charge is remembered until it is a period old. Exact, and dear: use it for small limits.
    /// State: up to an entry per unit. Worst case: the limit.
    SlidingLog,
}

/// What the states of a quota are counted in. Quotas of one unit can read each other's states, whatever their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "each is the algorithm of its name, with the parameters that its states depend on"
)]
pub enum Unit {
    Gcra,
    FixedWindow { period_us: u64, offset_us: u64 },
    SlidingWindow { period_us: u64 },
    RollingWindow { period_us: u64, buckets: u32 },
    SlidingLog { period_us: u64 },
}

impl Unit {
    pub(crate) const fn offset_us(self) -> u64 {
        match self {
            Self::FixedWindow { offset_us, .. } => offset_us,
            _ => 0,
        }
    }
}

/// What a backend remembers of one key under one [`Scope`](crate::Scope).
///
/// Opaque: its only meaning is what [`decide`](crate::decide) and [`Receipt`](crate::Receipt) make of it. 24 bytes, so
/// that a million of them are cheap; buckets and logs live on the heap.
///
/// # Clocks that step
///
/// A clock that steps back by *D* never refills a budget. It may make one look up to *D* fuller, never fuller than full:
/// a state further ahead of now than eight budgets is brought back to that. A window or log stays where it is while the clock
/// is less than a period behind it, and takes what is charged meanwhile; further back, it moves to now with its counts. A
/// step forward drains what it covers.
///
/// # Quotas that share a state
///
/// Callers may name different quotas for one state, as while a deploy changes a limit. No quota takes what another is owed for
/// a clock that stepped back: the eight budgets are those of the longer drain, of this quota and of the one that left the
/// state as it stands. A caller of the shorter one waits meanwhile, for at most one full drain of the longer, or eight if it
/// owes more than a budget, as its verdict's retry-after says.
#[derive(Clone, Debug)]
pub struct State(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Gcra(gcra::State),
    FixedWindow(fixed_window::State),
    SlidingWindow(sliding_window::State),
    RollingWindow(rolling_window::State),
    SlidingLog(sliding_log::State),
}

impl State {
    /// The state of a key that was never seen: its budget is full.
    #[must_use]
    pub fn full(quota: &Quota) -> Self {
        Self(match quota.rule() {
            Rule::Gcra(_) => Repr::Gcra(gcra::State::default()),
            Rule::FixedWindow(_) => Repr::FixedWindow(fixed_window::State::default()),
            Rule::SlidingWindow(_) => Repr::SlidingWindow(sliding_window::State::default()),
            Rule::RollingWindow(rule) => Repr::RollingWindow(rule.empty()),
            Rule::SlidingLog(_) => Repr::SlidingLog(sliding_log::State::default()),
        })
    }

    /// From when on this state says no more than that the budget is full, so that it can be forgotten without anybody
    /// noticing. That of a window or log is a period after it has ended, for by a clock that steps back it would begin anew.
    #[must_use]
    pub fn meaningless_at(&self, unit: Unit) -> Timestamp {
        Timestamp::from_micros(match (&self.0, unit) {
            (Repr::Gcra(state), Unit::Gcra) => state.meaningless_at(),
            (
                Repr::FixedWindow(state),
                Unit::FixedWindow {
                    period_us,
                    offset_us,
                },
            ) => state.meaningless_at(period_us, offset_us),
            (Repr::SlidingWindow(state), Unit::SlidingWindow { period_us }) => {
                state.meaningless_at(period_us)
            }
            (Repr::RollingWindow(state), Unit::RollingWindow { period_us, buckets }) => {
                state.meaningless_at(period_us, buckets)
            }
            (Repr::SlidingLog(state), Unit::SlidingLog { period_us }) => {
                state.meaningless_at(period_us)
            }
            // A state of another unit has no meaning in this one.
            _ => 0,
        })
    }
}

/// Whether a cost passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Open,
    Closed(RetryAfter),
}

impl Passage {
    pub(crate) const NEVER: Self = Self::Closed(RetryAfter::Never);

    pub(crate) const fn after(us: u64) -> Self {
        Self::Closed(RetryAfter::Micros(us))
    }
}

/// What is left of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) remaining: u64,
    pub(crate) reset_after_us: u64,
}

/// What every algorithm can say and do. States are [advanced](Self::advance) to now before anything else is asked.
trait Decider {
    type State;

    /// Brings the state to now, whatever the limit: windows that have passed are gone.
    fn advance(&self, _state: &mut Self::State, _now: u64) {}

    /// Whether `cost` passes. A cost of 0 always does. A state that lies further ahead than debts may, since a clock stepped
    /// back, is brought back to that: the debts of this quota, or of the one that left the state so if its are longer. Only a
    /// decision does so.
    fn passage(&self, state: &mut Self::State, now: u64, cost: u64) -> Passage;

    /// Takes `cost`, which need not fit, up to the ceiling for debts.
    fn take(&self, state: &mut Self::State, now: u64, cost: u64);

    /// Gives back at most `cost` of a charge that was taken at `at`, after which the budget was to be full at `full_at`.
    fn give_back(&self, state: &mut Self::State, now: u64, at: u64, full_at: Point, cost: u64);

    /// What is left.
    fn budget(&self, state: &Self::State, now: u64) -> Budget;

    /// All of the above in one go: passage, the charge if it is open and `take` is asked for, and what is left.
    fn step(
        &self,
        state: &mut Self::State,
        now: u64,
        cost: u64,
        take: bool,
    ) -> (Passage, Point, Budget) {
        self.advance(state, now);
        let passage = self.passage(state, now, cost);
        let mut full_at = Point::ZERO;
        if take && cost > 0 && passage == Passage::Open {
            self.take(state, now, cost);
            full_at = self.full_at(state);
        }
        (passage, full_at, self.budget(state, now))
    }

    /// When the budget will be full again, to be kept in a receipt; of a log, where the charge was entered. Algorithms whose
    /// credits need only the time of the charge say zero.
    fn full_at(&self, _state: &Self::State) -> Point {
        Point::ZERO
    }
}

/// An algorithm with its figures worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    Gcra(Gcra),
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    RollingWindow(RollingWindow),
    SlidingLog(SlidingLog),
}

/// Runs one expression with the rule and the state of its algorithm. A state of another algorithm, which no scope lets
/// happen, is replaced by that of a key never seen.
macro_rules! with_rule {
    ($quota:expr, $state:expr, |$rule:ident, $inner:ident| $body:expr) => {{
        if !$quota.reads($state) {
            *$state = State::full($quota);
        }
        match ($quota.rule(), &mut $state.0) {
            (Rule::Gcra($rule), Repr::Gcra($inner)) => $body,
            (Rule::FixedWindow($rule), Repr::FixedWindow($inner)) => $body,
            (Rule::SlidingWindow($rule), Repr::SlidingWindow($inner)) => $body,
            (Rule::RollingWindow($rule), Repr::RollingWindow($inner)) => $body,
            (Rule::SlidingLog($rule), Repr::SlidingLog($inner)) => $body,
            _ => unreachable!("the state was just made for this quota"),
        }
    }};
}

impl Quota {
    #[inline]
    fn reads(&self, state: &State) -> bool {
        match (self.rule(), &state.0) {
            (Rule::RollingWindow(rule), Repr::RollingWindow(state)) => state.fits(rule),
            (Rule::Gcra(_), Repr::Gcra(_))
            | (Rule::FixedWindow(_), Repr::FixedWindow(_))
            | (Rule::SlidingWindow(_), Repr::SlidingWindow(_))
            | (Rule::SlidingLog(_), Repr::SlidingLog(_)) => true,
            _ => false,
        }
    }

    /// Whether `cost` passes now. The state is brought to now, which changes nothing that anybody could tell.
    #[inline]
    pub(crate) fn passage(&self, state: &mut State, now: u64, cost: u64) -> Passage {
        // The commonest algorithm first: the way through all of them is as long as the question.
        if let (Rule::Gcra(rule), Repr::Gcra(inner)) = (self.rule(), &mut state.0) {
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

    /// What is left in a state that was just asked for passage.
    pub(crate) fn budget(&self, state: &mut State, now: u64) -> Budget {
        with_rule!(self, state, |rule, inner| rule.budget(inner, now))
    }

    /// Passage, the charge if it is open and `take` is asked for, when the budget will then be full again, and what is left.
    pub(crate) fn step(
        &self,
        state: &mut State,
        now: u64,
        cost: u64,
        take: bool,
    ) -> (Passage, Point, Budget) {
        with_rule!(self, state, |rule, inner| rule.step(inner, now, cost, take))
    }

    /// The verdict on a charge that is alone in its call.
    pub(crate) fn verdict(
        &self,
        state: &mut State,
        now: u64,
        cost: u64,
        mode: Mode,
        take: bool,
    ) -> Verdict {
        let (passage, full_at, budget) = self.step(state, now, cost, take);
        let taken = if take { cost } else { 0 };
        Verdict::new(mode, passage, self.capacity(), budget, taken, full_at)
    }

    /// The same for the commonest algorithm in 64 bits; `None` if it takes another way.
    // Always: what it makes would be handed over in memory.
    #[inline(always)]
    pub(crate) fn quick_verdict(
        &self,
        state: &mut State,
        now: u64,
        cost: u64,
        mode: Mode,
        take: bool,
    ) -> Option<Verdict> {
        let (Rule::Gcra(rule), Repr::Gcra(inner)) = (self.rule(), &mut state.0) else {
            return None;
        };
        let (passage, full_at, budget) = rule.quick_step(inner, now, cost, take)?;
        let taken = if take { cost } else { 0 };
        Some(Verdict::new(
            mode, passage, rule.burst, budget, taken, full_at,
        ))
    }

    pub(crate) fn credit(&self, state: &mut State, now: u64, at: u64, full_at: Point, cost: u64) {
        with_rule!(self, state, |rule, inner| {
            rule.advance(inner, now);
            rule.give_back(inner, now, at, full_at, cost);
        });
    }

    pub(crate) fn debit(&self, state: &mut State, now: u64, cost: u64) {
        with_rule!(self, state, |rule, inner| {
            rule.advance(inner, now);
            rule.take(inner, now, cost);
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

    #[test]
    fn a_state_is_24_bytes() {
        assert_eq!(size_of::<State>(), 24);
    }
}
