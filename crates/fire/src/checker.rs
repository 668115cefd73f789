//! Whether a history is one that can have happened.
//!
//! Per budget, in the order of the servers' time, between the [least](least) that can have been taken and the [most](most):
//!
//! * what passed had room, counting only what is certain to have been taken since the latest loss, less what may have been
//!   given back of it;
//! * what was denied had none, counting all that may have been taken: of each attempt without an answer once, or not at all,
//!   and less what has surely been given back;
//! * what was said to remain, to wait and to refill lies between the two, so that nothing is taken or given back twice, or
//!   by another;
//! * no period let through more than the documented worst case, and one more budget for each loss in it.
//!
//! Per attempt: all or nothing of what is enforced, each shadow on its own, nothing for probes; decided between question and
//! answer; who waited as long as told, and had the budget to itself, passed. What a limiter made of an answer and told over
//! HTTP is what follows from it. Everybody is answered within the deadline, and what the machine kept their process waiting.
//!
//! Per process that asks through a limiter: of its [share](share) of each budget it let through no more than that holds, and
//! what refills of it while the backend fails.

mod answers;
mod attempts;
mod course;
mod credit;
mod least;
mod most;
mod patience;
mod rule;
mod share;
mod timeline;
mod trial;
mod worst_case;

use std::cmp::Reverse;
use std::fmt;

use self::answers::misreported;
use self::attempts::{broken_promise, disagreement};
use self::course::Courses;
pub(crate) use self::patience::Waits;
use self::patience::belated;
use self::rule::Rule;
use self::timeline::{Moment, Step, Timelines};
use self::trial::{Course, Seen, Trial};
use crate::attempt::{Attempt, Budget, Fallback, Outcome};
use crate::history::History;

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
    /// Credits, debits and resets.
    pub corrected: u64,
    /// Attempts that failed and took nothing.
    pub failed: u64,
    /// Attempts of which nobody knows.
    pub unknown: u64,
    /// Attempts of any outcome that were requests over HTTP, and answered.
    pub over_http: u64,
    /// Attempts that a process's share decided.
    pub by_share: u64,
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
    let timelines = Timelines::of(history);
    let mut findings = Findings::default();
    let courses = Courses::of(history, &timelines);
    let waits = Waits::of(history);
    for (number, attempt) in history.attempts.iter().enumerate() {
        findings.count(attempt);
        let reasons = [
            disagreement(&timelines, attempt),
            broken_promise(history, &timelines, attempt, &courses),
            misreported(history, attempt),
            belated(history, &waits, attempt),
        ];
        let wrongs = reasons.into_iter().flatten().map(|what| Wrong {
            attempt: number,
            budget: None,
            what,
        });
        findings.wrong.extend(wrongs);
    }
    findings.wrong.extend(share::overspent(history));
    for (budget, course) in courses.into_budgets() {
        if let Some(&quota) = history.quotas.get(budget.policy) {
            let steps = timelines.of_budget(budget).steps();
            let wrong = looked_through(course, &Rule::of(quota), &steps);
            findings
                .wrong
                .extend(wrong.into_iter().map(|(attempt, what)| Wrong {
                    attempt,
                    budget: Some(budget),
                    what,
                }));
        }
    }
    findings
}

/// The first that cannot have been of one budget, and a period that let through too much.
fn looked_through(
    (mut seen, course): (Vec<(Moment, usize, Seen)>, Course),
    rule: &Rule,
    steps: &[Step],
) -> Vec<(usize, String)> {
    // What one call decided has one time. Within it less and less remains, and who took it down comes before those who
    // found it so.
    seen.sort_by_key(|(moment, _, seen)| {
        (*moment, Reverse(seen.said.remaining), seen.said.taken == 0)
    });
    let exceeded = worst_case::exceeded(rule.quota(), &seen, &course);
    let mut trial = Trial::new(rule, steps, course);
    let impossible = seen.iter().find_map(|(moment, number, seen)| {
        let why = trial.see(*moment, seen).err()?;
        Some((*number, why))
    });
    let last = seen.last().map_or(0, |(_, number, _)| *number);
    impossible
        .into_iter()
        .chain(exceeded.map(|what| (last, what)))
        .collect()
}

impl Findings {
    fn count(&mut self, attempt: &Attempt) {
        self.over_http += u64::from(attempt.told.is_some());
        let is_share = matches!(attempt.fallback, Some(Fallback::Decided { .. }));
        self.by_share += u64::from(is_share);
        match &attempt.outcome {
            Outcome::Decided(decided) => {
                self.decided += 1;
                self.admitted += u64::from(decided.admitted);
                self.promises += u64::from(attempt.promised_us.is_some());
            }
            Outcome::Reset | Outcome::Told => self.corrected += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Unknown(_) => self.unknown += 1,
        }
    }
}
