//! A backend as a user could write one: a map under a lock, by core's pure rules.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_conformance::{Elapsed, Subject};
use tollgate_core::{
    Admin, Answer, Backend, BanList, BannedCaller, Call, Capabilities, Capability, Charge, Clock,
    Decision, Key, ManualClock, Scope, Settlement, State, States, decide,
};

/// The states by their names.
pub(crate) type Budgets = HashMap<(Scope, Key), State>;

/// Exact, and unbounded: for real use it would have to drop full budgets.
#[derive(Debug)]
pub(crate) struct Naive {
    budgets: Mutex<Budgets>,
    clock: ManualClock,
}

impl Naive {
    pub(crate) fn new(clock: ManualClock) -> Self {
        Self {
            budgets: Mutex::default(),
            clock,
        }
    }

    pub(crate) fn budgets(&self) -> MutexGuard<'_, Budgets> {
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The states of a call under way.
struct Held<'a> {
    budgets: &'a mut Budgets,
    charges: &'a [Charge<'a>],
}

impl States for Held<'_> {
    fn state(&mut self, index: usize) -> &mut State {
        let charge = &self.charges[index];
        let name = (charge.scope, charge.key.clone());
        self.budgets
            .entry(name)
            .or_insert_with(|| State::full(charge.quota))
    }
}

impl Backend for Naive {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let mut held = Held {
            budgets: &mut self.budgets(),
            charges: call.charges,
        };
        let decided = call.check();
        Answer::now(decided.map(|()| decide(self.clock.now(), call, &mut held)))
    }

    fn settle(&self, settlement: Settlement<'_>) {
        match settlement {
            Settlement::Refund(receipt, n) => {
                let (now, mut budgets) = (self.clock.now(), self.budgets());
                if let Some(id) = receipt.id_to_close(n) {
                    let id = budgets.get_mut(&(id.scope(), id.key().clone()));
                    if !id.is_some_and(|id| receipt.close(id, now)) {
                        return;
                    }
                }
                if let Some(state) = budgets.get_mut(&(receipt.scope(), receipt.key().clone())) {
                    receipt.credit_to(state, now, n);
                }
            }
            Settlement::Debit(receipt, n) => {
                let name = (receipt.scope(), receipt.key().clone());
                let mut budgets = self.budgets();
                let state = budgets
                    .entry(name)
                    .or_insert_with(|| State::full(receipt.quota()));
                receipt.debit_from(state, self.clock.now(), n);
            }
            _ => {}
        }
    }

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl Admin for Naive {
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        let _state = self.budgets().remove(&(scope, key.clone()));
        Answer::now(Ok(()))
    }

    fn bans(&self, scope: Scope) -> Answer<BanList> {
        let now = self.clock.now();
        let budgets = self.budgets();
        let callers = budgets.iter().filter_map(|((of, key), state)| {
            let left = state.banned_for(now).filter(|_| *of == scope)?;
            Some(BannedCaller::new(key.clone(), left))
        });
        Answer::now(Ok(BanList::new(callers, true)))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
            .with(Capability::Held)
            .with(Capability::Waits)
            .with(Capability::Bans)
            .with(Capability::Once)
            .with(Capability::UpTo)
    }
}

/// A backend whose time is a clock that tests move.
pub(crate) struct Clocked {
    pub backend: Arc<dyn Backend>,
    pub clock: ManualClock,
}

impl Clocked {
    pub(crate) fn over<B: Backend>(make: impl FnOnce(ManualClock) -> B) -> Self {
        let clock = ManualClock::new();
        Self {
            backend: Arc::new(make(clock.clone())),
            clock,
        }
    }
}

impl Subject for Clocked {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    fn advance(&self, by: Duration) -> Elapsed<'_> {
        self.clock.advance(by);
        Box::pin(std::future::ready(()))
    }
}
