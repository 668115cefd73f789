//! The course of each budget, joined from all attempts.

use std::collections::BTreeMap;

use super::LINGERS_US;
use super::credit::Credit;
use super::grants::decided_cost;
use super::most::Doubt;
use super::rule::Rule;
use super::timeline::{Moment, Timeline, Timelines};
use super::trial::{Course, Loss, Observation, Stray, UncertainCharge};
use crate::attempt::{
    AskedCharge, Attempt, Budget, Door, KNOWN_LIFE_US, Manner, Outcome, Verb, VerdictRecord,
};
use crate::history::{Disturbance, Effect, History};

/// An observation of a budget, with its attempt, and the other events.
type BudgetEvents = (Vec<(Moment, usize, Observation)>, Course);

/// The course of each budget.
#[derive(Default)]
pub(super) struct Courses(BTreeMap<Budget, BudgetEvents>);

impl Courses {
    pub(super) fn of(history: &History, timelines: &Timelines<'_>) -> Self {
        Self::among(history, timelines, &Hindrances::of(history))
    }

    /// The courses of the budgets of one kind, in a history of several.
    pub(super) fn among(
        history: &History,
        timelines: &Timelines<'_>,
        hindrances: &Hindrances,
    ) -> Self {
        let mut courses = Self::default();
        let reader = Reader {
            history,
            timelines,
            hindrances,
        };
        for (number, attempt) in history.attempts.iter().enumerate() {
            for budget in attempt.verb.budgets() {
                courses.0.entry(budget).or_default();
            }
            reader.read(number, attempt, &mut courses);
        }
        for (budget, (_, course)) in &mut courses.0 {
            let disturbances = history.disturbances.iter();
            let there = disturbances.filter(|it| it.concerns(timelines.home(*budget)));
            let losses: Vec<_> = there.filter_map(|it| reader.loss(*budget, it)).collect();
            // A reset that a replica has not heard of is lost with its master, like everything else.
            for reset in &mut course.losses {
                let mut losses = losses.iter();
                let may_be_lost = losses.any(|loss| loss.from <= reset.to && loss.to >= reset.from);
                reset.is_certain &= !may_be_lost;
            }
            course.losses.extend(losses);
            if let Some(&quota) = history.quotas.get(budget.policy) {
                weigh_credits(course, &Rule::of(quota));
            }
            course.losses.sort_by_key(|loss| loss.from);
            course.known.sort_by_key(|(moment, ..)| *moment);
            course.strays = strays(course);
        }
        courses
    }

    /// Says whether an attempt of unknown time may have charged a budget between these moments.
    pub(super) fn is_doubtful(&self, budget: Budget, from: Moment, to: Moment) -> bool {
        let course = self.0.get(&budget).map(|(_, course)| course);
        let mut unsure = course.iter().flat_map(|course| &course.unsure);
        unsure.any(|it| it.from <= to && it.to >= from)
    }

    /// The credits of a budget.
    pub(super) fn credits(&self, budget: Budget) -> &[Credit] {
        let course = self.0.get(&budget).map(|(_, course)| course);
        course.map_or(&[], |course| &course.credits)
    }

    pub(super) fn into_budgets(self) -> impl Iterator<Item = (Budget, BudgetEvents)> {
        self.0.into_iter()
    }

    fn course(&mut self, budget: Budget) -> &mut Course {
        &mut self.0.entry(budget).or_default().1
    }
}

struct Reader<'a> {
    history: &'a History,
    timelines: &'a Timelines<'a>,
    hindrances: &'a Hindrances,
}

