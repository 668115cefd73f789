//! The changes of charges after their decisions: what is credited, debited, given back or added as a strike.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Backend, Charge, Key, Mode, Receipt, Scope, Timestamp, Verdict};

use super::event::{Cause, Transport};
use super::local::LocalBudgets;
use super::observer::Observers;
use crate::policy::Label;
use crate::report::PolicyVerdict;

/// The part of a limiter that charges need after their decisions. A [`Ledger`](super::Ledger) keeps it, and not the limiter, which
/// stands above it.
pub(super) struct Settler {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) local: Arc<LocalBudgets>,
    pub(super) observers: Arc<Observers>,
    /// The requests that wait for places.
    pub(super) waiting: Arc<dyn Vacancy>,
}

/// Hears of places that are free again.
pub(super) trait Vacancy: Send + Sync {
    /// Something that is held under this key was given back.
    fn freed(&self, scope: Scope, key: &Key);
}

impl Settler {
    /// Gives back what is held, to the backend or to the budget of this process that decided.
    pub(super) fn release(&self, receipt: Receipt, n: u64, is_local: bool) {
        if is_local {
            self.local.refund(receipt, n);
        } else {
            self.give_back(receipt, n);
        }
    }

    /// Gives back to the backend, and wakes the requests that wait for it.
    pub(super) fn give_back(&self, receipt: Receipt, n: u64) {
        let freed = receipt
            .quota()
            .is_held()
            .then(|| (receipt.scope(), receipt.key().clone()));
        self.backend.refund(receipt, n);
        if let Some((scope, key)) = freed {
            self.waiting.freed(scope, &key);
        }
    }

    /// Takes more than was charged.
    pub(super) fn take(&self, receipt: &Receipt, n: u64) {
        self.backend.debit(receipt, n);
    }

    /// Adds a strike, and waits for no answer. If `is_local`, a budget of this process decided, and its ban hears of it.
    pub(super) fn strike(&self, ban: &Arc<Label>, key: &Key, is_local: bool) {
        let charge = Charge {
            scope: ban.scope(),
            quota: ban.rule(),
            key,
            cost: 1,
            mode: Mode::Enforce,
        };
        // A backend takes a debit without an answer.
        let taken = Verdict::allowed(&charge, 1, 0);
        if let Some(receipt) = Receipt::of(&charge, &taken, Timestamp::default()) {
            if is_local {
                self.local.debit(&receipt, 1);
            } else {
                self.backend.debit(&receipt, 1);
            }
        }
    }

    /// A held charge has been given back.
    pub(super) fn released(&self, verdict: &PolicyVerdict, key: &Key, transport: Transport) {
        let observers = &self.observers;
        observers.corrected(verdict, key, Cause::Released, transport);
    }

    /// A charge was corrected.
    pub(super) fn settled(&self, verdict: &PolicyVerdict, key: &Key, transport: Transport) {
        let observers = &self.observers;
        observers.corrected(verdict, key, Cause::Settled, transport);
    }
}

impl fmt::Debug for Settler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Settler")
    }
}
