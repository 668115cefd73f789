//! Follows one budget from one observation to the next, and says which are possible.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use tollgate_core::{State, Verdict};

use super::credit::Credit;
use super::least::Least;
use super::most::{self, Doubt, Most};
use super::rule::{Rule, micros};
use super::timeline::{Moment, Step};
use crate::attempt::{KNOWN_LIFE_US, VerdictRecord};

/// A loss of the budget, at one moment between two: by a fault, or because it was reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) from: Moment,
    pub(super) to: Moment,
    /// True if it surely happened.
    pub(super) is_certain: bool,
    /// True if it may have made a replica master, with its state of any moment since the loss began.
    pub(super) is_takeover: bool,
}

/// A charge that may have been taken at one moment between two, or not at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct UncertainCharge {
    pub(super) from: Moment,
    pub(super) to: Moment,
    /// The end of the whole attempt, if the clock was set meanwhile.
    pub(super) end: Moment,
    pub(super) doubt: Doubt,
    /// The time by which a debit surely was done if nothing was in its way.
    pub(super) done_by: Option<Moment>,
}

/// A verdict at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub(super) cost: u64,
    pub(super) said: VerdictRecord,
}

/// All events of one budget except the observations, each list sorted for its use.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    /// By their start.
    pub(super) losses: Vec<Loss>,
    /// By their end.
    pub(super) unsure: Vec<UncertainCharge>,
    /// Debits that surely happened, by their end. They are among the unsure as well.
    pub(super) debits: Vec<UncertainCharge>,
    /// By their start.
    pub(super) credits: Vec<Credit>,
    pub(super) strays: Vec<Stray>,
    /// Denials that a process knew, with their attempts, in their order.
    pub(super) known: Vec<(Moment, usize, Observation)>,
}

/// Charges from before a loss that may be credited after it, because their clients did not hear of them or give them back. The
/// credit goes to a budget that never had the charge. It lets through units that were not let through before, so that both
/// together keep within the cost of one loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stray {
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) n: u64,
}

