//! Leases in front of a shared backend: this process takes blocks of its callers' budgets, and spends them by itself.
//!
//! A request whose blocks have enough is decided here, and all others are decided by the backend as ever: no request ever waits for
//! a block. Blocks are asked for beside the requests, before they are needed, and what is left of one at its end is credited. So a
//! request with leased and other charges stays all or nothing: its parts of blocks are put back if the backend denies the others.

mod asking;
mod pool;
mod reservation;
mod shelves;
mod terms;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tollgate_core::{
    Admin, Answer, Backend, BanList, Call, Capabilities, Charge, Decision, Figure, Key, Part,
    Scope, Settlement,
};

use self::asking::ask;
use self::pool::{Pool, Told};
use self::reservation::Reservation;
use self::shelves::{Place, Shelves};
use self::terms::LeaseTerms;
use crate::Policy;
use crate::sync::ArcSwap;

/// A shared backend whose budgets this process leases, by the terms of its policies.
pub(crate) struct LeasingBackend {
    pool: Arc<Pool>,
    terms: ArcSwap<LeaseTerms>,
    /// The number of calls that were decided here.
    decided: AtomicU64,
}

/// The outcome of a charge at the blocks of this process.
enum Spent {
    /// A block had enough.
    Here(Place, Part),
    /// No block had enough, and the blocks are told what the backend decides.
    Short(Place),
    /// The charge is not leased.
    Unleased,
}

impl LeasingBackend {
    pub(crate) fn around(backend: Arc<dyn Backend>) -> Self {
        Self {
            pool: Pool::of(backend, Shelves::new()),
            terms: ArcSwap::default(),
            decided: AtomicU64::new(0),
        }
    }

    /// From now on the budgets of these policies are leased, and those of handlers.
    pub(crate) fn lease(&self, policies: &[Arc<Policy>]) {
        let policies = || policies.iter().map(|policy| &**policy);
        self.terms.rcu(|terms| terms.replaced(policies()));
    }

    /// The budgets of this policy of a handler are leased as well, whatever becomes of the others.
    pub(crate) fn lease_for_handler(&self, policy: &Policy) {
        if policy.lease.is_some() {
            self.terms.rcu(|terms| terms.with_handler(policy));
        }
    }

    /// Spends a charge from a block, and asks for the next one if it is time.
    #[inline]
    fn spend(&self, terms: &LeaseTerms, charge: &Charge<'_>) -> Spent {
        let Some(lease) = terms.for_charge(charge) else {
            return Spent::Unleased;
        };
        let Some(found) = self.pool.spend(charge, lease) else {
            return Spent::Unleased;
        };
        if let Some((number, amount)) = found.to_ask {
            ask(&self.pool, charge, found.place, number, amount);
        }
        match found.part {
            Some(part) => Spent::Here(found.place, part),
            None => Spent::Short(found.place),
        }
    }

    /// Decides a call of one charge.
    fn decide_one(&self, terms: &LeaseTerms, charge: &Charge<'_>) -> Answer<Decision> {
        let backend = &self.pool.backend;
        match self.spend(terms, charge) {
            Spent::Here(_, part) => {
                self.decided.fetch_add(1, Ordering::Relaxed);
                Answer::now(Ok(part.alone()))
            }
            Spent::Short(place) => {
                let (pool, told) = (Arc::clone(&self.pool), Told { place, position: 0 });
                backend.decide(Call::of(&[*charge])).map(move |answer| {
                    let decision = answer?;
                    pool.tell(&[told], &decision);
                    Ok(decision)
                })
            }
            Spent::Unleased => backend.decide(Call::of(&[*charge])),
        }
    }

    /// Decides a call of which several charges may be leased.
    fn decide_several(&self, terms: &LeaseTerms, charges: &[Charge<'_>]) -> Answer<Decision> {
        let mut reserved = Reservation::new(&self.pool);
        let mut told: SmallVec<[Told; 1]> = SmallVec::new();
        let mut others: SmallVec<[Charge<'_>; 4]> = SmallVec::new();
        for charge in charges {
            match self.spend(terms, charge) {
                Spent::Here(place, part) => {
                    reserved.keep(charge, place, part);
                    continue;
                }
                Spent::Short(place) => told.push(Told {
                    place,
                    position: others.len(),
                }),
                Spent::Unleased => {}
            }
            reserved.leave();
            others.push(*charge);
        }
        if others.is_empty() {
            self.decided.fetch_add(1, Ordering::Relaxed);
            return Answer::now(Ok(reserved.admitted()));
        }
        let pool = Arc::clone(&self.pool);
        self.pool
            .backend
            .decide(Call::of(&others))
            .map(move |answer| {
                let decision = answer?;
                pool.tell(&told, &decision);
                Ok(reserved.joined(&decision))
            })
    }
}

impl Drop for LeasingBackend {
    fn drop(&mut self) {
        self.pool.end();
    }
}

impl Backend for LeasingBackend {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let terms = self.terms.load();
        let has_lease = |charge| terms.for_charge(charge).is_some();
        match call.charges {
            // As much as there is has no block.
            _ if call.at_least.is_some() => self.pool.backend.decide(call),
            [charge] => self.decide_one(&terms, charge),
            charges if charges.iter().any(has_lease) => self.decide_several(&terms, charges),
            _ => self.pool.backend.decide(call),
        }
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.pool.backend.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl Admin for LeasingBackend {
    /// Forgets the blocks as well. They are not credited, since their units are of a budget that is full again.
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.pool.shelves.forget(scope, key);
        self.pool.backend.admin().reset(scope, key)
    }

    fn bans(&self, scope: Scope) -> Answer<BanList> {
        self.pool.backend.admin().bans(scope)
    }

    fn place(&self) -> Option<String> {
        self.pool.backend.admin().place()
    }

    fn figures(&self, tell: &mut dyn FnMut(Figure, u64)) {
        tell(
            Figure::LeasedDecisions,
            self.decided.load(Ordering::Relaxed),
        );
        self.pool.backend.admin().figures(tell);
    }

    fn capabilities(&self) -> Capabilities {
        self.pool.backend.admin().capabilities()
    }
}

impl fmt::Debug for LeasingBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}
