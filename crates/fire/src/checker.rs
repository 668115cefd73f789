//! Whether a history is one that can have happened.
//!
//! Per budget, in the order of the servers' time:
//!
//! * what passed had room, counting only what is certain to have been taken since the latest loss;
//! * what was denied had none, counting all that may have been taken: of each attempt without an answer once, or not at all;
//! * what was said to remain, to wait and to refill lies between the two, so that nothing is taken twice, or by another;
//! * no period let through more than the documented worst case, and one more budget for each loss in it.
//!
//! Per attempt: all or nothing; decided between question and answer; who waited as long as told, and had the budget
//! to itself, passed.

mod attempts;
mod bounds;
mod timeline;
mod worlds;
mod worst_case;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use self::attempts::{broken_promise, disagreement};
use self::bounds::{Rule, Seen};
use self::timeline::{Moment, Step, Timeline};
use self::worlds::{Loss, Unsure, Worlds};
use crate::attempt::{Attempt, Budget, Outcome};
use crate::history::{Effect, History};

/// How long after its answer, or after a disturbance that held it up, a call may still reach the server: as long as a
/// connection is kept that does not answer, and a second.
const LINGERS_US: u64 = 3_000_000;

/// What a checker found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What cannot have been.
    pub wrong: Vec<Wrong>,
    /// Attempts that were decided.
    pub decided: u64,
    /// Of these, admitted ones.
    pub admitted: u64,
    /// Attempts that failed and took nothing.
    pub failed: u64,
    /// Attempts of which nobody knows.
    pub unknown: u64,
    /// Retries after the time that was promised.
    pub promises: u64,
}

