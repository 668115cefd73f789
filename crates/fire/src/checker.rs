//! Says whether a history is possible.
//!
//! For each budget, in the order of the servers' time, between the [least](least) and the [most](most) that can have been
//! taken:
//!
//! * a charge that passed had room, counting only charges that are certain since the latest loss, less the credits that may
//!   have been done;
//! * a denied charge had no room, counting all charges that may have been taken (each attempt without an answer once, or not at
//!   all), less the credits that are certain;
//! * each rest, wait and refill time lies between the two, so that nothing is taken or given back twice, or by another;
//! * no period let through more than the documented worst case, and one more budget for each loss in it.
//!
//! A denial [that a process knew](trial) had no room at some time of its life, which ends a moment later. It tells nothing else.
//!
//! For each attempt: all or nothing of the enforced charges, each shadow on its own, nothing for probes; decided between
//! question and answer; a caller that waited as long as told, and had the budget to itself, passed. The limiter's ruling and
//! the HTTP answer follow from the backend's answer. Each answer came within the deadline plus the time for which the machine
//! kept the process waiting.
//!
//! An answer through Envoy is [that of the gateway process](through_envoy), which writes down its decisions.
//!
//! A grant of as much as there is is decided as its amount would be, and [none is of less](grants) than there was. Without an
//! answer it may have taken any amount up to the most.
//!
//! A caller that states how long it waits at most [waits no longer](deadline), and is refused only if its turn comes later.
//!
//! A bucket [that warms up](told), or whose quota is replaced by one of another rate, tells its state with each verdict, and core's
//! rule gives the next. Each question is [by a quota that was in force](replaced).
//!
//! For each limiter of a process: [as many requests wait as its line has room for, and none once that is closed](lines).
//!
//! For each budget under which requests wait: [no request passes before its turn, and none overtakes](turns).
//!
//! For each key of a limit on how many at once: [no more than there are places](at_once), and no place refused that was free.
//!
//! For each caller under a policy with a ban: [strikes are exact, and no ban ends early or feeds itself](banned).
//!
//! For each id: [it is charged once, and passes uncharged no more often than its replays](once).
//!
//! For each leased budget: [no interval lets through more than the bound of a lease](leased).
//!
//! For each process that asks through a limiter: of its [share](share) of each budget it let through no more than the share
//! holds, and the refill while the backend fails.

mod answers;
mod at_once;
mod attempts;
mod banned;
mod course;
mod credit;
mod deadline;
mod grants;
mod leased;
mod least;
mod lines;
mod most;
mod once;
mod patience;
mod places;
mod replaced;
mod rule;
mod share;
mod through_envoy;
mod timeline;
mod told;
mod trial;
mod turns;
mod worst_case;

use std::cmp::Reverse;
use std::fmt;

use tollgate_core::Quota;

use self::answers::misreported;
pub use self::at_once::HeldFindings;
use self::at_once::check_held;
use self::attempts::{broken_promise, disagreement, hasty};
pub use self::banned::BanFindings;
use self::banned::check_bans;
use self::course::Courses;
use self::deadline::impatient;
pub use self::grants::GrantFindings;
pub use self::leased::LeaseFindings;
use self::leased::check_leased;
pub use self::lines::LineFindings;
use self::lines::check_lines;
pub use self::once::OnceFindings;
use self::once::check_once;
pub(crate) use self::patience::Waits;
use self::patience::belated;
use self::replaced::InForce;
pub use self::replaced::ReplacedFindings;
use self::rule::Rule;
pub use self::through_envoy::EnvoyFindings;
use self::timeline::{Moment, Step, Timelines};
pub use self::told::ToldFindings;
use self::trial::{Course, Observation, Trial};
pub use self::turns::TurnFindings;
use crate::attempt::{Attempt, Budget, Door, Fallback, Outcome};
use crate::history::History;
use crate::population::calendar_of;

/// The time after its answer, or after a disturbance that held it up, in which a call may still reach the server: as long as a
/// silent connection is kept, and a second.
const LINGERS_US: u64 = 3_000_000;

