//! Says whether the answer that a client got through Envoy follows from the decision of the gateway process.
//!
//! That writes down each decision before it answers. So a client that heard 200 was admitted, by a decision that stands in the
//! record, and one that heard 429 was denied by one. Envoy answers 500 by itself if the gateway process has no decision, or if it
//! does not hear of one: while one of both is away, or if the machine keeps them for so long that Envoy's timeout ends the
//! question.

use super::answers::of_decision;
use super::patience::{GRACE_US, TIMER_US, Waits};
use crate::attempt::{Attempt, Door, HttpAnswer, Outcome};
use crate::history::History;
use crate::terms::micros;

/// The findings about questions through Envoy, beside the impossible.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvoyFindings {
    /// The requests that passed.
    pub passed: u64,
    /// The refused ones, with 429.
    pub refused: u64,
    /// Those that Envoy refused because the gateway process had no decision, with 500.
    pub undecided: u64,
    /// Those for which the gateway or Envoy was away, or kept waiting.
    pub cut_off: u64,
    /// The part of these that was decided all the same.
    pub decided_in_vain: u64,
}

impl EnvoyFindings {
    /// Those of a run that lacks nothing.
    pub(crate) const ONE_OF_EACH: Self = Self {
        passed: 1,
        refused: 1,
        undecided: 1,
        cut_off: 1,
        decided_in_vain: 1,
    };

    /// A contradiction between the answer and the decision.
    pub(super) fn judge(
        &mut self,
        history: &History,
        waits: &Waits,
        attempt: &Attempt,
    ) -> Option<String> {
        let asked = attempt.verb.asked();
        let is_silent = attempt.outcome.is_unheard() || asked.is_empty();
        if attempt.asker.door != Door::Envoy || is_silent {
            return None;
        }
        let decided = match &attempt.outcome {
            Outcome::Decided(decided) => Some(decided),
            _ => None,
        };
        match (&attempt.told, decided) {
            (Some(told @ HttpAnswer { status, .. }), Some(decided))
                if [200, 429].contains(status) =>
            {
                let counter = match status {
                    200 => &mut self.passed,
                    _ => &mut self.refused,
                };
                *counter += 1;
                let expected = of_decision(asked, decided, vec![None; asked.len()]);
                (!is_told(told, &expected))
                    .then(|| format!("told {told:?}, and it was {expected:?}"))
            }
            (Some(HttpAnswer { status: 500, .. }), None) if attempt.asking.is_some() => {
                self.undecided += 1;
                None
            }
            (Some(HttpAnswer { status: 500, .. }) | None, _)
                if is_away(history, attempt) || is_kept(history, waits, attempt) =>
            {
                self.cut_off += 1;
                self.decided_in_vain += u64::from(decided.is_some());
                None
            }
            (told, _) => Some(format!(
                "{told:?} was said through Envoy, and it was {:?}",
                attempt.outcome
            )),
        }
    }
}

/// Says whether an answer has the status and the wait of a decision, and of its rests those that it names. Fields name the policy
/// that has least left.
fn is_told(told: &HttpAnswer, expected: &HttpAnswer) -> bool {
    let rests = told.remaining.iter().zip(&expected.remaining);
    let mut rests = rests.filter(|(told, _)| told.is_some());
    told.status == expected.status
        && told.retry_after_s == expected.retry_after_s
        && rests.all(|(told, expected)| told == expected)
}

/// Says whether Envoy or the gateway process was away, or stopped, during an attempt.
fn is_away(history: &History, attempt: &Attempt) -> bool {
    let mut away = history.away.iter();
    away.any(|it| it.from_us <= attempt.heard_us && it.to_us >= attempt.sent_us)
}

/// Says whether Envoy's timeout ended a question, and the machine explains why no answer came before.
fn is_kept(history: &History, waits: &Waits, attempt: &Attempt) -> bool {
    let took_us = attempt.heard_us.saturating_sub(attempt.sent_us);
    let timeout_us = micros(Door::ENVOY_TIMEOUT);
    let due_us = history.deadline_us.unwrap_or_default() + GRACE_US;
    took_us + TIMER_US >= timeout_us && due_us + 2 * waits.during_us(attempt) >= timeout_us
}