/// Something that cannot have been.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// The number of the attempt.
    pub attempt: usize,
    /// Which budget it is about, if it is about one.
    pub budget: Option<Budget>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}", self.attempt)?;
        if let Some(budget) = self.budget {
            write!(f, ", policy {} of caller {}", budget.policy, budget.caller)?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Looks for whatever cannot have been.
#[must_use]
pub fn check(history: &History) -> Findings {
    let timeline = Timeline::of(&history.disturbances);
    let mut findings = Findings::default();
    let mut budgets: BTreeMap<Budget, Course> = BTreeMap::new();
    for (number, attempt) in history.attempts.iter().enumerate() {
        let place = place(&timeline, attempt);
        findings.count(attempt);
        if let Outcome::Decided(decided) = &attempt.outcome {
            let reasons = [
                disagreement(attempt, decided),
                place
                    .is_none()
                    .then(|| "decided before it was asked or after it was answered".to_owned()),
            ];
            findings
                .wrong
                .extend(reasons.into_iter().flatten().map(|what| Wrong {
                    attempt: number,
                    budget: None,
                    what,
                }));
        }
        for (position, asked) in attempt.charges.iter().enumerate() {
            let course = budgets.entry(asked.budget).or_default();
            match (&attempt.outcome, place) {
                (Outcome::Failed(_), _) => {}
                (Outcome::Decided(decided), Some(Place::At(moment))) => {
                    if let Some(&said) = decided.verdicts.get(position) {
                        let seen = Seen {
                            cost: asked.cost,
                            said,
                        };
                        course.seen.push((moment, number, seen));
                    }
                }
                _ => course
                    .unsure
                    .extend(unsure(history, &timeline, attempt, asked.cost)),
            }
        }
    }
    for (number, attempt) in history.attempts.iter().enumerate() {
        let broken = broken_promise(history, &timeline, attempt, &budgets);
        findings.wrong.extend(broken.map(|what| Wrong {
            attempt: number,
            budget: None,
            what,
        }));
    }
    let losses = losses(history, &timeline);
    let steps = timeline.steps();
    for (budget, course) in budgets {
        if let Some(&quota) = history.quotas.get(budget.policy) {
            let wrong = course.check(&Rule::of(quota), &quota, &losses, &steps);
            findings.wrong.extend(wrong.map(|(attempt, what)| Wrong {
                attempt,
                budget: Some(budget),
                what,
            }));
        }
    }
    findings
}

impl Findings {
    fn count(&mut self, attempt: &Attempt) {
        match &attempt.outcome {
            Outcome::Decided(decided) => {
                self.decided += 1;
                self.admitted += u64::from(decided.admitted);
                self.promises += u64::from(attempt.promised_us.is_some());
            }
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Unknown(_) => self.unknown += 1,
        }
    }
}

/// When an attempt was decided.
#[derive(Clone, Copy)]
enum Place {
    At(Moment),
    /// Before or after the servers' clock was set: its number does not tell.
    Anywhere,
}

fn place(timeline: &Timeline, attempt: &Attempt) -> Option<Place> {
    let Outcome::Decided(decided) = &attempt.outcome else {
        return Some(Place::Anywhere);
    };
    let eras = timeline.eras_of(decided.at_us, attempt.sent_us, attempt.heard_us);
    match eras.as_slice() {
        [] => None,
        &[era] => Some(Place::At(Moment {
            era,
            at_us: decided.at_us,
        })),
        _ => Some(Place::Anywhere),
    }
}

/// Where a cost can have been taken by an attempt of unknown outcome. If the clock was set meanwhile, once on each side of
/// it: a charge before a step back is worse than the same charge after it.
fn unsure(
    history: &History,
    timeline: &Timeline,
    attempt: &Attempt,
    cost: u64,
) -> impl Iterator<Item = Unsure> + use<> {
    let mut until = attempt.heard_us.saturating_add(LINGERS_US);
    for disturbance in &history.disturbances {
        if disturbance.from_us <= until && disturbance.to_us >= attempt.sent_us {
            until = until.max(disturbance.to_us.saturating_add(LINGERS_US));
        }
    }
    let spans: Vec<_> = timeline.spans(attempt.sent_us, until).collect();
    let end = spans.last().map_or(Moment::FIRST, |(_, to)| *to);
    (spans.into_iter()).map(move |(from, to)| Unsure {
        from,
        to,
        end,
        cost,
    })
}

fn losses(history: &History, timeline: &Timeline) -> Vec<Loss> {
    let loss = |disturbance: &crate::history::Disturbance| {
        let is_certain = match disturbance.effect {
            Effect::Loss => true,
            Effect::MaybeLoss => false,
            Effect::Trouble | Effect::Clock(_) => return None,
        };
        Some(Loss {
            from: timeline.earliest(disturbance.from_us),
            to: timeline.latest(disturbance.to_us),
            is_certain,
        })
    };
    let mut losses: Vec<_> = history.disturbances.iter().filter_map(loss).collect();
    losses.sort_by_key(|loss| loss.from);
    losses
}

/// What happened to one budget.
#[derive(Default)]
struct Course {
    seen: Vec<(Moment, usize, Seen)>,
    unsure: Vec<Unsure>,
}

impl Course {
    fn check(
        mut self,
        rule: &Rule,
        quota: &tollgate_core::Quota,
        losses: &[Loss],
        steps: &[Step],
    ) -> impl Iterator<Item = (usize, String)> + use<> {
        // What one call decided has one time. Within it less and less remains, and who took it down comes before those
        // who found it so.
        self.seen.sort_by_key(|(moment, _, seen)| {
            (*moment, Reverse(seen.said.remaining), seen.said.taken == 0)
        });
        let taken: Vec<_> = (self.seen.iter())
            .map(|(moment, _, seen)| (*moment, seen.said.taken))
            .filter(|(_, taken)| *taken > 0)
            .collect();
        let exceeded = worst_case::exceeded(quota, &taken, |from, to| {
            let within = losses
                .iter()
                .filter(|loss| loss.from <= to && loss.to >= from);
            u64::try_from(within.count()).unwrap_or(u64::MAX)
        });
        let mut worlds = Worlds::new(rule, losses, steps, self.unsure);
        let impossible = self.seen.iter().find_map(|(moment, number, seen)| {
            let why = worlds.see(*moment, seen).err()?;
            Some((*number, why))
        });
        let last = self.seen.last().map_or(0, |(_, number, _)| *number);
        impossible
            .into_iter()
            .chain(exceeded.map(|what| (last, what)))
    }
}