/// The findings of a checker.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The impossible.
    pub wrong: Vec<Violation>,
    /// Attempts that were decided.
    pub decided: u64,
    /// The admitted ones among these.
    pub admitted: u64,
    /// The denials that a process knew, without its server.
    pub known: u64,
    /// Credits, debits and resets.
    pub corrected: u64,
    /// Attempts that failed and took nothing.
    pub failed: u64,
    /// Attempts with an unknown outcome.
    pub unknown: u64,
    /// Answered attempts at services with the layer, over HTTP, of any outcome.
    pub over_http: u64,
    /// The findings about questions through Envoy.
    pub through_envoy: EnvoyFindings,
    /// Charges that a service settled.
    pub settled: u64,
    /// The part of these under quotas that let requests wait.
    pub settled_in_line: u64,
    /// Attempts that a process's share decided.
    pub by_share: u64,
    /// Retries after the promised time.
    pub promises: u64,
    /// The findings about limits on how many at once.
    pub held: HeldFindings,
    /// The findings about bans.
    pub banned: BanFindings,
    /// The findings about ids.
    pub once: OnceFindings,
    /// The findings about leased budgets.
    pub leased: LeaseFindings,
    /// Decided attempts whose callers stated how long they wait at most.
    pub stated: u64,
    /// The refused ones among these.
    pub impatient: u64,
    /// Budgets of a day in which a charge was taken after one of an earlier day.
    pub days: u64,
    /// The findings about grants of as much as there is.
    pub grants: GrantFindings,
    /// The findings about requests that wait for their turn.
    pub turns: TurnFindings,
    /// The findings about replaced quotas.
    pub replaced: ReplacedFindings,
    /// The findings about buckets that warm up.
    pub warming: ToldFindings,
    /// The findings about buckets whose rate is replaced.
    pub rated: ToldFindings,
    /// The findings about the lines in which they wait.
    pub lines: LineFindings,
}

impl Findings {
    /// Says whether nothing impossible was found.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.wrongs().next().is_none()
    }

    /// Everything impossible.
    pub fn wrongs(&self) -> impl Iterator<Item = String> {
        let of_kinds = [
            &self.held.wrong,
            &self.banned.wrong,
            &self.once.wrong,
            &self.leased.wrong,
        ];
        let of_attempts = self.wrong.iter().map(ToString::to_string);
        of_attempts.chain(of_kinds.into_iter().flatten().cloned())
    }
}

