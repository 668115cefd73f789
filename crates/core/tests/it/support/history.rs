//! A random past: the state of a budget after some steps, and the receipts that are still open.

use std::fmt;

use tollgate_core::{DEBT_CEILING, Quota, Receipt};

use super::budget::{Budget, receipt_of};
use super::steps::Step;

/// A charge or debit that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) at: u64,
    /// The amount taken, less the amount credited.
    pub(crate) net: u64,
    pub(crate) is_debit: bool,
}

/// A budget, the time, and the charges so far.
pub(crate) struct History {
    pub(crate) budget: Budget,
    pub(crate) now: u64,
    pub(crate) taken: Vec<Taken>,
    /// Receipts not yet used up, each with its charge.
    pub(crate) receipts: Vec<(usize, Receipt)>,
    debits: u64,
}

impl History {
    pub(crate) fn of(quota: Quota, start: u64) -> Self {
        Self {
            budget: Budget::full(quota),
            now: start,
            taken: Vec::new(),
            receipts: Vec::new(),
            debits: 0,
        }
    }

    pub(crate) fn after(quota: Quota, start: u64, steps: &[Step]) -> Self {
        let mut history = Self::of(quota, start);
        for &step in steps {
            history.step(step);
        }
        history
    }

    pub(crate) fn step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Wait(span) => self.now += span.micros(&self.budget.quota, now),
            Step::Charge(amount) => {
                let cost = amount.units(&self.budget, now);
                if let (_, Some(receipt)) = self.budget.charge(now, cost) {
                    self.receipts.push((self.taken.len(), receipt));
                    self.taken.push(Taken {
                        at: now,
                        net: cost,
                        is_debit: false,
                    });
                }
            }
            Step::Credit(_, _) if self.receipts.is_empty() => {}
            Step::Credit(which, amount) => {
                let (charge, receipt) = self.receipts.remove(which % self.receipts.len());
                let n = amount.units(&self.budget, now);
                self.budget.refund(now, &receipt, n);
                self.taken[charge].net -= n.min(receipt.cost());
            }
            Step::Debit(amount) => {
                let n = amount.units(&self.budget, now);
                // The ceiling's cut on a debit could not be told from a credit: stay below the ceiling.
                if self.debits + n > (DEBT_CEILING - 2) * self.budget.capacity() {
                    return;
                }
                self.debits += n;
                self.budget.debit(now, &receipt_of(self.budget.quota), n);
                self.taken.push(Taken {
                    at: now,
                    net: n,
                    is_debit: true,
                });
            }
        }
    }

    /// Times at which two budgets that differ are likely to show it.
    pub(crate) fn later(&self) -> Vec<u64> {
        let quota = &self.budget.quota;
        let period = self.budget.period_us();
        let unit = period / quota.limit();
        let reset = super::budget::micros(self.budget.peek(self.now).reset_after());
        let mut spans = vec![
            0,
            1,
            2,
            3,
            unit,
            unit + 1,
            period / 2,
            period - 1,
            period,
            reset / 2,
            reset.saturating_sub(1),
            reset,
            reset + 1,
        ];
        spans.sort_unstable();
        spans.dedup();
        spans.into_iter().map(|span| self.now + span).collect()
    }
}

/// Two continuations of one history.
impl Clone for History {
    fn clone(&self) -> Self {
        let receipts = self.receipts.iter();
        Self {
            budget: self.budget.clone(),
            now: self.now,
            taken: self.taken.clone(),
            receipts: receipts.map(|(charge, it)| (*charge, it.copy())).collect(),
            debits: self.debits,
        }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {:?}", self.now, self.budget)
    }
}
