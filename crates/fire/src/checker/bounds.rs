//! What a budget can hold at a time: at the least what is certain to have been taken, at the most all that may have been.
//!
//! The rule is core's own, which its own tests hold to an independent model: what is on trial here is everything between
//! the rule and the caller. Every rule is monotone: what was taken more, or later, never leaves more. So two states, one for
//! each extreme, bound every state in between.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use tollgate_core::{
    Algorithm, Charge, Key, Mode, Quota, Receipt, Scope, State, Timestamp, Verdict, decide,
};

use super::timeline::Moment;

/// A quota, and what it takes to apply it to states.
#[derive(Debug)]
pub(super) struct Rule {
    quota: Quota,
    scope: Scope,
    key: Key,
}

impl Rule {
    /// How long, after the clock has stepped back by so much, it is not known to which windows counts were moved: that
    /// depends on who looked first. A bucket is one point in time, which moves nowhere.
    pub(super) fn blind_us(&self, back_us: u64) -> u64 {
        match self.quota.algorithm() {
            Algorithm::Gcra => 0,
            _ => back_us.saturating_add(2 * micros(self.quota.period())),
        }
    }

    pub(super) fn of(quota: Quota) -> Self {
        Self {
            quota,
            scope: Scope::of("checker", 0, &quota),
            key: Key::from("anybody"),
        }
    }

    pub(super) fn full(&self) -> State {
        State::full(&self.quota)
    }

    /// What would be said, without taking anything.
    fn probe(&self, state: &State, at_us: u64, cost: u64) -> Option<Verdict> {
        self.decide(&mut state.clone(), at_us, cost, Mode::Probe)
    }

    fn decide(&self, state: &mut State, at_us: u64, cost: u64, mode: Mode) -> Option<Verdict> {
        let charge = self.charge(cost, mode);
        let states = std::slice::from_mut(state);
        let decision = decide(Timestamp::from_micros(at_us), &[charge], states);
        decision.verdicts().first().copied()
    }

    fn charge(&self, cost: u64, mode: Mode) -> Charge<'_> {
        Charge {
            scope: self.scope,
            quota: &self.quota,
            key: &self.key,
            cost,
            mode,
        }
    }

    /// Takes what was taken, past what seems to be left: it did fit, and so in truth more was left.
    fn take(&self, state: &mut State, at_us: u64, cost: u64) {
        let Some(verdict) = self.decide(state, at_us, cost, Mode::Enforce) else {
            return;
        };
        if verdict.is_allowed() {
            return;
        }
        let at = Timestamp::from_micros(at_us);
        let n = match self.quota.algorithm() {
            // One figure, which was never above the capacity; less than one is hidden in the rounding.
            Algorithm::Gcra => cost.min(verdict.remaining() + 1),
            // What stands in a window now counts in the next one when the rest does no more.
            _ => cost,
        };
        if let Some(receipt) = self.receipt(at) {
            receipt.debit_from(state, at, n);
        }
    }

    /// The most that attempts of unknown outcome can have taken within a period, with as much again for what the ends of
    /// windows add. Debts stop at eight budgets, so that there is room for what surely was taken.
    fn most_unsure(&self) -> u64 {
        self.quota.limit().max(self.quota.capacity()) * 4
    }

    /// A receipt of any charge: debits ask for one.
    fn receipt(&self, at: Timestamp) -> Option<Receipt> {
        let charge = self.charge(1, Mode::Enforce);
        let decision = decide(at, &[charge], &mut [self.full()][..]);
        Receipt::of(&charge, decision.verdicts().first()?, at)
    }
}

/// Both extremes of one budget.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// What is certain to have been taken.
    pub(super) least: State,
    /// That, and all that may have been.
    pub(super) most: State,
    /// When and how much of the latter, within the last period.
    unsure: VecDeque<(u64, u64)>,
    /// Until when what was charged before a loss, for somebody who did not hear of it, may be given back after it: to a budget
    /// that never had it. What is then let through was not before, so that both together hold to what one loss may cost.
    loose_until: Moment,
}

/// What was said about a charge at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) cost: u64,
    pub(super) said: crate::attempt::Said,
}

impl Bounds {
    pub(super) fn full(rule: &Rule) -> Self {
        Self {
            least: rule.full(),
            most: rule.full(),
            unsure: VecDeque::new(),
            loose_until: Moment::FIRST,
        }
    }