impl Reader<'_> {
    fn timeline(&self, budget: Budget) -> &Timeline {
        self.timelines.of_budget(budget)
    }

    fn read(&self, number: usize, attempt: &Attempt, courses: &mut Courses) {
        match &attempt.verb {
            Verb::Decide(asked) | Verb::Grant(asked, _) if attempt.state_age_us() > 0 => {
                // Nothing was taken, and no server moved a state.
                for (position, charge) in asked.iter().enumerate() {
                    if let Some((moment, seen)) = self.known(attempt, position, charge) {
                        let course = courses.course(charge.budget);
                        course.known.push((moment, number, seen));
                    }
                }
            }
            Verb::Decide(asked) | Verb::Grant(asked, _) => {
                if let (Some(left_us), Outcome::Decided(decided)) =
                    (attempt.left_us, &attempt.outcome)
                {
                    let charges = asked.iter().zip(&decided.verdicts);
                    for (charge, &said) in charges.filter(|(_, said)| said.taken > 0) {
                        let budget = charge.budget.told(&self.history.others, &said);
                        let credit = self.refund(attempt, left_us, budget, said, said.taken);
                        courses.course(budget).credits.push(credit);
                    }
                }
                for (position, charge) in asked.iter().enumerate() {
                    let mut before = asked[..position].iter();
                    if !before.any(|before| before.is_one_with(charge))
                        && let Some((moment, seen)) = self.seen(attempt, position, charge)
                    {
                        let budget = charge.budget.told(&self.history.others, &seen.said);
                        let (all, _) = courses.0.entry(budget).or_default();
                        all.push((moment, number, seen));
                    }
                    let doubt = Doubt {
                        n: self.doubtful(attempt, position, charge),
                        is_debit: false,
                    };
                    for budget in self.possible_budgets(attempt, position, charge.budget) {
                        let unsure = self.unsure(attempt, budget, doubt);
                        courses.course(budget).unsure.extend(unsure);
                    }
                }
            }
            &Verb::Credit(budget, said, n) => {
                let credit = self.refund(attempt, attempt.sent_us, budget, said, n);
                courses.course(budget).credits.push(credit);
            }
            &Verb::Debit(budget, n) => {
                let doubt = Doubt { n, is_debit: true };
                let course = courses.course(budget);
                let mut unsure = self.unsure(attempt, budget, doubt);
                for debit in &mut unsure {
                    debit.done_by = self.returned_by(attempt, attempt.sent_us, budget);
                }
                if self.is_certain(attempt) {
                    course.debits.extend(unsure.clone());
                }
                course.unsure.extend(unsure);
            }
            &Verb::Reset(budget) => {
                let to_us = match attempt.outcome {
                    Outcome::Failed(_) => return,
                    Outcome::Reset => attempt.heard_us,
                    _ => self.lingers_until(attempt),
                };
                courses.course(budget).losses.push(Loss {
                    from: self.timeline(budget).earliest(attempt.sent_us),
                    to: self.timeline(budget).latest(to_us),
                    is_certain: attempt.outcome == Outcome::Reset,
                    is_takeover: false,
                });
            }
        }
    }

    /// The budgets that a charge may have been taken from: both, if no verdict tells its quota.
    fn possible_budgets(&self, attempt: &Attempt, position: usize, budget: Budget) -> Vec<Budget> {
        let said = match &attempt.outcome {
            Outcome::Decided(decided) => decided.verdicts.get(position),
            _ => None,
        };
        if let Some(said) = said {
            return vec![budget.told(&self.history.others, said)];
        }
        let other = self.history.others.get(&budget.policy);
        let other = other.map(|&policy| Budget { policy, ..budget });
        [budget].into_iter().chain(other).collect()
    }

    /// The verdict on a charge, with all others that count as one with it, if there is one and its time is known.
    fn seen(
        &self,
        attempt: &Attempt,
        position: usize,
        asked: &AskedCharge,
    ) -> Option<(Moment, Observation)> {
        let Outcome::Decided(decided) = &attempt.outcome else {
            return None;
        };
        let &first = decided.verdicts.get(position)?;
        let moment = self.moment(attempt, asked.budget, &first)?;
        let charges = attempt.verb.asked().iter().zip(&decided.verdicts);
        let same = charges.filter(|(other, _)| other.is_one_with(asked));
        let (mut cost, mut said) = (0, VerdictRecord { taken: 0, ..first });
        for (asked, one) in same {
            cost += decided_cost(attempt, asked);
            said.taken += one.taken;
            // One behind the other.
            said.full_at = said.full_at.max(one.full_at);
        }
        first.known.then_some((moment, Observation { cost, said }))
    }

    /// The denial of a charge that was known. `None` if there was a disturbance within its life, which may be felt after that.
    fn known(
        &self,
        attempt: &Attempt,
        position: usize,
        asked: &AskedCharge,
    ) -> Option<(Moment, Observation)> {
        let from_us = attempt.sent_us.saturating_sub(2 * KNOWN_LIFE_US);
        let home = self.timelines.home(asked.budget);
        let mut disturbances = self.history.disturbances.iter();
        let is_disturbed = disturbances
            .any(|it| it.from_us <= attempt.heard_us && it.to_us >= from_us && it.concerns(home));
        let (moment, seen) = self.seen(attempt, position, asked)?;
        (!is_disturbed && !seen.said.passes).then_some((moment, seen))
    }

    fn moment(&self, attempt: &Attempt, budget: Budget, said: &VerdictRecord) -> Option<Moment> {
        let (sent_us, heard_us, age_us) =
            (attempt.sent_us, attempt.heard_us, attempt.state_age_us());
        let timeline = self.timeline(budget);
        let eras = timeline.eras_by_state(said.at_us, sent_us, heard_us, age_us);
        match eras.as_slice() {
            &[era] => Some(Moment {
                era,
                at_us: said.at_us,
            }),
            // It came before or after the servers' clock was set: its number does not tell.
            _ => None,
        }
    }

    /// The amount that an attempt may have taken beyond the observations.
    fn doubtful(&self, attempt: &Attempt, position: usize, asked: &AskedCharge) -> u64 {
        if asked.manner == Manner::Probe {
            return 0;
        }
        let mut callers = attempt.verb.budgets().map(|budget| budget.caller);
        let first = callers.next();
        let is_split = self.history.is_apart && callers.any(|caller| Some(caller) != first);
        // Units taken in one place, until another denied.
        let for_a_while = if is_split && asked.manner == Manner::Enforce {
            asked.cost
        } else {
            0
        };
        match &attempt.outcome {
            Outcome::Decided(decided) => {
                let said = decided.verdicts.get(position);
                let said = said.filter(|said| self.moment(attempt, asked.budget, said).is_none());
                let unplaced = said.map_or(0, |said| said.taken);
                unplaced.max(if decided.admitted { 0 } else { for_a_while })
            }
            Outcome::Failed(_) if is_split => asked.cost,
            Outcome::Failed(_) => 0,
            Outcome::Unknown(_) | Outcome::Reset | Outcome::Told => self.largest(attempt, asked),
        }
    }

    /// The most that a charge without an answer may have taken: its cost, or all that there was.
    fn largest(&self, attempt: &Attempt, asked: &AskedCharge) -> u64 {
        let policy = asked.budget.policy;
        let whole = self.history.quotas.get(policy);
        let whole = whole.filter(|_| !self.history.replacements.contains_key(&policy));
        match (attempt.verb.at_least(), whole) {
            (Some(_), Some(whole)) => asked.cost.min(whole.capacity()),
            _ => asked.cost,
        }
    }

    /// The spans in which an attempt of unknown outcome may have charged. If the clock was set meanwhile, there is one on each
    /// side: a charge before a step back is worse than that charge after it.
    fn unsure(&self, attempt: &Attempt, budget: Budget, doubt: Doubt) -> Vec<UncertainCharge> {
        if doubt.n == 0 {
            return Vec::new();
        }
        let until = self.lingers_until(attempt);
        let timeline = self.timeline(budget);
        let spans: Vec<_> = timeline.spans(attempt.sent_us, until).collect();
        let end = spans.last().map_or(Moment::FIRST, |(_, to)| *to);
        let span = |(from, to)| UncertainCharge {
            from,
            to,
            end,
            doubt,
            done_by: None,
        };
        spans.into_iter().map(span).collect()
    }

    fn refund(
        &self,
        attempt: &Attempt,
        sent_us: u64,
        budget: Budget,
        of: VerdictRecord,
        n: u64,
    ) -> Credit {
        let timeline = self.timeline(budget);
        let from = timeline.earliest(sent_us);
        let to = timeline.latest(self.lingers_until(attempt));
        let eras = timeline.eras_of(of.at_us, 0, sent_us);
        let charged = match eras.as_slice() {
            &[era] if era == from.era && era == to.era => Some(Moment {
                era,
                at_us: of.at_us,
            }),
            _ => None,
        };
        Credit {
            from: charged.map_or(from, |charged| charged.max(from)),
            to,
            n,
            charged,
            at_us: of.at_us,
            full_at: of.full_at,
            terms: of.terms,
            // It was rounded up.
            shows_until_us: (of.at_us + of.reset_after_us).saturating_sub(1),
            is_certain: charged.is_some() && self.is_certain(attempt),
            returned_by: charged.and_then(|_| self.returned_by(attempt, sent_us, budget)),
        }
    }

    /// The time by which a credit surely was done that was made between this time and the end of the attempt, if nothing was in its
    /// way for long before.
    fn returned_by(&self, attempt: &Attempt, sent_us: u64, budget: Budget) -> Option<Moment> {
        if attempt.outcome.is_silence() || attempt.outcome.is_unheard() {
            return None;
        }
        let process = attempt.asker.process;
        let heard_us = attempt.heard_us;
        let done_us = done_by(self.history, self.hindrances, process, sent_us, heard_us);
        Some(self.timeline(budget).latest(done_us?))
    }

    /// Says whether an action without an answer is certain: no fault was in its way, and its client lived on.
    fn is_certain(&self, attempt: &Attempt) -> bool {
        attempt.outcome == Outcome::Told
            && self.lingers_until(attempt) == attempt.heard_us.saturating_add(LINGERS_US)
    }

    /// The latest time at which a call may reach the server.
    fn lingers_until(&self, attempt: &Attempt) -> u64 {
        let process = attempt.asker.process;
        lingers_until(self.history, process, attempt.sent_us, attempt.heard_us)
    }

    fn loss(&self, budget: Budget, disturbance: &Disturbance) -> Option<Loss> {
        let timeline = self.timeline(budget);
        let is_certain = match disturbance.effect {
            Effect::Loss => true,
            Effect::MaybeLoss => false,
            Effect::Trouble | Effect::Clock(_) => return None,
        };
        Some(Loss {
            from: timeline.earliest(disturbance.from_us),
            to: timeline.latest(disturbance.to_us),
            is_certain,
            is_takeover: !is_certain,
        })
    }
}