/// Something impossible.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The number of the attempt.
    pub attempt: usize,
    /// The budget that it is about, if it is about one.
    pub budget: Option<Budget>,
    /// The contradiction.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}", self.attempt)?;
        if let Some(budget) = self.budget {
            write!(f, ", policy {} of caller {}", budget.policy, budget.caller)?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Looks for everything impossible.
#[must_use]
pub fn check(history: &History) -> Findings {
    let timelines = Timelines::of(history);
    let mut findings = Findings::default();
    let courses = Courses::of(history, &timelines);
    let waits = Waits::of(history);
    let in_force = InForce::of(history);
    for (number, attempt) in history.attempts.iter().enumerate() {
        findings.count(attempt);
        let reasons = [
            disagreement(&timelines, attempt),
            broken_promise(history, &timelines, attempt, &courses),
            misreported(history, attempt),
            belated(history, &waits, attempt),
            findings.through_envoy.judge(history, &waits, attempt),
            hasty(&timelines, attempt),
            impatient(history, attempt),
            in_force.stale(attempt, &mut findings.replaced),
        ];
        let wrongs = reasons.into_iter().flatten().map(|what| Violation {
            attempt: number,
            budget: None,
            what,
        });
        findings.wrong.extend(wrongs);
    }
    let (of_lines, lines) = check_lines(history, &waits);
    findings.wrong.extend(of_lines);
    findings.lines = lines;
    findings.wrong.extend(share::overspent(history));
    findings.held = check_held(&history.holds, &history.disturbances, &history.waits);
    findings.banned = check_bans(history, &timelines);
    findings.once = check_once(history, &timelines);
    findings.leased = check_leased(history);
    for (budget, (mut seen, course)) in courses.into_budgets() {
        if let Some(&quota) = history.quotas.get(budget.policy) {
            sort_seen(&mut seen);
            findings.days += days_begun(&quota, &seen);
            let steps = timelines.of_budget(budget).steps();
            let replacements = history.replacements.get(&budget.policy);
            let replacements = replacements.map_or(&[][..], Vec::as_slice);
            let wrong = if !quota.longest_wait().is_zero() {
                findings.turns.judge(&quota, replacements, &seen, &course)
            } else if !quota.warm_up_period().is_zero() {
                let told = findings.warming.judge(&[Rule::of(quota)], &seen, &course);
                let plain = Rule::of(without_warm_up(&quota));
                let trial = Trial::new(&plain, &steps, course).one_sided();
                told.into_iter().chain(first_wrong(trial, &seen)).collect()
            } else if !replacements.is_empty() {
                let quotas = [quota].into_iter().chain(replacements.iter().copied());
                let rules: Vec<_> = quotas.map(Rule::of).collect();
                let told = findings.rated.judge(&rules, &seen, &course);
                told.into_iter().collect()
            } else {
                judge_budget(&quota, &seen, course, &steps)
            };
            findings
                .wrong
                .extend(wrong.into_iter().map(|(attempt, what)| Violation {
                    attempt,
                    budget: Some(budget),
                    what,
                }));
        }
    }
    findings
}

/// One call decides at one time. Within it the rest only shrinks, and the charge that took units down comes before those that found
/// fewer.
fn sort_seen(seen: &mut [(Moment, usize, Observation)]) {
    seen.sort_by_key(|(moment, _, seen)| {
        (*moment, Reverse(seen.said.remaining), seen.said.taken == 0)
    });
}

/// The days that began under a quota of days, between two charges.
fn days_begun(quota: &Quota, seen: &[(Moment, usize, Observation)]) -> u64 {
    let Some(calendar) = calendar_of(quota) else {
        return 0;
    };
    let charges = seen.iter().filter(|(.., seen)| seen.said.taken > 0);
    let mut begun = 0;
    let mut last_end_us = u64::MAX;
    for (moment, ..) in charges {
        if last_end_us <= moment.at_us {
            begun += 1;
        }
        let [_, _, _, end_us, ..] = calendar.bounds_around(moment.at_us);
        last_end_us = end_us;
    }
    begun
}

/// The first impossibility of one budget, and a period that let through too much.
fn judge_budget(
    quota: &Quota,
    seen: &[(Moment, usize, Observation)],
    course: Course,
    steps: &[Step],
) -> Vec<(usize, String)> {
    let exceeded = worst_case::exceeded(quota, seen, &course);
    let rule = Rule::of(*quota);
    let impossible = first_wrong(Trial::new(&rule, steps, course), seen);
    let last = seen.last().map_or(0, |(_, number, _)| *number);
    impossible
        .into_iter()
        .chain(exceeded.map(|what| (last, what)))
        .collect()
}

fn first_wrong(
    mut trial: Trial<'_>,
    seen: &[(Moment, usize, Observation)],
) -> Option<(usize, String)> {
    let known = trial.known().to_vec();
    let mut known = known.iter().peekable();
    let end = (Moment::LAST, 0, None);
    let seen = seen
        .iter()
        .map(|(moment, number, seen)| (*moment, *number, Some(seen)));
    seen.chain([end]).find_map(|(moment, number, seen)| {
        // The server's word of one moment comes first.
        while let Some((then, number, known)) = known.next_if(|(then, ..)| *then < moment) {
            if let Err(why) = trial.see_known(*then, known) {
                return Some((*number, why));
            }
        }
        let why = trial.see(moment, seen?).err()?;
        Some((number, why))
    })
}

/// A bucket without the warm-up: nothing passes that it would not let through.
fn without_warm_up(quota: &Quota) -> Quota {
    Quota::new(quota.limit(), quota.period()).burst(quota.capacity())
}

impl Findings {
    fn count(&mut self, attempt: &Attempt) {
        self.grants.count(attempt);
        let is_over_http = attempt.asker.door == Door::Http && attempt.told.is_some();
        self.over_http += u64::from(is_over_http);
        for (position, _cost) in attempt.settled() {
            self.settled += 1;
            self.settled_in_line += u64::from(attempt.may_have_waited(position));
        }
        let is_share = matches!(attempt.fallback, Some(Fallback::Decided { .. }));
        self.by_share += u64::from(is_share);
        match &attempt.outcome {
            Outcome::Decided(decided) => {
                self.decided += 1;
                self.admitted += u64::from(decided.admitted);
                self.known += u64::from(decided.unasked);
                self.promises += u64::from(attempt.promised_us.is_some());
                let is_stated = attempt.waits_at_most_us.is_some();
                self.stated += u64::from(is_stated);
                self.impatient += u64::from(is_stated && !decided.admitted);
            }
            Outcome::Reset | Outcome::Told => self.corrected += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Unknown(_) => self.unknown += 1,
        }
    }
}
