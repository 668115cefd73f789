//! The most that can have been taken from a budget: the certain charges, and all possible ones, as late as they can have been.
//!
//! Every rule is monotone: a larger or later charge never leaves more. So this bounds every possible state.

use std::collections::VecDeque;

use tollgate_core::{Snapshot, State};

use super::credit::Credit;
use super::rule::{Rule, hastened, is_later};
use super::timeline::Moment;

/// A possible charge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    pub(super) n: u64,
    /// True if it goes past the capacity.
    pub(super) is_debit: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Most {
    state: State,
    /// An empty record.
    origin: Moment,
    /// The times and amounts of possible charges that may still count.
    doubts: VecDeque<(u64, Doubt)>,
    /// The last time at which possible debits took more than is held here.
    beyond_us: Option<u64>,
}

impl Most {
    pub(super) fn full(rule: &Rule, origin: Moment) -> Self {
        Self {
            state: rule.full(),
            origin,
            doubts: VecDeque::new(),
            beyond_us: None,
        }
    }

    pub(super) fn origin(&self) -> Moment {
        self.origin
    }

    /// Says whether it is one of a calendar's window that begins later.
    pub(super) fn is_of_window_after(&self, at_us: u64) -> bool {
        matches!(self.state.snapshot(), Snapshot::Calendar { start_us, .. } if start_us > at_us)
    }

    /// Takes an observed charge: see [`take`].
    pub(super) fn take(&mut self, rule: &Rule, at_us: u64, n: u64) -> bool {
        take(rule, &mut self.state, at_us, n)
    }

    /// Takes an observed charge while a replica may take over that lacks some writes. An admitted charge shows the rest on the
    /// server that admitted it, and a question brings back a state that the clock left too far ahead. Neither need be so on the
    /// replica.
    pub(super) fn take_beside(&mut self, rule: &Rule, at_us: u64, n: u64) -> bool {
        let before = self.state.clone();
        let is_moved = self.take(rule, at_us, n);
        if is_later(&before, &self.state) {
            self.state = before;
        }
        is_moved
    }

    /// Takes a possible charge, at the latest now. True if the bound has moved as in [`take`].
    pub(super) fn may_lose(&mut self, rule: &Rule, at_us: u64, doubt: Doubt) -> bool {
        let n = if rule.is_bucket() && !doubt.is_debit {
            // It never goes past empty, however many there were before that may have taken nothing.
            doubt.n
        } else {
            self.at_most(rule, at_us, doubt)
        };
        if n == 0 {
            return false;
        }
        let before = self.state.clone();
        let is_beyond = lose(rule, &mut self.state, at_us, n, doubt.is_debit);
        // Perhaps no question came, and a state that an earlier clock left far ahead still stands there.
        if is_later(&before, &self.state) {
            self.state = before;
        }
        is_beyond
    }

    /// The part of a possible charge that is within the most that all of them can have taken.
    fn at_most(&mut self, rule: &Rule, at_us: u64, doubt: Doubt) -> u64 {
        let since_us = rule.counts_since_us(at_us);
        let is_over = |(then_us, _): &(u64, Doubt)| *then_us < since_us;
        while self.doubts.front().is_some_and(is_over) {
            self.doubts.pop_front();
        }
        let same = self.doubts.iter().map(|(_, doubt)| doubt);
        let counted: u64 = same
            .filter(|it| it.is_debit == doubt.is_debit)
            .map(|it| it.n)
            .sum();
        let rest = most(rule, doubt.is_debit).saturating_sub(counted);
        let n = doubt.n.min(rest);
        if doubt.is_debit && n < doubt.n {
            self.beyond_us = self.beyond_us.max(Some(at_us));
        }
        if n > 0 {
            self.doubts.push_back((at_us, Doubt { n, ..doubt }));
        }
        n
    }

    /// This bound with all of these on top, each of which may have been taken by now or not.
    pub(super) fn with(
        &self,
        rule: &Rule,
        at_us: u64,
        doubts: impl Iterator<Item = Doubt>,
    ) -> State {
        let mut sums = [0_u64; 2];
        for doubt in doubts {
            let sum = &mut sums[usize::from(doubt.is_debit)];
            *sum = sum.saturating_add(doubt.n).min(most(rule, doubt.is_debit));
        }
        let mut state = self.state.clone();
        for (n, is_debit) in sums.into_iter().zip([false, true]) {
            if n > 0 {
                lose(rule, &mut state, at_us, n, is_debit);
            }
        }
        state
    }

    /// Says whether more may have been taken than is held here. Nothing but the ceiling of debts bounds what debits take together.
    pub(super) fn is_short_of_debits(
        &self,
        rule: &Rule,
        at_us: u64,
        doubts: impl Iterator<Item = Doubt>,
    ) -> bool {
        let debits = doubts.filter(|doubt| doubt.is_debit);
        let since_us = rule.debts_since_us(at_us);
        debits.map(|doubt| doubt.n).sum::<u64>() > most(rule, true)
            || self.beyond_us.is_some_and(|us| us >= since_us)
    }

    /// Gives back a credit that is certain by its end: the part of the charge that still shows in a bucket by then, and all of
    /// it to a window that is still there.
    pub(super) fn give_back(&mut self, rule: &Rule, credit: &Credit) {
        let at_us = credit.to.at_us;
        if rule.is_bucket() {
            let shows_us = credit.shows_until_us.saturating_sub(at_us);
            let back_us = rule.drain_us(credit.n).min(shows_us);
            self.state = hastened(&self.state, at_us, back_us);
        } else if let Some(charged) = credit.charged {
            rule.credit_window(&mut self.state, at_us, charged.at_us, credit.n);
        }
    }
}

/// Takes an observed charge, past the rest if need be: it did fit, and so in truth more was left. True if that was so, and the
/// bound has moved to the largest possible truth.
pub(super) fn take(rule: &Rule, state: &mut State, at_us: u64, n: u64) -> bool {
    if rule.admit(state, at_us, n) {
        return false;
    }
    if !rule.is_bucket() {
        // The count of this window now counts in the next one, when the rest no longer does.
        rule.debit(state, at_us, n);
    }
    // Debts have a ceiling, above which a debit leaves no trace.
    if rule.is_bucket() || is_short_of_empty(rule, state, at_us) {
        *state = rule.empty(at_us);
    }
    true
}

/// Takes a possible charge. A charge was taken only if it fitted an empty bucket; a debit goes past that.
fn lose(rule: &Rule, state: &mut State, at_us: u64, n: u64, is_debit: bool) -> bool {
    if is_debit || !rule.is_bucket() {
        rule.debit(state, at_us, n);
        return false;
    }
    let is_beyond = !rule.admit(state, at_us, n);
    if is_beyond && is_short_of_empty(rule, state, at_us) {
        *state = rule.empty(at_us);
    }
    is_beyond
}

/// Says whether a budget is full again sooner than one of which all has just been taken: rounding may hide the rest of a bucket.
fn is_short_of_empty(rule: &Rule, state: &State, at_us: u64) -> bool {
    let reset_after = |state: &State| {
        let verdict = rule.probe(state, at_us, 0);
        verdict.map(|verdict| verdict.reset_after())
    };
    reset_after(state) < reset_after(&rule.empty(at_us))
}

/// The most that attempts of unknown outcome can have taken within a period, twice for the ends of windows, and half of that
/// for debits. Debts stop at eight budgets, so that certain charges still have room.
fn most(rule: &Rule, is_debit: bool) -> u64 {
    rule.whole() * if is_debit { 2 } else { 4 }
}
