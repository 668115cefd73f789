//! A service that settles: its handler states another cost for some requests than they were charged.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use fastrand::Rng;
use tollgate::RateLimitStatus;

use crate::attempt::{Budget, Outcome, Verb};
use crate::flaw::Flaw;
use crate::observed::SLOT;
use crate::population::{CALLER, Population};

/// The header of requests whose callers wait for the answer. The decision on any other is perhaps never heard of, and the checker
/// could not tell what its correction was of.
pub(crate) const STAYS: &str = "x-fire-stays";

/// The start of the header that tells the cost of a request that was settled. The policy's number follows.
pub(crate) const SETTLED: &str = "x-fire-settled-";

/// One in this many charges is settled.
const ONE_IN: u8 = 4;

/// The most that a request costs beyond its charge.
const DEARER_BY: u64 = 6;

/// Records an action before it is done, and its end.
pub(crate) type Recorder = Arc<dyn Fn(Verb, &dyn Fn()) -> std::io::Result<()> + Send + Sync>;

/// The part of a service that settles.
#[derive(Clone)]
pub(crate) struct Settler {
    population: Population,
    recorder: Recorder,
    rng: Arc<Mutex<Rng>>,
    flaw: Option<Flaw>,
}

impl Settler {
    pub(crate) fn of(
        population: &Population,
        recorder: Recorder,
        seed: u64,
        flaw: Option<Flaw>,
    ) -> Self {
        Self {
            population: population.clone(),
            recorder,
            rng: Arc::new(Mutex::new(Rng::with_seed(seed))),
            flaw,
        }
    }

    /// Settles some of the charges of a request that has passed, and tells their costs.
    pub(crate) fn settle(
        &self,
        headers: &HeaderMap,
        status: &RateLimitStatus,
    ) -> std::io::Result<HeaderMap> {
        let mut settled = HeaderMap::new();
        if !headers.contains_key(STAYS) {
            return Ok(settled);
        }
        let asked = SLOT.try_with(|slot| {
            let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.as_ref().map(|(outcome, _)| outcome.clone())
        });
        let Ok(Some(Outcome::Decided(decided))) = asked else {
            return Ok(settled);
        };
        // A limiter goes through its policies in their order.
        let budgets = self.population.asked().into_iter().filter_map(|policy| {
            let caller = headers.get(format!("{CALLER}{policy}"))?.to_str().ok()?;
            let caller = caller.parse().ok()?;
            Some(Budget { policy, caller })
        });
        for (budget, said) in budgets.zip(decided.verdicts) {
            let Some(cost) = self.cost(said.taken) else {
                continue;
            };
            let told = budget.told(self.population.others(), &said);
            let verb = match said.taken.checked_sub(cost) {
                Some(surplus) => Verb::Credit(told, said, surplus),
                None => Verb::Debit(told, cost - said.taken),
            };
            let stated = match self.flaw {
                Some(Flaw::SettlesForNothing) => 0,
                _ => cost,
            };
            let policy = Population::name(budget.policy);
            (self.recorder)(verb, &|| {
                // It took part, as the verdict says.
                let _settled = status.settle(&policy, stated);
            })?;
            if let Ok(name) = HeaderName::try_from(format!("{SETTLED}{}", budget.policy)) {
                settled.insert(name, HeaderValue::from(cost));
            }
        }
        Ok(settled)
    }

    /// The cost of a request that was charged this much, if it is to be corrected.
    fn cost(&self, taken: u64) -> Option<u64> {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let cost = rng.u64(0..=taken + DEARER_BY);
        (taken > 0 && cost != taken && rng.u8(0..ONE_IN) == 0).then_some(cost)
    }
}

impl fmt::Debug for Settler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settler").finish_non_exhaustive()
    }
}