/// The time within which a credit is done if nothing is in its way: it leaves with the next call.
const RETURNS_US: u64 = 100_000;

/// The time after a disturbance in which a process may still find that a connection is dead.
const AFTERMATH_US: u64 = 1_000_000;

/// A time without an answer or a processor that may delay a credit.
const HINDRANCE_US: u64 = 40_000;

/// The times in which each process was kept waiting for longer than usual, by the servers or by the machine.
#[derive(Debug)]
pub(super) struct Hindrances(BTreeMap<u32, Vec<(u64, u64)>>);

impl Hindrances {
    pub(super) fn of(history: &History) -> Self {
        let mut all = Self(BTreeMap::new());
        all.note_slow(&history.attempts);
        let waits = history.waits.iter();
        for wait in waits.filter(|it| it.to_us - it.from_us > HINDRANCE_US) {
            all.note(wait.process, wait.from_us, wait.to_us);
        }
        all
    }

    /// These, and the times in which these attempts had no answer.
    pub(super) fn and(mut self, attempts: &[Attempt]) -> Self {
        self.note_slow(attempts);
        self
    }

    fn note_slow(&mut self, attempts: &[Attempt]) {
        let slow = attempts.iter().filter(|it| {
            let is_slow = it.answered_us() - it.sent_us > HINDRANCE_US;
            matches!(it.outcome, Outcome::Failed(_))
                || is_slow && it.asker.door == Door::Backend
                || it.outcome.is_silence()
                || it
                    .asking
                    .is_some_and(|it| it.answered_us - it.asked_us > HINDRANCE_US)
        });
        for attempt in slow {
            self.note(attempt.asker.process, attempt.sent_us, attempt.heard_us);
        }
    }

