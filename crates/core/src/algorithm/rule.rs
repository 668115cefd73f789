//! The rule of a quota, whichever algorithm that is.

use std::time::Duration;

use super::state::Repr;
use super::{
    Algorithm, Budget, CalendarWindow, Decider, FixedWindow, Gcra, Held, IntervalRefill, OnceRule,
    Passage, Penalty, Point, RollingWindow, SlidingLog, SlidingWindow, State, Step, Unit,
};

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
            _ => None,
        }
    }

    /// The longest time that a charge waits for its turn; `None` if none waits.
    #[inline]
    pub(crate) const fn wait_us(&self) -> Option<u32> {
        match self {
            Self::Gcra(rule) if rule.waits() => Some(rule.wait_us()),
            Self::Held(rule) if rule.wait_us > 0 => Some(rule.wait_us),
            _ => None,
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

    /// The step of the commonest algorithm, in 64 bits; `None` if the quota needs the general one.
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

    #[inline]
    pub(crate) fn refund(&self, state: &mut State, now: u64, at: u64, full_at: Point, cost: u64) {
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

    /// Says whether the charge of `at` beside this id may be given back: see [`OnceRule::close`]. Beside other rules each may.
    pub(crate) fn close(&self, state: &mut State, now: u64, at: u64) -> bool {
        match (self, &mut state.0) {
            (Self::Once(rule), Repr::Once(inner)) => rule.close(inner, now, at),
            _ => true,
        }
    }

    /// The point at which a charge that may wait would be drained if it took this much less.
    pub(crate) fn earlier(&self, full_at: Point, cost: u64) -> Point {
        match self {
            Self::Gcra(rule) if rule.waits() => rule.earlier(full_at, cost),
            _ => full_at,
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

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "calendar")]
    use crate::Calendar;
    use crate::{Concurrent, Quota};

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
}
