//! Says whether the limiter's ruling and the HTTP answer follow from the backend's answer.

use crate::attempt::{
    AskedCharge, Attempt, DecisionRecord, Door, Fallback, HttpAnswer, Manner, Outcome,
    VerdictRecord,
};
use crate::history::History;

use super::patience::TIMER_US;
use super::share::share_of;

/// A contradiction between the failure rule or a response, and the backend's answer.
pub(super) fn misreported(history: &History, attempt: &Attempt) -> Option<String> {
    let asked = attempt.verb.asked();
    if asked.is_empty() {
        return None;
    }
    if !attempt.asker.door.has_limiter() || attempt.outcome.is_unheard() {
        return None;
    }
    // What was told is of both.
    if attempt.outcome.is_in_part() {
        return None;
    }
    let ruled = misruled(history, asked, attempt);
    let told = attempt.told.as_ref();
    if told.is_some() != (attempt.asker.door == Door::Http) {
        return Some("a request was not answered, or something else was".to_owned());
    }
    ruled.or_else(|| misstated(history, asked, attempt, told?))
}

fn misruled(history: &History, asked: &[AskedCharge], attempt: &Attempt) -> Option<String> {
    let is_decided = matches!(attempt.outcome, Outcome::Decided(_));
    let Some(fallback) = &attempt.fallback else {
        return (!is_decided).then(|| "no backend decided, and no rule acted".to_owned());
    };
    if *fallback == Fallback::TooLate {
        return (!is_too_late(attempt))
            .then(|| "it was refused, and would have had its turn in time".to_owned());
    }
    if *fallback == Fallback::Stopped {
        // Its line says whether it was closed.
        return (!is_decided).then(|| "no backend decided, and a turn was given back".to_owned());
    }
    if is_decided {
        return Some("the backend had decided, and the rule for its failure acted".to_owned());
    }
    let is_too_dear = asked.iter().any(|asked| {
        // No process has a share of it.
        if history.others.contains_key(&asked.budget.policy) {
            return true;
        }
        let whole = history.quotas.get(asked.budget.policy);
        // A share may grant less than the budget would.
        let cost = attempt.verb.at_least().unwrap_or(asked.cost);
        whole.is_some_and(|whole| share_of(whole).capacity() < cost && cost <= whole.capacity())
    });
    (is_too_dear != (*fallback == Fallback::Refused))
        .then(|| format!("{fallback:?}, and more than a share holds was asked: {is_too_dear}"))
}

/// Says whether the turn of an admitted request would have come after the time that its caller stated, which runs from the
/// question.
fn is_too_late(attempt: &Attempt) -> bool {
    let took_us = attempt.heard_us.saturating_sub(attempt.sent_us);
    let wait_us = attempt.wait_us().unwrap_or_default();
    let most_us = attempt.waits_at_most_us;
    wait_us > 0 && most_us.is_some_and(|most_us| wait_us + took_us + TIMER_US >= most_us)
}

fn misstated(
    history: &History,
    asked: &[AskedCharge],
    attempt: &Attempt,
    told: &HttpAnswer,
) -> Option<String> {
    let settled = || told.settled.clone();
    let expected = match (&attempt.outcome, &attempt.fallback) {
        (_, Some(Fallback::TooLate)) => HttpAnswer {
            status: 429,
            // The time by which the turn was too late.
            retry_after_s: Some(told.retry_after_s.unwrap_or_default().max(1)),
            ..told.clone()
        },
        (_, Some(Fallback::Stopped)) => HttpAnswer {
            status: 503,
            retry_after_s: None,
            remaining: vec![None; asked.len()],
            settled: settled(),
        },
        (Outcome::Decided(decided), _) => of_decision(asked, decided, settled()),
        (_, Some(Fallback::Decided { admitted, .. })) => HttpAnswer {
            status: if *admitted { 200 } else { 429 },
            // Only the share's own clock knows how long that is.
            retry_after_s: (!admitted && !can_never_pass(history, asked))
                .then_some(told.retry_after_s.unwrap_or_default().max(1)),
            ..told.clone()
        },
        _ => HttpAnswer {
            status: 503,
            retry_after_s: None,
            remaining: vec![None; asked.len()],
            settled: settled(),
        },
    };
    (*told != expected).then(|| format!("told {told:?}, and it was {expected:?}"))
}

/// The answer by a decision, of which the service has settled some charges at these costs.
pub(super) fn of_decision(
    asked: &[AskedCharge],
    decided: &DecisionRecord,
    settled: Vec<Option<u64>>,
) -> HttpAnswer {
    let is_refused = |asked: &AskedCharge, said: &VerdictRecord| {
        asked.manner == Manner::Enforce && said.known && !said.passes
    };
    let charges = || asked.iter().zip(&decided.verdicts);
    let refused: Vec<_> = charges()
        .filter(|(asked, said)| is_refused(asked, said))
        .collect();
    let is_never = refused.iter().any(|(_, said)| said.never);
    let longest_us = refused.iter().map(|(_, said)| said.retry_after_us).max();
    let seconds = longest_us.map(|us| us.div_ceil(1_000_000).max(1));
    // A refused client is told that nothing is left, whatever a cheaper request could still get.
    let left = |(position, (asked, said)): (usize, (&AskedCharge, &VerdictRecord))| {
        let cost = settled.get(position).copied().flatten();
        said.known.then_some(match cost {
            _ if is_refused(asked, said) => 0,
            // Others may wait for what was given back.
            Some(_) if said.wait_us > 0 => said.remaining,
            Some(cost) => (said.remaining + said.taken).saturating_sub(cost),
            None => said.remaining,
        })
    };
    HttpAnswer {
        status: if decided.admitted { 200 } else { 429 },
        retry_after_s: seconds.filter(|_| !is_never),
        remaining: charges().enumerate().map(left).collect(),
        settled,
    }
}

fn can_never_pass(history: &History, asked: &[AskedCharge]) -> bool {
    asked.iter().any(|asked| {
        let whole = history.quotas.get(asked.budget.policy);
        whole.is_some_and(|whole| asked.cost > whole.capacity())
    })
}
