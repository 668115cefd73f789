//! Requests under a policy with a ban and a class, as clients record them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate::key::{self, Header};
use tollgate::{OnFailure, Policy, Share};
use tollgate_core::{Ban, Charge, Key, Mode, Quota, Scope};

use crate::attempt::Outcome;
use crate::flaw::Flaw;
use crate::population::{Population, number_in};

/// One request under the policy with a ban and a class. Times are of the clients' clock, in µs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knock {
    /// The number of the process.
    pub process: u32,
    /// The caller.
    pub caller: u32,
    /// True if it is of the class for which a share of the budget is kept.
    #[serde(default)]
    pub is_important: bool,
    /// The time of the question.
    pub sent_us: u64,
    /// The time of the answer; 0 until there is one.
    pub heard_us: u64,
    /// The outcome. The first verdict of a decision is the quota's, and the second is the ban's.
    pub outcome: Outcome,
    /// True if the service refuses it in the end, which is a strike.
    #[serde(default)]
    pub fails: bool,
    /// The status of the answer, if it went through a layer.
    #[serde(default)]
    pub status: Option<u16>,
}

/// The requests of one class of a caller: its part of the quota, and the ban that guards it.
#[derive(Clone, Debug)]
pub struct Guarded {
    quotas: [Quota; 2],
    scopes: [Scope; 2],
    key: Key,
}

impl Guarded {
    /// The name of the policy. No policy of a population has it.
    pub(crate) const POLICY: &str = "banning";

    /// The headers of a knock at a service: its caller, its class if it is important, and one that has the service refuse it.
    pub(crate) const CALLER: &str = "x-fire-knock-caller";
    pub(crate) const CLASS: &str = "x-fire-knock-class";
    pub(crate) const FAILS: &str = "x-fire-knock-fails";

    /// The class of the important.
    pub(crate) const IMPORTANT: &str = "important";

    /// The status of an answer that is a strike.
    pub(crate) const STRIKE: u16 = 401;

    /// The quota, which eager callers exceed and calm ones do not.
    pub const QUOTA: Quota = Quota::per_second(20).burst(5);

    /// The units of the quota that all but the important leave.
    pub const KEPT: u64 = 2;

    /// The ban: so short that a caller is banned many times in a run, and now and then forgiven.
    pub const BAN: Ban = Ban::after(6, Duration::from_millis(800))
        .lasting(Duration::from_millis(250))
        .doubling_to(Duration::from_millis(1_000))
        .forgiven_after(Duration::from_millis(600));

    /// The longest ban by an operator.
    pub const LONGEST_BY_HAND: Duration = Duration::from_millis(1_500);

    /// The policy for this caller and class.
    #[must_use]
    pub fn of(population: &Population, caller: u32, is_important: bool) -> Self {
        let kept = if is_important { 0 } else { Self::KEPT };
        let quotas = [Self::QUOTA.keeping(kept), Quota::from(Self::BAN)];
        Self {
            scopes: quotas.map(|quota| Scope::of(Self::POLICY, 0, &quota)),
            quotas,
            key: population.key(caller),
        }
    }

    /// The charges of a request.
    #[must_use]
    pub fn charges(&self) -> [Charge<'_>; 2] {
        // A ban is asked, and costs nothing.
        [(0, 1), (1, 0)].map(|(number, cost)| Charge {
            scope: self.scopes[number],
            quota: &self.quotas[number],
            key: &self.key,
            cost,
            mode: Mode::Enforce,
        })
    }

    /// The policy as a user configures it, for requests that name a caller for it.
    pub(crate) fn policy(population: &Population, flaw: Option<Flaw>) -> Policy {
        let strikes = flaw != Some(Flaw::StrikesForNothing);
        let population = population.clone();
        Policy::new(Self::POLICY, Self::QUOTA)
            .key(key::from_fn(move |request| {
                let caller = number_in(request, Self::CALLER)?;
                u32::try_from(caller)
                    .ok()
                    .map(|caller| population.key(caller))
            }))
            .class_by(Header::new(Self::CLASS))
            .keep_for(
                Self::IMPORTANT,
                Share::percent(100 * Self::KEPT / Self::QUOTA.capacity()),
            )
            .ban(Self::BAN)
            .strike_if(move |response| strikes && response.status() == Self::STRIKE)
            .on_failure(OnFailure::Deny)
    }
}