    /// The same, loose until then.
    pub(super) fn loose_until(self, moment: Moment) -> Self {
        Self {
            loose_until: moment,
            ..self
        }
    }

    /// The clock, which showed `ended_us`, steps back. A state that said no more than that the budget is full may have been
    /// forgotten by then, and what it would say now with it.
    pub(super) fn forget_full(&mut self, rule: &Rule, ended_us: u64) {
        let verdict = rule.probe(&self.least, ended_us, 0);
        if verdict.is_some_and(|verdict| verdict.reset_after().is_zero()) {
            self.least = rule.full();
        }
    }

    /// The least of `other`, and the most of this.
    pub(super) fn with_least_of(self, other: Self) -> Self {
        Self {
            least: other.least,
            loose_until: self.loose_until.max(other.loose_until),
            ..self
        }
    }

    /// Attempts of unknown outcome may have taken so much, at the latest at `at_us`.
    pub(super) fn may_lose(&mut self, rule: &Rule, at_us: u64, cost: u64) {
        let period_us = micros(rule.quota.period());
        while let Some(&(then_us, _)) = self.unsure.front()
            && then_us.saturating_add(period_us) <= at_us
        {
            self.unsure.pop_front();
        }
        let counted: u64 = self.unsure.iter().map(|(_, n)| n).sum();
        let n = cost.min(rule.most_unsure().saturating_sub(counted));
        if n > 0 {
            rule.take(&mut self.most, at_us, n);
            self.unsure.push_back((at_us, n));
        }
    }

    /// Whether this can have been said now, when `pending` more may have been taken; `is_blind` if nobody can say how
    /// little was left. Takes what was taken.
    pub(super) fn see(
        &mut self,
        rule: &Rule,
        now: Moment,
        seen: &Seen,
        pending: u64,
        is_blind: bool,
    ) -> Result<(), String> {
        let (at_us, said) = (now.at_us, &seen.said);
        // The first to come afterwards sees what was given back before it.
        if is_blind || self.loose_until > Moment::FIRST {
            self.least = rule.full();
        }
        if now >= self.loose_until {
            self.loose_until = Moment::FIRST;
        }
        let mut most = self.most.clone();
        if pending > 0 {
            rule.take(&mut most, at_us, pending.min(rule.most_unsure()));
        }
        let ask = |state: &State, cost| rule.probe(state, at_us, cost).ok_or("no verdict");
        let (kind, harsh) = (ask(&self.least, seen.cost)?, ask(&most, seen.cost)?);
        let wait = |verdict: &Verdict| micros(verdict.retry_after().unwrap_or_default());
        let cost = seen.cost;
        if said.passes && !kind.is_allowed() {
            let left = kind.remaining();
            return Err(format!(
                "admitted a cost of {cost} when at most {left} was left"
            ));
        }
        if !said.passes && harsh.is_allowed() && !is_blind {
            let left = harsh.remaining();
            return Err(format!(
                "denied a cost of {cost} when at least {left} was left"
            ));
        }
        if !said.passes && said.never != kind.never_passes() {
            return Err(format!("said never: {}, which it is not", said.never));
        }
        let longest = |us| if is_blind { u64::MAX } else { us };
        let waits = wait(&kind)..=longest(wait(&harsh));
        within("retry after", said.retry_after_us, &waits)?;

        // Who looks at a budget after the clock has stepped back leaves it moved to the new time, whatever is said.
        for state in [&mut self.least, &mut self.most, &mut most] {
            rule.take(state, at_us, said.taken);
        }
        let (kind, harsh) = (ask(&self.least, 0)?, ask(&most, 0)?);
        let fewest = if is_blind { 0 } else { harsh.remaining() };
        within("remaining", said.remaining, &(fewest..=kind.remaining()))?;
        let full = |verdict: &Verdict| micros(verdict.reset_after());
        let resets = full(&kind)..=longest(full(&harsh));
        within("reset after", said.reset_after_us, &resets)
    }
}

fn within(what: &str, said: u64, possible: &RangeInclusive<u64>) -> Result<(), String> {
    if possible.contains(&said) {
        return Ok(());
    }
    Err(format!("said {what} {said}, and it was {possible:?}"))
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
