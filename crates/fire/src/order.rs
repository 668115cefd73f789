//! Requests with an id, as clients record them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::{Charge, Key, Mode, Once, Quota, QuotaError, Scope};

use crate::attempt::Outcome;
use crate::population::Population;

/// The name of the policy. No policy of a population has it.
const NAME: &str = "ordering";

/// One request with an id. Times are of the clients' clock, in µs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The number of the process.
    pub process: u32,
    /// The caller.
    pub caller: u32,
    /// The id.
    pub id: u32,
    /// The time of the question.
    pub sent_us: u64,
    /// The time of the answer; 0 until there is one.
    pub heard_us: u64,
    /// The outcome. The first verdict of a decision is the quota's, and the second is the id's.
    pub outcome: Outcome,
}

/// The requests of a caller with one id.
#[derive(Clone, Debug)]
pub struct Identified {
    quotas: [Quota; 2],
    scopes: [Scope; 2],
    keys: [Key; 2],
}

impl Identified {
    /// The quota, which callers with constant ids exceed.
    pub const QUOTA: Quota = Quota::per_second(10).burst(5);

    /// The life of an id: so short that it ends many times in a run.
    pub const LIFE: Duration = Duration::from_millis(1_500);

    /// The replays that pass uncharged.
    pub const REPLAYS: u64 = 3;

    /// The policy for this caller and id.
    ///
    /// # Errors
    ///
    /// If there are no such ids.
    pub fn of(population: &Population, caller: u32, id: u32) -> Result<Self, QuotaError> {
        let once = Once::try_within(Self::LIFE)?.try_replays(Self::REPLAYS)?;
        let quotas = [Self::QUOTA, Quota::from(once)];
        let key = population.key(caller);
        let of_id = Key::tuple([&key, &Key::from(u64::from(id))]);
        Ok(Self {
            scopes: quotas.map(|quota| Scope::of(NAME, 0, &quota)),
            quotas,
            keys: [key, of_id],
        })
    }

    /// The charges of a request.
    #[must_use]
    pub fn charges(&self) -> [Charge<'_>; 2] {
        [0, 1].map(|number| Charge {
            scope: self.scopes[number],
            quota: &self.quotas[number],
            key: &self.keys[number],
            cost: 1,
            mode: Mode::Enforce,
        })
    }
}
