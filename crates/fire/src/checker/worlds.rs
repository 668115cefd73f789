//! The courses that things may have taken: with each loss at each moment at which it can have happened.
//!
//! What came before a loss and what came after tell where it was, so that seldom more than one course is left.

use super::bounds::{Bounds, Rule, Seen};
use super::timeline::{Moment, Step};

/// A loss of all budgets, at one moment between two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) from: Moment,
    pub(super) to: Moment,
    /// Whether it surely happened.
    pub(super) is_certain: bool,
}

/// What may have been taken at one moment between two, or not at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsure {
    pub(super) from: Moment,
    pub(super) to: Moment,
    /// When the whole attempt is over, if the clock was set meanwhile.
    pub(super) end: Moment,
    pub(super) cost: u64,
}

/// Each course that is still possible: at `n` the one in which the first `n` losses have happened.
#[derive(Debug)]
pub(super) struct Worlds<'a> {
    rule: &'a Rule,
    losses: &'a [Loss],
    /// The last to end stand last.
    unsure: Vec<Unsure>,
    /// So many of them have ended.
    ended: usize,
    worlds: Vec<Option<Bounds>>,
    last: Moment,
    /// What the clock did where each era begins.
    steps: &'a [Step],
    /// See [`Rule::blind_us`].
    blind_us: u64,
    blind_until: Moment,
}

impl<'a> Worlds<'a> {
    pub(super) fn new(
        rule: &'a Rule,
        losses: &'a [Loss],
        steps: &'a [Step],
        mut unsure: Vec<Unsure>,
    ) -> Self {
        unsure.sort_by_key(|unsure| unsure.to);
        let mut worlds = vec![None; losses.len() + 1];
        worlds[0] = Some(Bounds::full(rule));
        Self {
            rule,
            losses,
            unsure,
            ended: 0,
            worlds,
            last: Moment::FIRST,
            steps,
            blind_us: 0,
            blind_until: Moment::FIRST,
        }
    }

    /// Goes on to something that was seen. An error says why it cannot have been.
    pub(super) fn see(&mut self, now: Moment, seen: &Seen) -> Result<(), String> {
        self.end_until(now);
        self.lose_until(now);
        self.enter(now);
        let pending = self.unsure[self.ended..]
            .iter()
            .filter(|unsure| unsure.from <= now)
            .fold(0_u64, |sum, unsure| sum.saturating_add(unsure.cost));
        let is_blind = now < self.blind_until;
        let mut why = String::new();
        for world in &mut self.worlds {
            let Some(bounds) = world else { continue };
            if let Err(reason) = bounds.see(self.rule, now, seen, pending, is_blind) {
                // The earliest course is the one that is told: it needs no loss.
                if why.is_empty() {
                    why = reason;
                }
                *world = None;
            }
        }
        if self.worlds.iter().any(Option::is_some) {
            Ok(())
        } else {
            Err(why)
        }
    }

    /// The clock may have been set since.
    fn enter(&mut self, now: Moment) {
        for era in self.last.era + 1..=now.era {
            let Some(&Step { back_us, ended_us }) = self.steps.get(era) else {
                continue;
            };
            if back_us > 0 {
                for bounds in self.worlds.iter_mut().flatten() {
                    bounds.forget_full(self.rule, ended_us);
                }
            }
            // Who is still blind stays so for as long again: by the new clock the old end means nothing.
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
        self.last = now;
    }

    /// What can happen no more has happened as late as it could.
    fn end_until(&mut self, now: Moment) {
        while let Some(unsure) = self.unsure.get(self.ended)
            && unsure.to < now
        {
            for bounds in self.worlds.iter_mut().flatten() {
                bounds.may_lose(self.rule, unsure.to.at_us, unsure.cost);
            }
            self.ended += 1;
        }
    }

    /// Each loss that can have happened by now may just have.
    fn lose_until(&mut self, now: Moment) {
        for (number, loss) in self.losses.iter().enumerate() {
            if loss.from > now {
                break;
            }
            let Some(before) = self.worlds[number].clone() else {
                continue;
            };
            let across = |unsure: &&Unsure| unsure.from <= loss.to && unsure.end >= loss.from;
            let last = self
                .unsure
                .iter()
                .filter(across)
                .map(|unsure| unsure.end)
                .max();
            let mut after = Bounds::full(self.rule).loose_until(last.unwrap_or(Moment::FIRST));
            if loss.is_certain {
                let later = self.unsure[..self.ended].iter();
                for unsure in later.filter(|unsure| unsure.to >= loss.from) {
                    after.may_lose(self.rule, unsure.to.at_us, unsure.cost);
                }
            } else {
                after = before.with_least_of(after);
            }
            self.worlds[number + 1] = Some(match self.worlds[number + 1].take() {
                // Lost sooner or later: the least of the one and the most of the other.
                Some(sooner) => sooner.with_least_of(after),
                None => after,
            });
            if loss.to < now {
                // The next sees it in the past.
                self.worlds[number] = None;
            }
        }
    }
}
