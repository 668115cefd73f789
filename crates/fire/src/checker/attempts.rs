//! The checks of an attempt by itself.

use super::course::Courses;
use super::grants::{decided_cost, stingy};
use super::patience::TIMER_US;
use super::places::is_turned_away;
use super::timeline::Timelines;
use crate::attempt::{AskedCharge, Attempt, DecisionRecord, Manner, Outcome, VerdictRecord};
use crate::history::{Disturbance, Effect, History};

/// The longest wait of a client for a promise.
const LONGEST_WAIT_US: u64 = 4_000_000;

/// A contradiction within a decision, or with its question.
pub(super) fn disagreement(timelines: &Timelines<'_>, attempt: &Attempt) -> Option<String> {
    let Outcome::Decided(decided) = &attempt.outcome else {
        return None;
    };
    let (asked, verdicts) = (attempt.verb.asked(), &decided.verdicts);
    if verdicts.len() != asked.len() {
        let (asked, said) = (asked.len(), verdicts.len());
        return Some(format!("{said} verdicts on {asked} charges"));
    }
    let mut charges = asked.iter().zip(verdicts);
    let mut enforced = charges
        .clone()
        .filter(|(asked, _)| asked.manner == Manner::Enforce);
    if decided.admitted != enforced.all(|(_, said)| said.passes) {
        return Some("the whole call does not agree with its parts".to_owned());
    }
    if decided.admitted && verdicts.iter().any(|said| !said.known) {
        return Some("admitted before every slot was asked".to_owned());
    }
    let expected = |asked: &AskedCharge, said: &VerdictRecord| {
        let is_taken = match asked.manner {
            Manner::Enforce => decided.admitted,
            Manner::Shadow => said.passes,
            Manner::Probe => false,
        };
        if is_taken {
            decided_cost(attempt, asked)
        } else {
            0
        }
    };
    if let Some((asked, said)) = charges.find(|(asked, said)| said.taken != expected(asked, said)) {
        let (taken, cost, manner) = (said.taken, asked.cost, asked.manner);
        return Some(format!("took {taken} of {cost} for {manner:?}"));
    }
    if decided.unasked && (decided.admitted || !are_enforced(asked)) {
        return Some("the server was not asked, and only it can tell".to_owned());
    }
    if let Some(wrong) = stingy(attempt, decided) {
        return Some(wrong);
    }
    let positions = 0..asked.len();
    let is_other = |(one, other): (usize, usize)| {
        let alike = VerdictRecord {
            taken: verdicts[other].taken,
            // One behind the other.
            full_at: verdicts[other].full_at,
            ..verdicts[one]
        };
        asked[one].is_one_with(&asked[other]) && alike != verdicts[other]
    };
    let mut pairs = positions.flat_map(|other| (0..other).map(move |one| (one, other)));
    if pairs.any(is_other) {
        return Some("a budget that was named twice stands in two ways".to_owned());
    }
    let untimely = |(asked, said): (&AskedCharge, &VerdictRecord)| {
        let timeline = timelines.of_budget(asked.budget);
        let (sent_us, decided_by_us) = (attempt.sent_us, attempt.decided_by_us());
        let age_us = attempt.state_age_us();
        let eras = timeline.eras_by_state(said.at_us, sent_us, decided_by_us, age_us);
        (said.known && eras.is_empty()).then(|| {
            let caller = asked.budget.caller;
            let late = |us: u64| i128::from(said.at_us) - i128::from(us);
            let (sent, heard) = (late(attempt.sent_us), late(attempt.heard_us));
            format!(
                "caller {caller} was decided {sent} µs after it was asked, {heard} µs after it was answered, by a clock that was {}",
                timeline.ahead()
            )
        })
    };
    asked.iter().zip(verdicts).find_map(untimely)
}

/// Says whether all are enforced: only such a call can be denied by what is known.
fn are_enforced(asked: &[AskedCharge]) -> bool {
    asked.iter().all(|asked| asked.manner == Manner::Enforce)
}

/// A retry that came in time and was denied, of a budget that no other client can have charged meanwhile.
pub(super) fn broken_promise(
    history: &History,
    timelines: &Timelines<'_>,
    attempt: &Attempt,
    courses: &Courses,
) -> Option<String> {
    let (
        Outcome::Decided(DecisionRecord {
            admitted, verdicts, ..
        }),
        Some(promised_us),
    ) = (&attempt.outcome, attempt.promised_us)
    else {
        return None;
    };
    let at_us = verdicts.iter().map(|said| said.at_us).min()?;
    let (from_us, to_us) = (
        attempt.sent_us.saturating_sub(LONGEST_WAIT_US),
        attempt.decided_by_us(),
    );
    let mut budgets = attempt.verb.budgets();
    let is_void = budgets.any(|budget| {
        let timeline = timelines.of_budget(budget);
        let (from, to) = (timeline.earliest(from_us), timeline.latest(to_us));
        let mut meanwhile =
            (history.disturbances.iter()).filter(|it| it.from_us <= to_us && it.to_us >= from_us);
        // The promise assumes a clock that does not step.
        let steps = |it: &Disturbance| matches!(it.effect, Effect::Clock(_));
        courses.is_doubtful(budget, from, to)
            || meanwhile.any(|it| steps(it) && it.concerns(timelines.home(budget)))
    });
    // A caller that found no room in the line was promised a turn in it.
    let is_void = is_void || is_turned_away(history, attempt);
    let is_broken = !is_void && at_us >= promised_us && !admitted;
    is_broken.then(|| format!("denied at {at_us}, and {promised_us} was promised"))
}

/// A request that went on before its turn: sooner after its question than it was to wait, or earlier by the server's clock. A
/// process that asks the backend itself waits by itself.
pub(super) fn hasty(timelines: &Timelines<'_>, attempt: &Attempt) -> Option<String> {
    if !attempt.asker.door.has_limiter() || attempt.left_us.is_some() {
        return None;
    }
    let wait_us = attempt.wait_us().filter(|us| *us > 0)?;
    let took_us = attempt.heard_us.saturating_sub(attempt.sent_us);
    if took_us + TIMER_US < wait_us {
        return Some(format!(
            "passed after {took_us} µs, and was to wait for {wait_us}"
        ));
    }
    let Outcome::Decided(decided) = &attempt.outcome else {
        return None;
    };
    let charges = attempt.verb.asked().iter().zip(&decided.verdicts);
    let early = |(asked, said): (&AskedCharge, &VerdictRecord)| {
        let timeline = timelines.of_budget(asked.budget);
        let eras = timeline.eras_of(said.at_us, attempt.sent_us, attempt.heard_us);
        let &[era] = eras.as_slice() else {
            return None;
        };
        let passed_us = timeline.latest_in(era, attempt.heard_us);
        let turn_us = said.at_us + said.wait_us;
        (asked.manner == Manner::Enforce && passed_us < turn_us).then(|| {
            let caller = asked.budget.caller;
            format!(
                "passed at {passed_us} at the latest, and its turn as caller {caller} is {turn_us}"
            )
        })
    };
    charges.into_iter().find_map(early)
}