    fn note(&mut self, process: u32, from_us: u64, to_us: u64) {
        let of_process = self.0.entry(process).or_default();
        of_process.push((from_us, to_us));
    }
}

/// The latest time at which a call of a process may reach the server that was made and over at these times.
pub(super) fn lingers_until(history: &History, process: u32, sent_us: u64, heard_us: u64) -> u64 {
    let disturbances = history.disturbances.iter();
    let disturbances = disturbances.map(|it| (it.from_us, it.to_us));
    // A process that is stopped sends what it has when it goes on.
    let waits = history.waits.iter();
    let stops = waits.filter(|it| it.process == process && it.to_us - it.from_us > LINGERS_US);
    let stops = stops.map(|it| (it.from_us, it.to_us));
    let mut until = heard_us.saturating_add(LINGERS_US);
    for (from_us, to_us) in stops.chain(disturbances) {
        if from_us <= until && to_us >= sent_us {
            until = until.max(to_us.saturating_add(LINGERS_US));
        }
    }
    until
}

/// The time by which a correction surely was done that a process made between these times, if nothing was in its way for long
/// before.
pub(super) fn done_by(
    history: &History,
    hindrances: &Hindrances,
    process: u32,
    sent_us: u64,
    heard_us: u64,
) -> Option<u64> {
    let from_us = sent_us.saturating_sub(AFTERMATH_US);
    let to_us = heard_us.saturating_add(RETURNS_US);
    let mut disturbances = history.disturbances.iter();
    let is_disturbed = disturbances.any(|it| it.from_us <= to_us && it.to_us >= from_us);
    let mut hindrances = hindrances.0.get(&process).into_iter().flatten();
    let is_hindered = hindrances.any(|(start_us, end_us)| *start_us <= to_us && *end_us >= sent_us);
    (!is_disturbed && !is_hindered).then_some(to_us)
}

