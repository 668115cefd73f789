//! A decision of the gateway process, as it writes it down: no answer through Envoy tells all its numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_core::Key;

use crate::attempt::{Asking, Attempt, Outcome};
use crate::population::Population;

/// The header that names the question of a client, and the key of its descriptor. It is passed on to the gateway process as the
/// identity of a charge that no server is asked about, so that a ruling is one on a known question.
pub(crate) const QUESTION: &str = "x-fire-question";

/// The name of a question among all of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Question {
    /// The number of the client.
    pub process: u32,
    /// Its number among the client's entries.
    pub number: u64,
}

impl Question {
    pub(crate) fn of(attempt: &Attempt) -> Option<Self> {
        Some(Self {
            process: attempt.asker.process,
            number: attempt.question?,
        })
    }

    pub(crate) fn text(self) -> String {
        format!("{}.{}", self.process, self.number)
    }

    pub(crate) fn from_key(key: &Key) -> Option<Self> {
        let (process, number) = key.text()?.split_once('.')?;
        Some(Self {
            process: process.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

/// A decision of the gateway process about one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    /// The question.
    pub question: Question,
    /// The charges that the backend was asked about: the policy, the identity and the cost of each.
    pub charges: Vec<(usize, String, u64)>,
    /// The outcome at the backend.
    pub outcome: Outcome,
    /// The times of the question to the backend, and of its answer.
    pub asking: Asking,
}

impl Ruling {
    /// Says whether the gateway asked for the charges that the client meant.
    pub(crate) fn is_about(&self, population: &Population, attempt: &Attempt) -> bool {
        let meant = attempt.verb.asked().iter().map(|asked| {
            let identity = population.identity(asked.budget.caller);
            (asked.budget.policy, identity, asked.cost)
        });
        meant.eq(self.charges.iter().cloned())
    }
}

/// Gives each attempt through Envoy the outcome that the gateway process wrote down. Returns the rulings that cannot be.
pub(crate) fn join(
    attempts: &mut [Attempt],
    rulings: Vec<Ruling>,
    population: &Population,
) -> Vec<String> {
    let mut wrongs = Vec::new();
    let mut by_question: BTreeMap<Question, Ruling> = BTreeMap::new();
    for ruling in rulings {
        if let Some(other) = by_question.insert(ruling.question, ruling) {
            wrongs.push(format!("{:?} was decided twice", other.question));
        }
    }
    for attempt in attempts {
        let ruling = Question::of(attempt).and_then(|question| by_question.remove(&question));
        let Some(ruling) = ruling else { continue };
        if !ruling.is_about(population, attempt) {
            wrongs.push(format!("{attempt:?} was decided as {ruling:?}"));
        }
        // A client that has gone heard nothing, and the gateway process may have given back what it took.
        if !attempt.outcome.is_unheard() {
            (attempt.outcome, attempt.asking) = (ruling.outcome, Some(ruling.asking));
        }
    }
    let nameless = by_question.into_keys();
    wrongs.extend(nameless.map(|question| format!("{question:?} was decided, and not asked")));
    wrongs
}
