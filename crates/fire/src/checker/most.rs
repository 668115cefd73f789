//! The most that can have been taken from a budget: what is certain, and all that may have been, as late as it can have been.
//!
//! Every rule is monotone: what was taken more, or later, never leaves more. So this bounds every state that is possible.

use std::collections::VecDeque;

use tollgate_core::State;

use super::credit::Credit;
use super::rule::{Rule, hastened, is_later};
use super::timeline::Moment;

/// Something that may have been taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    pub(super) n: u64,
    /// Past what was left, if need be.
    pub(super) is_debit: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Most {
    state: State,
    /// When nothing had been taken yet.
    origin: Moment,
    /// When and how much of what may have been taken was, within the last period.
    doubts: VecDeque<(u64, Doubt)>,
}

impl Most {
    pub(super) fn full(rule: &Rule, origin: Moment) -> Self {
        Self {
            state: rule.full(),
            origin,
            doubts: VecDeque::new(),
        }
    }

    pub(super) fn origin(&self) -> Moment {
        self.origin
    }

    /// See [`take`].
    pub(super) fn take(&mut self, rule: &Rule, at_us: u64, n: u64) -> bool {
        take(rule, &mut self.state, at_us, n)
    }

    /// The same while a replica may take over that has not heard of everything. What was seen to fit shows what was left on the
    /// server that said so, and a look brings back what its clock had left too far ahead: neither has to be so on the replica.
    pub(super) fn take_beside(&mut self, rule: &Rule, at_us: u64, n: u64) -> bool {
        let before = self.state.clone();
        let is_moved = self.take(rule, at_us, n);
        if is_later(&before, &self.state) {
            self.state = before;
        }
        is_moved
    }

    /// What may have been taken was, at the latest now. True if the bound has moved as in [`take`].
    pub(super) fn may_lose(&mut self, rule: &Rule, at_us: u64, doubt: Doubt) -> bool {
        let period_us = rule.period_us();
        while let Some(&(then_us, _)) = self.doubts.front()
            && then_us.saturating_add(period_us) <= at_us
        {
            self.doubts.pop_front();
        }
        let same = self.doubts.iter().map(|(_, doubt)| doubt);
        let counted: u64 = same
            .filter(|it| it.is_debit == doubt.is_debit)
            .map(|it| it.n)
            .sum();
        let n = doubt
            .n
            .min(most(rule, doubt.is_debit).saturating_sub(counted));
        if n == 0 {
            return false;
        }
        self.doubts.push_back((at_us, Doubt { n, ..doubt }));
        let before = self.state.clone();
        let is_beyond = lose(rule, &mut self.state, at_us, n, doubt.is_debit);
        // Perhaps nobody looked, and what an earlier clock has left far ahead still stands there.
        if is_later(&before, &self.state) {
            self.state = before;
        }
        is_beyond
    }

    /// The same with all of these on top, each of which may have been taken by now or not.
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

    /// What surely has been given back by the end of the credit: as much as still shows in a bucket by then, and all of it to
    /// a window that is still there.
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

/// Takes what was seen to be taken, past what seems to be left: it did fit, and so in truth more was left. True if that was
/// so, and the bound has moved to what the truth cannot exceed.
pub(super) fn take(rule: &Rule, state: &mut State, at_us: u64, n: u64) -> bool {
    if rule.admit(state, at_us, n) {
        return false;
    }
    if rule.is_bucket() {
        *state = rule.empty_bucket(at_us);
    } else {
        // What stands in a window now counts in the next one when the rest does no more.
        rule.debit(state, at_us, n);
    }
    true
}

/// Takes what may have been taken. A charge was only if it left no more than an empty bucket; a debit goes past that.
fn lose(rule: &Rule, state: &mut State, at_us: u64, n: u64, is_debit: bool) -> bool {
    if is_debit || !rule.is_bucket() {
        rule.debit(state, at_us, n);
        return false;
    }
    let is_beyond = !rule.admit(state, at_us, n);
    if is_beyond && is_short_of_empty(rule, state, at_us) {
        *state = rule.empty_bucket(at_us);
    }
    is_beyond
}

/// Whether less has been taken than a bucket holds: what is left of one may be hidden in the rounding.
fn is_short_of_empty(rule: &Rule, state: &State, at_us: u64) -> bool {
    let reset_after = |state: &State| {
        let verdict = rule.probe(state, at_us, 0);
        verdict.map(|verdict| verdict.reset_after())
    };
    reset_after(state) < reset_after(&rule.empty_bucket(at_us))
}

/// The most that attempts of unknown outcome can have taken within a period, with as much again for what the ends of
/// windows add; and half of that for debits. Debts stop at eight budgets, so that there is room for what surely was taken.
fn most(rule: &Rule, is_debit: bool) -> u64 {
    rule.whole() * if is_debit { 2 } else { 4 }
}