/// Earlier credits reduce the part of a charge that still shows in a bucket, and a charge on a lost budget gets nothing back.
fn weigh_credits(course: &mut Course, rule: &Rule) {
    let all = course.credits.clone();
    for (number, credit) in course.credits.iter_mut().enumerate() {
        let from = credit.charged.unwrap_or(Moment::FIRST);
        let overlaps = |other: &Credit| other.from <= credit.to && other.to >= from;
        let others = all.iter().enumerate();
        let others = others.filter(|(other, it)| *other != number && overlaps(it));
        let less_us = others.map(|(_, it)| rule.drain_us(it.n) + 1).sum();
        credit.shows_until_us = credit.shows_until_us.saturating_sub(less_us);
        let mut losses = course.losses.iter();
        credit.is_certain &= !losses.any(|loss| loss.from <= credit.to && loss.to >= from);
    }
}

fn strays(course: &Course) -> Vec<Stray> {
    let first_loss = |from: Moment, to: Moment| {
        let mut losses = course.losses.iter();
        losses.find(|loss| loss.from <= to && loss.to >= from)
    };
    let unheard = course.unsure.iter().filter(|it| !it.doubt.is_debit);
    let unheard = unheard.filter_map(|unsure| {
        let loss = first_loss(unsure.from, unsure.end)?;
        Some(Stray {
            from: unsure.from.max(loss.from),
            to: unsure.end,
            n: unsure.doubt.n,
        })
    });
    let given_back = course.credits.iter().filter_map(|credit| {
        let from = match credit.charged {
            Some(charged) => first_loss(charged, credit.to)?.from,
            // A step of the clock came between.
            None => credit.from,
        };
        Some(Stray {
            from: from.max(credit.from),
            to: credit.to,
            n: credit.n,
        })
    });
    unheard.chain(given_back).collect()
}
