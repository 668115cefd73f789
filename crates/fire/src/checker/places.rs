//! The places of requests in the lines of their limiters, as far as the record tells.

use super::patience::TIMER_US;
use crate::attempt::{Attempt, Fallback, Outcome};
use crate::history::History;

/// A place in the line, as far as the record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It surely had one, between these times.
    Held(u64, u64),
    /// It surely had none.
    None,
    Unknown,
}

/// Says whether a request was decided as if it could not wait, although its policies and its caller let it.
pub(super) fn is_turned_away(history: &History, attempt: &Attempt) -> bool {
    may_wait(history, attempt) && place(history, attempt) == Place::None
}

/// Says whether the history knows the line of this attempt's limiter.
pub(super) fn has_line(history: &History, attempt: &Attempt) -> bool {
    let asker = (attempt.asker.process, attempt.limiter);
    attempt.asker.door.has_limiter()
        && (history.lines.iter()).any(|line| (line.process, line.limiter) == asker)
}

pub(super) fn may_wait(history: &History, attempt: &Attempt) -> bool {
    let quotas = attempt.verb.asked().iter();
    let mut quotas = quotas.filter_map(|asked| history.quotas.get(asked.budget.policy));
    quotas.any(|quota| !quota.longest_wait().is_zero())
}

pub(super) fn place(history: &History, attempt: &Attempt) -> Place {
    let (Outcome::Decided(decided), Some(asking)) = (&attempt.outcome, attempt.asking) else {
        return Place::Unknown;
    };
    let charges = attempt.verb.asked().iter().zip(&decided.verdicts);
    let of_waiting = charges.filter(|(asked, _)| {
        let quota = history.quotas.get(asked.budget.policy);
        quota.is_some_and(|quota| !quota.longest_wait().is_zero())
    });
    let terms = of_waiting.filter_map(|(_, said)| said.terms);
    let Some(longest_us) = terms.map(|terms| terms.wait_us).max() else {
        return Place::Unknown;
    };
    if longest_us == 0 {
        // The caller may have let it wait no longer.
        let stated_us = attempt.waits_at_most_us;
        let has_time = stated_us.is_none_or(|us| us > took_us(attempt) + TIMER_US);
        return if has_time {
            Place::None
        } else {
            Place::Unknown
        };
    }
    let turn_us = asking.answered_us + attempt.wait_us().unwrap_or_default();
    let until_us = match (&attempt.fallback, attempt.left_us) {
        (Some(Fallback::TooLate), _) => asking.answered_us,
        (_, Some(left_us)) => left_us.min(turn_us.saturating_sub(TIMER_US)),
        (_, None) => turn_us.saturating_sub(TIMER_US),
    };
    Place::Held(asking.asked_us, until_us.max(asking.answered_us))
}

/// The time from the question to the decision. For a request that left, only the whole time is known.
pub(super) fn took_us(attempt: &Attempt) -> u64 {
    let until_us = match attempt.left_us {
        Some(left_us) => left_us,
        None => attempt.answered_us(),
    };
    until_us.saturating_sub(attempt.sent_us)
}