/// Both bounds, on their way through the course.
#[derive(Debug)]
pub(super) struct Trial<'a> {
    rule: &'a Rule,
    /// The steps of the clock at the start of each era.
    steps: &'a [Step],
    least: Least,
    most: Most,
    /// The events that are to come, or not over.
    course: Course,
    /// Losses that may happen now, each with the state that it would leave.
    losing: Vec<(Loss, Most)>,
    /// Credits that may be done now, and are certain.
    returning: Vec<Credit>,
    last: Moment,
    /// See [`Rule::blind_us`].
    blind_us: u64,
    blind_until: Moment,
    /// True if more may be taken than the rule says.
    is_one_sided: bool,
    /// The most that can have been taken at the moments of the last observations, while a state of then may still be believed.
    told: VecDeque<(Moment, State)>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(rule: &'a Rule, steps: &'a [Step], mut course: Course) -> Self {
        course.losses.sort_by_key(|loss| loss.from);
        course.unsure.sort_by_key(|unsure| unsure.to);
        course.debits.sort_by_key(|debit| debit.to);
        course.credits.sort_by_key(|credit| credit.from);
        Self {
            rule,
            steps,
            least: Least::full(rule, Moment::FIRST),
            most: Most::full(rule, Moment::FIRST),
            course,
            losing: Vec::new(),
            returning: Vec::new(),
            last: Moment::FIRST,
            blind_us: 0,
            blind_until: Moment::FIRST,
            is_one_sided: false,
            told: VecDeque::new(),
        }
    }

    /// This trial of a budget that may let through less than its rule says, and never more.
    pub(super) fn one_sided(self) -> Self {
        Self {
            is_one_sided: true,
            ..self
        }
    }

    /// The denials that a process knew.
    pub(super) fn known(&self) -> &[(Moment, usize, Observation)] {
        &self.course.known
    }

    /// Goes on to a moment. What is given back until then may not have been when the last known state was told.
    fn pass(&mut self, now: Moment) {
        self.begin_losses(now);
        self.end_doubts(now);
        if !self.course.known.is_empty() {
            let is_old = |(then, _): &(Moment, State)| *then < since(now);
            while self.told.front().is_some_and(is_old) {
                self.told.pop_front();
            }
            self.told.push_back((now, self.harshest(now)));
        }
        self.give_back(now);
        self.end_losses(now);
        self.enter(now);
    }

    /// The state if all was taken by now that may have been.
    fn harshest(&self, now: Moment) -> State {
        let pending = self.course.unsure.iter();
        let pending = pending
            .filter(|unsure| unsure.from <= now)
            .map(|unsure| unsure.doubt);
        self.most.with(self.rule, now.at_us, pending)
    }

    /// Goes on to a denial that a process knew. It is possible if some state of its life denied the cost, as it stands by now.
    pub(super) fn see_known(&mut self, now: Moment, seen: &Observation) -> Result<(), String> {
        if self.last.era < now.era {
            // No question has moved the state to the new clock.
            return Ok(());
        }
        let (at_us, cost, since) = (now.at_us, seen.cost, since(now));
        if self.last < since {
            self.pass(since);
            self.told.clear();
        }
        self.pass(now);
        let is_blind = now < self.blind_until || self.is_one_sided;
        if is_blind || !self.losing.is_empty() || self.most.is_of_window_after(at_us) {
            return Ok(());
        }
        let mut left = u64::MAX;
        for (_, state) in self.told.iter().filter(|(then, _)| *then >= since) {
            let verdict = self.ask(state, at_us, cost)?;
            if verdict.is_denied() {
                return Ok(());
            }
            left = left.min(verdict.remaining());
        }
        Err(format!(
            "was known to be denied a cost of {cost}, and at least {left} was left for as long as that is believed"
        ))
    }

    /// Goes on to an observation. An error says why it is impossible.
    pub(super) fn see(&mut self, now: Moment, seen: &Observation) -> Result<(), String> {
        self.pass(now);
        let is_blind = now < self.blind_until;
        let (at_us, said, rule) = (now.at_us, &seen.said, self.rule);
        if is_blind || !self.losing.is_empty() {
            self.least = Least::full(rule, now);
        }
        let mut kind = self.kindest(now);
        let pending = self.course.unsure.iter();
        let pending = pending
            .filter(|unsure| unsure.from <= now)
            .map(|unsure| unsure.doubt);
        let mut harsh = self.most.with(rule, at_us, pending.clone());
        let is_in_debt = self.most.is_short_of_debits(rule, at_us, pending);

        let (before, worst) = (
            self.ask(&kind, at_us, seen.cost)?,
            self.ask(&harsh, at_us, seen.cost)?,
        );
        // A charge that was taken unheard by a clock ahead may not have begun a window, and the window before is back.
        let is_of_later_window = self.most.is_of_window_after(at_us);
        let is_blind_above = is_blind || self.is_one_sided || is_of_later_window || is_in_debt;
        allowed(seen, &before, &worst, is_blind_above)?;

        // A question after a step back leaves the state moved to the new time, whatever its answer.
        self.least.take(rule, now, said.taken);
        let is_stale = self.losing.iter().any(|(loss, _)| loss.is_takeover);
        let mut is_moved = if is_stale {
            self.most.take_beside(rule, at_us, said.taken)
        } else {
            self.most.take(rule, at_us, said.taken)
        };
        for (_, most) in &mut self.losing {
            is_moved |= most.take(rule, at_us, said.taken);
        }
        if is_moved {
            self.doubt_credits(now);
        }
        if !rule.admit(&mut kind, at_us, said.taken) {
            return Err("took what could not be taken".to_owned());
        }
        most::take(rule, &mut harsh, at_us, said.taken);
        let (after, worst) = (self.ask(&kind, at_us, 0)?, self.ask(&harsh, at_us, 0)?);
        left(said, &after, &worst, is_blind_above)
    }

    fn ask(&self, state: &State, at_us: u64, cost: u64) -> Result<Verdict, String> {
        let verdict = self.rule.probe(state, at_us, cost);
        verdict.ok_or_else(|| "no verdict".to_owned())
    }

    /// The least, if all stray credits have just come.
    fn kindest(&self, now: Moment) -> State {
        let strays = self.course.strays.iter();
        let strays = strays.filter(|stray| stray.from <= now);
        let n: u64 = strays.map(|stray| stray.n).sum();
        if n == 0 {
            return self.least.state().clone();
        }
        let mut kindest = self.least.clone();
        kindest.leave_out_latest(self.rule, n);
        kindest.state().clone()
    }

    /// A loss that is possible from now on may have been just now.
    fn begin_losses(&mut self, now: Moment) {
        let begun = self.course.losses.partition_point(|loss| loss.from <= now);
        for loss in self.course.losses.drain(..begun) {
            self.losing.push((loss, Most::full(self.rule, loss.from)));
        }
    }

    /// An event that is no longer possible happened as late as it could, or as early.
    fn end_doubts(&mut self, now: Moment) {
        let ended = self.course.unsure.partition_point(|unsure| unsure.to < now);
        let mut is_moved = false;
        let steps = self.steps;
        for unsure in self.course.unsure.drain(..ended) {
            // A server with an earlier clock may decide longer than it matters: the state that another has taken over is from
            // before now.
            let since = steps.get(unsure.to.era + 1..=now.era).unwrap_or_default();
            let back_us: u64 = since.iter().map(|step| step.back_us).sum();
            let at_us = unsure.to.at_us.min(now.at_us.saturating_add(back_us));
            is_moved |= self.most.may_lose(self.rule, at_us, unsure.doubt);
            for (loss, most) in &mut self.losing {
                if unsure.to >= loss.from {
                    is_moved |= most.may_lose(self.rule, at_us, unsure.doubt);
                }
            }
        }
        if is_moved {
            self.doubt_credits(now);
        }
        let ended = self.course.debits.partition_point(|debit| debit.to < now);
        for debit in self.course.debits.drain(..ended) {
            self.least.take_since(self.rule, debit.from, debit.doubt.n);
        }
    }

    fn give_back(&mut self, now: Moment) {
        // Never by the call that charged it.
        let begun = self
            .course
            .credits
            .partition_point(|credit| credit.from < now);
        for credit in self.course.credits.drain(..begun) {
            if let Some(charged) = credit.charged {
                let has_one_clock = charged.era == credit.from.era;
                let (at_us, from_us) = (charged.at_us, credit.from.at_us);
                if !has_one_clock || !self.rule.is_refilled_between(at_us, from_us) {
                    self.least.leave_out(self.rule, charged, credit.n);
                }
            }
            if credit.is_certain {
                self.returning.push(credit);
            }
        }
        let returning = self.returning.drain(..);
        let (over, returning): (Vec<_>, Vec<_>) = returning.partition(|it| it.to < now);
        self.returning = returning;
        for credit in over {
            self.most.give_back(self.rule, &credit);
        }
        let strays = self.course.strays.drain(..);
        let (over, strays): (Vec<_>, Vec<_>) = strays.partition(|stray| stray.to < now);
        self.course.strays = strays;
        for stray in over {
            self.least.leave_out_latest(self.rule, stray.n);
        }
    }

    /// An observation during a possible credit sets the bound to the truth of that moment. That may contain the credit already,
    /// which must not count twice.
    fn doubt_credits(&mut self, now: Moment) {
        self.returning.clear();
        let begun = self.course.credits.iter_mut();
        for credit in begun.take_while(|credit| credit.from < now) {
            credit.is_certain = false;
        }
    }

    fn end_losses(&mut self, now: Moment) {
        let losing = self.losing.drain(..);
        let (over, losing): (Vec<_>, Vec<_>) = losing.partition(|(loss, _)| loss.to < now);
        self.losing = losing;
        for (loss, most) in over {
            self.least = Least::full(self.rule, loss.to);
            if loss.is_certain && most.origin() >= self.most.origin() {
                self.most = most;
            }
        }
    }

    /// The clock may have been set since.
    fn enter(&mut self, now: Moment) {
        let is_new = self.last.era < now.era;
        // If two servers decide for a while, the one whose clock is ahead begins before the other has ended.
        let overlap_us = self.last.at_us.saturating_sub(now.at_us);
        for era in self.last.era + 1..=now.era {
            let Some(&Step { back_us, ended_us }) = self.steps.get(era) else {
                continue;
            };
            self.least.enter(now);
            // A state that said only that the budget is full may have been forgotten by then, and its present meaning with it.
            let verdict = self.rule.probe(self.least.state(), ended_us, 0);
            if back_us > 0 && verdict.is_some_and(|verdict| verdict.reset_after().is_zero()) {
                self.least = Least::full(self.rule, now);
            }
            // A blind rule stays blind for as long again: the new clock gives the old end no meaning.
            let back_us = back_us.max(overlap_us);
            self.blind_us = match self.rule.blind_us(back_us) {
                0 => 0,
                _ if back_us == 0 && self.last >= self.blind_until => 0,
                blind_us => blind_us.max(self.blind_us),
            };
            self.blind_until = Moment {
                era,
                at_us: now.at_us.saturating_add(self.blind_us),
            };
        }
        if is_new {
            // By this observation's own question.
            self.least.bring_back(self.rule, now);
        }
        self.last = now;
    }
}

