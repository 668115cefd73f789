//! What an attempt shows by itself.

use std::collections::BTreeMap;

use super::Course;
use super::timeline::Timeline;
use crate::attempt::{Attempt, Budget, Decided, Outcome};
use crate::history::{Effect, History};

/// The longest that anybody waits to see a promise kept.
const LONGEST_WAIT_US: u64 = 4_000_000;

/// How a decision contradicts itself or its question.
pub(super) fn disagreement(attempt: &Attempt, decided: &Decided) -> Option<String> {
    let verdicts = &decided.verdicts;
    if verdicts.len() != attempt.charges.len() {
        let (asked, said) = (attempt.charges.len(), verdicts.len());
        return Some(format!("{said} verdicts on {asked} charges"));
    }
    if decided.admitted != verdicts.iter().all(|said| said.passes) {
        return Some("the whole call does not agree with its parts".to_owned());
    }
    let expected = |cost: u64| if decided.admitted { cost } else { 0 };
    let mut charges = attempt.charges.iter().zip(verdicts);
    let (asked, said) = charges.find(|(asked, said)| said.taken != expected(asked.cost))?;
    Some(format!(
        "took {} of {}: not all, or not nothing",
        said.taken, asked.cost
    ))
}

/// A retry that came in time, of a budget that nobody else can have charged meanwhile, and was denied.
pub(super) fn broken_promise(
    history: &History,
    timeline: &Timeline,
    attempt: &Attempt,
    budgets: &BTreeMap<Budget, Course>,
) -> Option<String> {
    let (Outcome::Decided(decided), Some(promised_us)) = (&attempt.outcome, attempt.promised_us)
    else {
        return None;
    };
    let (from_us, to_us) = (
        attempt.sent_us.saturating_sub(LONGEST_WAIT_US),
        attempt.heard_us,
    );
    let overlaps = |from, to| from <= timeline.latest(to_us) && to >= timeline.earliest(from_us);
    let is_charged = |course: &Course| course.unsure.iter().any(|it| overlaps(it.from, it.to));
    let mut courses = attempt
        .charges
        .iter()
        .filter_map(|asked| budgets.get(&asked.budget));
    // What was promised assumes a clock that does not step.
    let is_void = courses.any(is_charged)
        || history.disturbances.iter().any(|it| {
            matches!(it.effect, Effect::Clock(_)) && it.from_us <= to_us && it.to_us >= from_us
        });
    let is_broken = !is_void && decided.at_us >= promised_us && !decided.admitted;
    is_broken.then(|| {
        format!(
            "denied at {}, and {promised_us} was promised",
            decided.at_us
        )
    })
}
