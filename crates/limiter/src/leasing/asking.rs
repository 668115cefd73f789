//! A question for a block, from its departure to its answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle;
use tokio::time::sleep_until;
use tollgate_core::{Call, Charge, Decision, Key, Mode, Quota, Receipt, Scope, Timestamp, Verdict};

use super::pool::Pool;
use super::shelves::Place;

/// Asks the backend for a block of the budget of this charge, in a task of its own, which gives back what is left of it at its end.
#[cold]
pub(super) fn ask(pool: &Arc<Pool>, charge: &Charge<'_>, place: Place, number: u64, amount: u64) {
    // The task of an earlier block does this, unless its runtime has no timer or has ended.
    pool.give_back_ended(place);
    let asking = Asking::new(pool, charge, place, number);
    let Ok(runtime) = Handle::try_current() else {
        // A question that is dropped has failed.
        return;
    };
    let asked = Charge {
        cost: amount,
        mode: Mode::Enforce,
        ..*charge
    };
    let answer = pool.backend.decide(Call::of(&[asked]).at_least(1));
    // A task keeps no limiter alive while it sleeps.
    let weak = Arc::downgrade(pool);
    runtime.spawn(async move {
        let Some(ends_us) = asking.answered(answer.await.ok()) else {
            return;
        };
        let Some(end) = weak.upgrade().map(|pool| pool.at(ends_us)) else {
            return;
        };
        sleep_until(end).await;
        if let Some(pool) = weak.upgrade() {
            pool.give_back_ended(place);
        }
    });
}

/// A question that is under way. Dropped before its answer, because the runtime ends, it has failed.
pub(super) struct Asking {
    pool: Option<Arc<Pool>>,
    place: Place,
    number: u64,
    scope: Scope,
    key: Key,
    quota: Quota,
}

impl Asking {
    pub(super) fn new(pool: &Arc<Pool>, charge: &Charge<'_>, place: Place, number: u64) -> Self {
        Self {
            pool: Some(Arc::clone(pool)),
            place,
            number,
            scope: charge.scope,
            key: charge.key.clone(),
            quota: *charge.quota,
        }
    }

    /// Takes in the answer, and gives the time at which the block ends, if one came.
    pub(super) fn answered(mut self, decision: Option<Decision>) -> Option<u64> {
        let pool = self.pool.take()?;
        let now_us = pool.now_us();
        let mut shelf = pool.shelves.shelf(self.place);
        let blocks = shelf.find(self.place);
        let Some((verdict, at)) =
            decision.and_then(|decision| Some((*decision.verdicts().first()?, decision.at())))
        else {
            blocks?.failed(self.number, now_us);
            return None;
        };
        let Some(blocks) = blocks else {
            drop(shelf);
            // The budget was reset meanwhile, and is full; or else the limiter is gone.
            if pool.is_over.load(Ordering::Acquire) {
                self.give_back(&pool, &verdict, at);
            }
            return None;
        };
        if verdict.taken() == 0 {
            blocks.refused(self.number, &verdict);
            return None;
        }
        let surplus = blocks.granted(self.number, now_us, verdict, at);
        let ends_us = blocks.end_us_of(self.number);
        drop(shelf);
        if let Some((receipt, n)) = surplus {
            pool.backend.refund(receipt, n);
        }
        ends_us
    }

    fn give_back(&self, pool: &Pool, verdict: &Verdict, at: Timestamp) {
        let charge = Charge {
            scope: self.scope,
            quota: &self.quota,
            key: &self.key,
            cost: verdict.taken(),
            mode: Mode::Enforce,
        };
        if let Some(receipt) = Receipt::of(&charge, verdict, at) {
            pool.backend.refund(receipt, verdict.taken());
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take()
            && let Some(blocks) = pool.shelves.shelf(self.place).find(self.place)
        {
            blocks.failed(self.number, pool.now_us());
        }
    }
}