/// The earliest moment at which a state was told that is still believed.
fn since(now: Moment) -> Moment {
    let at_us = now.at_us.saturating_sub(KNOWN_LIFE_US);
    Moment { at_us, ..now }
}

/// Says whether the cost can have passed, or been denied, with that wait.
pub(super) fn allowed(
    seen: &Observation,
    kind: &Verdict,
    harsh: &Verdict,
    is_blind: bool,
) -> Result<(), String> {
    let (cost, said) = (seen.cost, &seen.said);
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
    let wait = |verdict: &Verdict| micros(verdict.retry_after().unwrap_or_default());
    let longest = if is_blind { u64::MAX } else { wait(harsh) };
    within("retry after", said.retry_after_us, &(wait(kind)..=longest))
}

/// Says whether this much can have been left.
pub(super) fn left(
    said: &VerdictRecord,
    kind: &Verdict,
    harsh: &Verdict,
    is_blind: bool,
) -> Result<(), String> {
    let fewest = if is_blind { 0 } else { harsh.remaining() };
    within("remaining", said.remaining, &(fewest..=kind.remaining()))?;
    let full = |verdict: &Verdict| micros(verdict.reset_after());
    let longest = if is_blind { u64::MAX } else { full(harsh) };
    within("reset after", said.reset_after_us, &(full(kind)..=longest))
}

fn within(what: &str, said: u64, possible: &RangeInclusive<u64>) -> Result<(), String> {
    if possible.contains(&said) {
        return Ok(());
    }
    Err(format!("said {what} {said}, and it was {possible:?}"))
}
