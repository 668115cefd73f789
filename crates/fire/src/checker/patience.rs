//! Says whether each answer came in time, or each request at its turn.

use std::collections::BTreeMap;

use crate::attempt::{Attempt, Door};
use crate::history::{ENVOY_PROCESS, GATEWAY_PROCESS, History, Wait};
use crate::terms::micros;

/// The lateness of an answer that is allowed on a machine that keeps no process waiting.
pub(super) const GRACE_US: u64 = 250_000;

/// The largest error of a process's own timer beside its clock.
pub(super) const TIMER_US: u64 = 2_000;

/// The lateness up to which a wait for a processor counts twice. One that is longer explains itself alone.
const TWICE_US: u64 = 2_000_000;

/// The times in which the machine kept processes waiting.
pub(crate) struct Waits(BTreeMap<u32, Vec<Wait>>);

impl Waits {
    pub(crate) fn of(history: &History) -> Self {
        let mut processes: BTreeMap<u32, Vec<Wait>> = BTreeMap::new();
        for wait in &history.waits {
            processes.entry(wait.process).or_default().push(*wait);
        }
        Self(processes)
    }

    /// The time for which the process of an attempt was kept waiting meanwhile, and those that it asked through.
    pub(crate) fn during_us(&self, attempt: &Attempt) -> u64 {
        let between = match attempt.asker.door {
            Door::Envoy => &[ENVOY_PROCESS, GATEWAY_PROCESS][..],
            _ => &[],
        };
        let processes = between.iter().chain([&attempt.asker.process]);
        let waits = processes
            .filter_map(|process| self.0.get(process))
            .flatten();
        let shared = |wait: &Wait| {
            let (from_us, to_us) = (
                wait.from_us.max(attempt.sent_us),
                wait.to_us.min(attempt.heard_us),
            );
            to_us.saturating_sub(from_us)
        };
        waits.map(shared).sum()
    }
}

/// An answer that came later than its deadline, and later than the machine explains. The process needs a processor twice, once
/// to see that it is time and once to say so, and may have been kept waiting each time.
pub(super) fn belated(history: &History, waits: &Waits, attempt: &Attempt) -> Option<String> {
    let deadline_us = match attempt.asker.door {
        // Envoy's own timeout ends what the gateway process has not.
        Door::Envoy => history.deadline_us?.max(micros(Door::ENVOY_TIMEOUT)),
        _ => history.deadline_us?,
    };
    if attempt.outcome.is_unheard() {
        return None;
    }
    let took_us = attempt.answered_us().saturating_sub(attempt.sent_us);
    let kept_us = waits.during_us(attempt);
    let excused_us = kept_us.max(TWICE_US.min(2 * kept_us));
    let most_us = deadline_us + GRACE_US + excused_us;
    (took_us > most_us).then(|| {
        format!(
            "answered after {took_us} µs, with a deadline of {deadline_us} and {kept_us} without a processor"
        )
    })
}
