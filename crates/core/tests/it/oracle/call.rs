//! One call over several budgets: all or nothing of the enforced charges, shadows on their own, probes last.

use std::collections::BTreeMap;

use tollgate_core::{Mode, Quota};

use super::model::{Model, Slip};

/// One charge of a call: the budget, the cost and the mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) budget: usize,
    pub(crate) cost: u64,
    pub(crate) mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allow,
    DenyFor(u64),
    DenyUntilGivenBack,
    DenyForEver,
}

/// The expected verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) reset_after_us: u64,
    pub(crate) taken: u64,
}

pub(crate) struct World {
    pub(crate) quotas: Vec<Quota>,
    pub(crate) models: Vec<Model>,
}

impl World {
    pub(crate) fn of(quotas: Vec<Quota>) -> Self {
        let models = quotas.iter().copied().map(Model::full).collect();
        Self { quotas, models }
    }

    /// The expected admission, the expected verdicts, and the slips of the charges that were taken.
    pub(crate) fn decide(&mut self, at: u64, asks: &[Ask]) -> (bool, Vec<Answer>, Vec<Slip>) {
        let sums = |mode| {
            let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
            for ask in asks.iter().filter(|ask| ask.mode == mode) {
                let sum = sums.entry(ask.budget).or_default();
                *sum = sum.saturating_add(ask.cost);
            }
            sums
        };
        let mut outcomes = BTreeMap::new();
        let mut group_slips = BTreeMap::new();
        let judge = |model: &Model, cost| {
            if model.passes(at, cost) {
                Outcome::Allow
            } else if model.is_held() && cost <= model.capacity() {
                Outcome::DenyUntilGivenBack
            } else {
                let wait = model.retry_after(at, cost);
                wait.map_or(Outcome::DenyForEver, Outcome::DenyFor)
            }
        };

        let enforced = sums(Mode::Enforce);
        for (&budget, &cost) in &enforced {
            outcomes.insert((budget, 0), judge(&self.models[budget], cost));
        }
        let admitted = outcomes.values().all(|it| *it == Outcome::Allow);
        if admitted {
            for (&budget, &cost) in &enforced {
                group_slips.insert((budget, 0), self.models[budget].take(at, cost));
            }
        }
        for (&budget, &cost) in &sums(Mode::Shadow) {
            let outcome = judge(&self.models[budget], cost);
            outcomes.insert((budget, 1), outcome);
            if outcome == Outcome::Allow {
                group_slips.insert((budget, 1), self.models[budget].take(at, cost));
            }
        }
        if !admitted {
            // A refusal is told by the budget that the shadows have left.
            for (&budget, &cost) in &enforced {
                outcomes.insert((budget, 0), judge(&self.models[budget], cost));
            }
        }
        for (&budget, &cost) in &sums(Mode::Probe) {
            outcomes.insert((budget, 2), judge(&self.models[budget], cost));
        }

        let mut slips = Vec::new();
        let answers = asks.iter().map(|ask| {
            let (model, quota) = (&self.models[ask.budget], &self.quotas[ask.budget]);
            let outcome = outcomes[&(ask.budget, rank(ask.mode))];
            let is_taken = match ask.mode {
                Mode::Enforce => admitted,
                Mode::Shadow => outcome == Outcome::Allow,
                _ => false,
            };
            if is_taken && ask.cost > 0 {
                let slip = &group_slips[&(ask.budget, rank(ask.mode))];
                slips.push(slip.of_cost(ask.cost));
            }
            Answer {
                outcome,
                limit: quota.capacity(),
                remaining: model.remaining(at),
                reset_after_us: model.reset_after(at),
                taken: if is_taken { ask.cost } else { 0 },
            }
        });
        let answers = answers.collect();
        (admitted, answers, slips)
    }
}

fn rank(mode: Mode) -> u8 {
    match mode {
        Mode::Enforce => 0,
        Mode::Shadow => 1,
        Mode::Probe => 2,
        other => panic!("no model of {other:?}"),
    }
}
