//! Says whether each request waits no longer than its caller stated, and whether the backend was asked by the terms of then.

use super::patience::TIMER_US;
use super::places::{has_line, took_us};
use crate::attempt::{Attempt, DecisionRecord, Door, Outcome};
use crate::history::History;
use crate::terms::Terms;

/// A request that was to wait for longer than its caller stated, or that was decided by terms that are neither the quota's nor the
/// caller's.
pub(super) fn impatient(history: &History, attempt: &Attempt) -> Option<String> {
    let Outcome::Decided(decided) = &attempt.outcome else {
        return None;
    };
    let wait_us = attempt.wait_us().unwrap_or_default();
    if let Some(most_us) = attempt.waits_at_most_us.filter(|us| wait_us > *us) {
        return Some(format!(
            "waits for {wait_us} µs, and its caller for {most_us} at most"
        ));
    }
    foreign_terms(history, attempt, decided)
}

fn foreign_terms(history: &History, attempt: &Attempt, decided: &DecisionRecord) -> Option<String> {
    let stated_us = attempt.waits_at_most_us;
    // The time that the request has taken until it was decided counts.
    let took_us = match attempt.asker.door {
        Door::Backend | Door::Envoy => 0,
        Door::Limiter | Door::Http => took_us(attempt) + TIMER_US,
    };
    let is_of = |terms: Terms, version: Terms| {
        let longest_us = stated_us.map_or(version.wait_us, |us| us.min(version.wait_us));
        let shortest_us = match stated_us {
            Some(us) => us.saturating_sub(took_us).min(version.wait_us),
            None => version.wait_us,
        };
        // Without a place in the line it cannot wait: see `lines`.
        let is_turned_away = || terms.wait_us == 0 && has_line(history, attempt);
        terms.burst == version.burst
            && ((shortest_us..=longest_us).contains(&terms.wait_us) || is_turned_away())
    };
    let charges = attempt.verb.asked().iter().zip(&decided.verdicts);
    charges.into_iter().find_map(|(asked, said)| {
        let (terms, policy) = (said.terms?, asked.budget.policy);
        let quota = history.quotas.get(policy)?;
        let replacements = history.replacements.get(&policy).into_iter().flatten();
        let mut versions = std::iter::once(quota).chain(replacements).map(Terms::of);
        (!versions.any(|version| is_of(terms, version))).then(|| {
            format!("asked by {terms:?} under policy {policy}, and its caller stated {stated_us:?}")
        })
    })
}
