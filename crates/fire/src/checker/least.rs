//! The least that can have been taken from a budget: the certain charges, less the credits that may have been done.
//!
//! It is kept as a record of charges and not only as a state, because of the credits. A budget with credits never has more left
//! than one that never saw the credited part (the *net history*, as core's own tests show). So a credit removes its part from
//! the record, and the rest is replayed.

use tollgate_core::State;

use super::rule::Rule;
use super::timeline::Moment;

#[derive(Clone, Debug)]
pub(super) struct Least {
    state: State,
    /// The start of the record.
    base: State,
    since: Moment,
    record: Vec<PastCharge>,
}

#[derive(Clone, Copy, Debug)]
struct PastCharge {
    at_us: u64,
    n: u64,
    /// The units of it that made room for credits of lost charges. A credit of its own takes as many from another charge.
    lent: u64,
}

impl PastCharge {
    fn new(at_us: u64, n: u64) -> Self {
        Self { at_us, n, lent: 0 }
    }
}

impl Least {
    pub(super) fn full(rule: &Rule, since: Moment) -> Self {
        Self {
            state: rule.full(),
            base: rule.full(),
            since,
            record: Vec::new(),
        }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Takes an observed charge. It did fit, and so it does here.
    pub(super) fn take(&mut self, rule: &Rule, now: Moment, n: u64) {
        let verdict = rule.probe(&self.state, now.at_us, 0);
        if verdict.is_some_and(|verdict| verdict.reset_after().is_zero()) {
            // None of it counts any more, credited or not: but that may be so only because of credits of lost charges.
            let mut lenders = std::mem::take(&mut self.record);
            lenders.retain(|it| it.lent > 0 && it.at_us + rule.lasts_us() > now.at_us);
            lenders.iter_mut().for_each(|it| it.n = 0);
            *self = Self {
                since: self.since,
                record: lenders,
                ..Self::full(rule, now)
            };
        }
        if n > 0 {
            self.record.push(PastCharge::new(now.at_us, n));
        }
        apply(rule, &mut self.state, now.at_us, n);
    }

    /// Takes a charge that is certain, and was made at some time since then. The earlier it was, the less of it is left.
    pub(super) fn take_since(&mut self, rule: &Rule, from: Moment, n: u64) {
        if from < self.since {
            return;
        }
        let at_us = from.at_us;
        let position = self
            .record
            .partition_point(|charged| charged.at_us <= at_us);
        self.record.insert(position, PastCharge::new(at_us, n));
        self.replay(rule);
    }

    /// Removes at most this much of a charge at that time.
    pub(super) fn leave_out(&mut self, rule: &Rule, at: Moment, mut n: u64) {
        if at < self.since {
            return;
        }
        let same = self.record.iter_mut();
        let mut lent = 0;
        for charged in same.filter(|charged| charged.at_us == at.at_us) {
            let less = n.min(charged.n);
            charged.n -= less;
            n -= less;
            let back = n.min(charged.lent);
            charged.lent -= back;
            n -= back;
            lent += back;
        }
        self.leave_out_latest(rule, lent);
    }

    /// Removes this much of the latest charges: of all charges that a credit may have reached, these count for longest.
    pub(super) fn leave_out_latest(&mut self, rule: &Rule, mut n: u64) {
        for charged in self.record.iter_mut().rev() {
            let less = n.min(charged.n);
            charged.n -= less;
            charged.lent += less;
            n -= less;
        }
        if n > 0 {
            self.base = rule.full();
        }
        self.replay(rule);
    }

    /// Begins a new era: the new clock cannot tell apart the records of the old one.
    pub(super) fn enter(&mut self, since: Moment) {
        self.base = self.state.clone();
        self.since = since;
        self.record.clear();
    }

    /// Brings back a state that an earlier clock left too far ahead, so that a replay does not bring it back later.
    pub(super) fn bring_back(&mut self, rule: &Rule, now: Moment) {
        apply(rule, &mut self.state, now.at_us, 0);
        apply(rule, &mut self.base, now.at_us, 0);
    }

    fn replay(&mut self, rule: &Rule) {
        self.record.retain(|charged| charged.n + charged.lent > 0);
        self.state = self.base.clone();
        for charged in &self.record {
            apply(rule, &mut self.state, charged.at_us, charged.n);
        }
    }
}

pub(super) fn apply(rule: &Rule, state: &mut State, at_us: u64, n: u64) {
    // Beside a debit that is counted earlier than it was made, a charge that did fit may not seem to.
    if !rule.admit(state, at_us, n) {
        rule.debit(state, at_us, n);
    }
}
