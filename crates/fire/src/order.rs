//! Requests with an id, as clients record them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate::key::{self, Header};
use tollgate::{OnFailure, Policy};
use tollgate_core::{Charge, Key, Mode, Once, Quota, QuotaError, Scope};

use crate::attempt::{Door, Outcome};
use crate::flaw::Flaw;
use crate::population::{Population, number_in};

/// One request with an id. Times are of the clients' clock, in µs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The number of the process.
    pub process: u32,
    /// Its way of asking.
    pub door: Door,
    /// The name of the request.
    pub name: OrderName,
    /// The time of the question.
    pub sent_us: u64,
    /// The time of the answer; 0 until there is one.
    pub heard_us: u64,
    /// The outcome at the backend. The first verdict of a decision is the quota's, and the second is the id's.
    pub outcome: Outcome,
    /// True if the limiter let it pass, if a limiter ruled and the client heard it.
    pub passed: Option<bool>,
    /// The time just before its charge was given back, if it was.
    pub returned_us: Option<u64>,
}

/// The properties of a request that make two of them one: an id with another caller or cost is another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OrderName {
    /// The caller.
    pub caller: u32,
    /// The id.
    pub id: u32,
    /// The cost.
    pub cost: u64,
}

/// The requests of a caller with one id and cost, in the words of the backend. A limiter with its policy asks the same.
#[derive(Clone, Debug)]
pub struct Identified {
    quotas: [Quota; 2],
    scopes: [Scope; 2],
    keys: [Key; 2],
    cost: u64,
}

impl Identified {
    /// The name of the policy. No policy of a population has it.
    pub(crate) const POLICY: &str = "ordering";

    /// The headers of a request with an id: its caller, the id and the cost.
    pub(crate) const CALLER: &str = "x-fire-order-caller";
    pub(crate) const ID: &str = "x-fire-order-id";
    pub(crate) const COST: &str = "x-fire-order-cost";

    /// The quota, which callers with constant ids exceed.
    pub const QUOTA: Quota = Quota::per_second(10).burst(5);

    /// The life of an id: so short that it ends many times in a run.
    pub const LIFE: Duration = Duration::from_millis(1_500);

    /// The replays that pass uncharged.
    pub const REPLAYS: u64 = 3;

    /// The charges of this request.
    ///
    /// # Errors
    ///
    /// If there are no such ids.
    pub fn of(population: &Population, name: OrderName) -> Result<Self, QuotaError> {
        Self::flawed(population, name, None)
    }

    /// The charges of this request, asked for by a process that may take ids of different callers or costs for one.
    pub(crate) fn flawed(
        population: &Population,
        name: OrderName,
        flaw: Option<Flaw>,
    ) -> Result<Self, QuotaError> {
        let quotas = [Self::QUOTA, Quota::from(terms()?)];
        let key = population.key(name.caller);
        let (of, cost) = match flaw {
            Some(Flaw::IdsOfAnyCaller) => (population.key(0), name.cost),
            Some(Flaw::IdsOfAnyCost) => (key.clone(), 1),
            _ => (key.clone(), name.cost),
        };
        let id = Key::from(name.id_text());
        Ok(Self {
            scopes: quotas.map(|quota| Scope::of(Self::POLICY, 0, &quota)),
            quotas,
            keys: [key, Key::tuple([&of, &id, &Key::from(cost)])],
            cost: name.cost,
        })
    }

    /// The charges of a request.
    #[must_use]
    pub fn charges(&self) -> [Charge<'_>; 2] {
        // An id is remembered, whatever the request costs.
        [(0, self.cost), (1, 1)].map(|(number, cost)| Charge {
            scope: self.scopes[number],
            quota: &self.quotas[number],
            key: &self.keys[number],
            cost,
            mode: Mode::Enforce,
        })
    }

    /// The policy as a user configures it, for requests that name a caller for it.
    pub(crate) fn policy(population: &Population) -> Result<Policy, QuotaError> {
        let population = population.clone();
        let policy = Policy::new(Self::POLICY, Self::QUOTA)
            .when(|request| request.headers().contains_key(Self::CALLER))
            .key(key::from_fn(move |request| {
                let caller = number_in(request, Self::CALLER)?;
                u32::try_from(caller)
                    .ok()
                    .map(|caller| population.key(caller))
            }))
            .cost_by(|request| number_in(request, Self::COST).unwrap_or(1))
            .on_failure(OnFailure::Deny)
            .once(terms()?)
            .once_by(Header::new(Self::ID));
        Ok(policy)
    }
}

impl OrderName {
    /// The id, as a client sends it.
    pub(crate) fn id_text(self) -> String {
        format!("order-{}", self.id)
    }
}

fn terms() -> Result<Once, QuotaError> {
    Once::try_within(Identified::LIFE)?.try_replays(Identified::REPLAYS)
}
