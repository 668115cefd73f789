//! The parts of blocks that one call has taken, until it is known whether it is admitted.

use std::mem;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Charge, Decision, Key, Mode, Part, Quota, Receipt, Scope};

use super::pool::Pool;
use super::shelves::Place;

/// The charges of a call: those that were spent from blocks, and those that the backend decides. Dropped before its end, it puts
/// the parts back.
pub(super) struct Reservation {
    pool: Arc<Pool>,
    charges: SmallVec<[Option<Reserved>; 2]>,
}

struct Reserved {
    place: Place,
    part: Part,
    scope: Scope,
    key: Key,
    quota: Quota,
    mode: Mode,
}

impl Reservation {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        Self {
            pool: Arc::clone(pool),
            charges: SmallVec::new(),
        }
    }

    /// The next charge was spent from a block.
    pub(super) fn keep(&mut self, charge: &Charge<'_>, place: Place, part: Part) {
        self.charges.push(Some(Reserved {
            place,
            part,
            scope: charge.scope,
            key: charge.key.clone(),
            quota: *charge.quota,
            mode: charge.mode,
        }));
    }

    /// The next charge is decided by the backend.
    pub(super) fn leave(&mut self) {
        self.charges.push(None);
    }

    /// The decision, if all charges were spent from blocks.
    pub(super) fn admitted(mut self) -> Decision {
        let charges = mem::take(&mut self.charges);
        let parts = charges.iter().flatten().map(|reserved| reserved.part);
        Decision::apart(true, parts.map(|part| (part.at, part.verdict))).known()
    }

    /// The decision, with that of the backend about the other charges. Without their admission nothing is taken, except for
    /// policies on trial, which are charged in any case.
    pub(super) fn joined(mut self, others: &Decision) -> Decision {
        let admitted = others.is_admitted();
        let mut theirs = others.verdicts().iter().enumerate();
        let verdicts = mem::take(&mut self.charges)
            .into_iter()
            .filter_map(|charge| {
                let Some(reserved) = charge else {
                    let (position, verdict) = theirs.next()?;
                    return Some((others.verdict_at(position), *verdict));
                };
                let Part { verdict, at, .. } = reserved.part;
                if admitted || reserved.mode == Mode::Shadow {
                    return Some((at, verdict));
                }
                reserved.put_back(&self.pool);
                Some((at, verdict.corrected_to(0)))
            });
        let verdicts: SmallVec<[_; 4]> = verdicts.collect();
        Decision::apart(admitted, verdicts).failing(others.failure().cloned())
    }
}

impl Reserved {
    fn put_back(self, pool: &Pool) {
        let put_back = pool
            .shelves
            .shelf(self.place)
            .find(self.place)
            .is_some_and(|blocks| blocks.unspend(&self.part));
        if put_back {
            return;
        }
        let verdict = &self.part.verdict;
        let charge = Charge {
            scope: self.scope,
            quota: &self.quota,
            key: &self.key,
            cost: verdict.taken(),
            mode: self.mode,
        };
        if let Some(receipt) = Receipt::of(&charge, verdict, self.part.at) {
            pool.backend.refund(receipt, verdict.taken());
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        for reserved in mem::take(&mut self.charges).into_iter().flatten() {
            reserved.put_back(&self.pool);
        }
    }
}
