//! The result of a run, with the facts that a reader needs to judge it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::FEWEST;
use crate::attempt::{Attempt, Outcome};
use crate::checker::{Findings, Waits, check};
use crate::fault::Topology;
use crate::history::History;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The servers that were asked.
    pub topology: Topology,
    /// The findings of the checker.
    pub findings: Findings,
    /// Other defects: answers past their deadline, keys without an expiry.
    pub other_wrongs: Vec<String>,
    /// The events before the first findings: earlier questions for their budgets, and the faults meanwhile.
    pub evidence: Vec<String>,
    /// The number of times that each fault was done.
    pub faults: BTreeMap<&'static str, u32>,
    /// Faults that could not be done, or not as they should, with the reason. Budgets count as lost meanwhile.
    pub undone: Vec<String>,
    /// The leases that clients lost which lived to the end.
    pub lost_leases: u64,
    /// The units of other clients of which these found that their leases had run out.
    pub reclaimed: u64,
    /// The longest wait for an answer.
    pub slowest: Duration,
    /// The part of that in which the process got no processor.
    pub kept: Duration,
    /// The longest time from the end of a fault to the decision on a later question.
    pub recovery: Duration,
}

impl Report {
    /// The impossible, and the undesired.
    #[must_use]
    pub fn wrongs(&self) -> Vec<String> {
        let others = self.other_wrongs.iter().cloned();
        self.findings.wrongs().chain(others).collect()
    }
}

pub(super) fn report(
    topology: Topology,
    history: &History,
    mut other_wrongs: Vec<String>,
) -> Report {
    // A dead client has no deadline any more.
    let attempts = history.attempts.iter();
    let answered = attempts.filter(|attempt| !attempt.outcome.is_unheard());
    let took = |attempt: &Attempt| attempt.answered_us().saturating_sub(attempt.sent_us);
    let slowest = answered.max_by_key(|attempt| took(attempt));
    let waits = Waits::of(history);
    let kept = |attempt: &Attempt| waits.during_us(attempt).min(took(attempt));
    let findings = check(history);
    if findings.decided < FEWEST {
        let decided = findings.decided;
        other_wrongs.push(format!("only {decided} decisions: that shows nothing"));
    }
    Report {
        topology,
        evidence: evidence(history, &findings),
        findings,
        other_wrongs,
        faults: BTreeMap::new(),
        undone: Vec::new(),
        lost_leases: 0,
        reclaimed: 0,
        slowest: Duration::from_micros(slowest.map_or(0, took)),
        kept: Duration::from_micros(slowest.map_or(0, kept)),
        recovery: recovery(history),
    }
}

/// The facts that a reader needs to judge a finding, which no second run will repeat.
fn evidence(history: &History, findings: &Findings) -> Vec<String> {
    const WRONGS: usize = 4;
    const BEFORE: Duration = Duration::from_secs(10);

    let mut lines = Vec::new();
    // Findings about one budget tell most in fewest lines.
    let (of_budgets, others): (Vec<_>, Vec<_>) =
        findings.wrong.iter().partition(|it| it.budget.is_some());
    for wrong in of_budgets.into_iter().chain(others).take(WRONGS) {
        let last_us = history.attempts[wrong.attempt].heard_us;
        let from_us = last_us.saturating_sub(u64::try_from(BEFORE.as_micros()).unwrap_or(u64::MAX));
        let is_near = |sent_us: u64, heard_us: u64| sent_us <= last_us && heard_us >= from_us;
        let is_same = |attempt: &&Attempt| {
            let mut budgets = attempt.verb.budgets().map(Some);
            is_near(attempt.sent_us, attempt.heard_us)
                && (wrong.budget.is_none() || budgets.any(|budget| budget == wrong.budget))
        };
        let mut told: Vec<_> = (history.attempts.iter().filter(is_same))
            .map(|attempt| (attempt.sent_us, format!("  {attempt:?}")))
            .collect();
        let done = history.disturbances.iter();
        told.extend(
            done.filter(|it| is_near(it.from_us, it.to_us))
                .map(|it| (it.from_us, format!("  {it:?}"))),
        );
        told.sort();
        lines.push(format!("before: {wrong}"));
        lines.extend(told.into_iter().map(|(_, line)| line));
    }
    lines
}

fn recovery(history: &History) -> Duration {
    let done = history.disturbances.iter();
    // The clocks' first offsets are not a fault.
    let ends = done.filter(|it| it.to_us > 0).map(|it| it.to_us);
    let mut decided: Vec<_> = (history.attempts.iter())
        .filter(|attempt| matches!(attempt.outcome, Outcome::Decided(_)))
        .map(|attempt| (attempt.sent_us, attempt.answered_us()))
        .collect();
    decided.sort_unstable();
    let first_after = |end_us: u64| {
        let first = decided.partition_point(|(sent_us, _)| *sent_us < end_us);
        let heard_us = decided[first..]
            .iter()
            .map(|(_, heard_us)| *heard_us)
            .min()?;
        Some(heard_us - end_us)
    };
    Duration::from_micros(ends.filter_map(first_after).max().unwrap_or_default())
}
