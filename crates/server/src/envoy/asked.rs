//! The charges that a request of descriptors asks for.

use std::sync::Arc;

use tollgate::{Algorithm, Check, JointOutcome, Key, Limiter, OnMissing, Quota, Quotas};

use crate::counts::{Counters, Tally};
use crate::identity::{Identity, Missing};
use crate::period::period;
use crate::proto::rate_limit_descriptor::RateLimitOverride;
use crate::proto::rate_limit_response::rate_limit::Unit;
use crate::proto::{RateLimitDescriptor, RateLimitRequest};
use crate::rules::{Found, Rule, RuleCharge, Rules};

/// The most charges of one request: as many as one decision of the library has quotas.
const MOST_CHARGES: usize = 32;

/// The charges of one request, and what each descriptor has to do with them.
#[derive(Debug, Default)]
pub(super) struct Asked {
    charges: Vec<Charge>,
    descriptors: Vec<Place>,
    /// True if it charges more budgets than are decided together.
    pub(super) is_overfull: bool,
}

/// The consequence of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The charge at this place; several descriptors may share one.
    Charge(usize),
    /// It has no limit, by a rule.
    Unlimited,
    /// No rule of the domain is for it.
    Unknown,
    /// The domain has no rules.
    UnknownDomain,
}

/// One budget, and what the request takes from it.
#[derive(Debug)]
struct Charge {
    policy: Arc<str>,
    identity: Identity,
    /// The hits that the request asks for.
    cost: u64,
    /// The hits that were spent already.
    spent: u64,
    /// The quota that the gateway states; `None` for those of the policy.
    stated: Option<Stated>,
}

/// The meaning of a descriptor by the rules.
struct Meant<'r> {
    found: Found<'r>,
    hits: u64,
    stated: Option<Stated>,
}

/// A limit that the gateway states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stated {
    limit: u32,
    unit: Unit,
}

/// The limit that refuses a request.
const NOTHING: Stated = Stated {
    limit: 0,
    unit: Unit::Second,
};

impl Asked {
    /// The charges of a request by these rules.
    ///
    /// # Errors
    ///
    /// If it makes no sense: with the reason.
    pub(super) fn of(
        request: &RateLimitRequest,
        rules: &Rules,
        limiter: &Limiter,
    ) -> Result<Self, String> {
        if request.domain.is_empty() {
            return Err("the request has no domain".to_owned());
        }
        if request.descriptors.is_empty() {
            return Err("the request has no descriptors".to_owned());
        }
        let mut asked = Self {
            charges: Vec::new(),
            descriptors: Vec::with_capacity(request.descriptors.len()),
            is_overfull: false,
        };
        let wrong = |place: usize| move |reason| format!("descriptor {}: {reason}", place + 1);
        let mut found = Vec::with_capacity(request.descriptors.len());
        for (place, descriptor) in request.descriptors.iter().enumerate() {
            let meant = Meant::of(request, descriptor, rules);
            found.push(meant.map_err(wrong(place))?);
        }
        let replaced = found.iter().flat_map(Meant::replaces);
        let mut replaced: Vec<&str> = replaced.map(|name| &**name).collect();
        // A gateway may send thousands of descriptors, and the rules have a few names.
        replaced.sort_unstable();
        replaced.dedup();
        for (place, (meant, descriptor)) in found.iter().zip(&request.descriptors).enumerate() {
            let asks = if meant.is_among(&replaced) {
                Ok(Place::Unlimited)
            } else {
                asked.add(meant, descriptor, limiter)
            };
            asked.descriptors.push(asks.map_err(wrong(place))?);
        }
        Ok(asked)
    }

    fn add(
        &mut self,
        meant: &Meant<'_>,
        descriptor: &RateLimitDescriptor,
        limiter: &Limiter,
    ) -> Result<Place, String> {
        match (meant.stated, &meant.found) {
            (Some(stated), Found::Override(policy)) => {
                let key = key_of_all(descriptor);
                let identity = Identity {
                    canonical: key.clone(),
                    stated: key,
                };
                let charge = Charge::of(policy, identity, Some(stated));
                self.charge(charge, meant.hits, false)
            }
            (None, Found::Override(_)) | (_, Found::NoRule) => Ok(Place::Unknown),
            (_, Found::NoDomain) => Ok(Place::UnknownDomain),
            (_, Found::Rule(Rule { charge: None, .. })) => Ok(Place::Unlimited),
            (
                stated,
                Found::Rule(Rule {
                    charge: Some(rule), ..
                }),
            ) => {
                let (identity, stated) = match identity_of(descriptor, rule, limiter) {
                    Ok(identity) => (identity, stated),
                    // As a layer does: an identity that is there and cannot be read never passes free.
                    Err(missing) => match rule.on_missing {
                        OnMissing::Pass if !missing.is_ambiguous => return Ok(Place::Unlimited),
                        // A report decides nothing, and such requests were refused.
                        OnMissing::Deny if rule.is_report => return Ok(Place::Unlimited),
                        OnMissing::Deny => (missing.shared, Some(NOTHING)),
                        _ => (missing.shared, stated),
                    },
                };
                let charge = Charge::of(&rule.policy, identity, stated);
                self.charge(charge, meant.hits, rule.is_report)
            }
        }
    }

    /// Adds hits to a budget. Several descriptors that reach one budget make one charge of all their hits.
    fn charge(&mut self, charge: Charge, hits: u64, is_report: bool) -> Result<Place, String> {
        let is_same = |known: &Charge| {
            known.policy == charge.policy && known.identity.canonical == charge.identity.canonical
        };
        let known = self.charges.iter().position(is_same);
        let place = known.unwrap_or(self.charges.len());
        if let Some(known) = known
            && !is_report
            && self.charges[known].stated != charge.stated
        {
            // Callers choose values, and so which descriptors meet in a budget: an error would let the request pass.
            self.charges[known].stated = Some(NOTHING);
        }
        if place == MOST_CHARGES {
            self.is_overfull = true;
            return Ok(Place::Unlimited);
        }
        if known.is_none() {
            self.charges.push(charge);
        }
        let charge = &mut self.charges[place];
        let sum = if is_report {
            &mut charge.spent
        } else {
            &mut charge.cost
        };
        // More than this is more than any budget holds as well.
        *sum = sum.saturating_add(hits);
        Ok(Place::Charge(place))
    }

    /// The questions to the limiter, one for each charge. A charge of nothing asks how its budget stands.
    ///
    /// # Errors
    ///
    /// If a stated limit is not one that a budget can have: with the reason.
    pub(super) fn checks<'a>(&self, limiter: &'a Limiter) -> Result<Vec<Check<'a>>, String> {
        let charges = self.charges.iter();
        let check = |charge: &Charge| {
            let check = limiter.check(&charge.policy, charge.identity.stated.clone());
            let check = check.cost(charge.cost);
            let Some(stated) = charge.stated else {
                return Ok(check);
            };
            let policy = limiter.policy(&charge.policy);
            let algorithm = policy.map(|policy| policy.algorithm()).unwrap_or_default();
            Ok(check.quotas(stated.quotas(algorithm)?))
        };
        charges.map(check).collect()
    }

    /// Takes what was spent already, whatever became of the request.
    pub(super) fn debit(&self, limiter: &Limiter, outcome: &JointOutcome, counts: &Counters) {
        for (place, charge) in self.charges.iter().enumerate() {
            if charge.spent == 0 {
                continue;
            }
            let mut is_taken = false;
            for receipt in outcome.receipts_of_spent(place, charge.spent) {
                limiter.debit(&receipt, charge.spent);
                is_taken = true;
            }
            let has_budget = !outcome.report_of(place).verdicts().is_empty();
            if !is_taken && (has_budget || outcome.undecided().is_some()) {
                counts.add(Tally::LostReport);
            }
        }
    }

    /// Counts the request, and what no rule was for. The first of a kind is logged.
    pub(super) fn count(
        &self,
        request: &RateLimitRequest,
        outcome: &JointOutcome,
        counts: &Counters,
    ) {
        counts.add(if outcome.is_allowed() {
            Tally::Passed
        } else {
            Tally::Refused
        });
        if self.descriptors.contains(&Place::UnknownDomain) && counts.add(Tally::UnknownDomain) {
            tracing::warn!(
                domain = request.domain,
                "a gateway asks about a domain without rules; its requests have no limit"
            );
        }
        let unknown = self.descriptors.iter().zip(&request.descriptors);
        for (_, descriptor) in unknown.filter(|(place, _)| **place == Place::Unknown) {
            if counts.add(Tally::UnknownDescriptor) {
                let keys: Vec<_> = descriptor.entries.iter().map(|entry| &*entry.key).collect();
                tracing::warn!(
                    domain = request.domain,
                    keys = keys.join(", "),
                    "a gateway sends a descriptor for which no rule is; such requests have no limit"
                );
            }
        }
    }

    /// The consequences of the descriptors, in their order.
    pub(super) fn descriptors(&self) -> &[Place] {
        &self.descriptors
    }
}

impl<'r> Meant<'r> {
    fn of(
        request: &RateLimitRequest,
        descriptor: &RateLimitDescriptor,
        rules: &'r Rules,
    ) -> Result<Self, String> {
        if descriptor.entries.is_empty() {
            return Err("it has no entries".to_owned());
        }
        if descriptor.entries.iter().any(|entry| entry.key.is_empty()) {
            return Err("an entry has an empty key".to_owned());
        }
        let entries = descriptor.entries.iter();
        let entries = entries.map(|entry| (entry.key.as_str(), &*entry.value));
        let stated = descriptor.limit.map(Stated::of).transpose()?;
        Ok(Self {
            found: rules.find(&request.domain, entries, stated.is_some()),
            hits: hits(request, descriptor)?,
            stated,
        })
    }

    /// The names of the rules that its rule replaces.
    fn replaces(&self) -> &'r [Box<str>] {
        match self.found {
            Found::Rule(rule) => &rule.replaces,
            _ => &[],
        }
    }

    fn is_among(&self, replaced: &[&str]) -> bool {
        match self.found {
            Found::Rule(Rule {
                name: Some(name), ..
            }) => replaced.contains(&&**name),
            _ => false,
        }
    }
}

impl Charge {
    fn of(policy: &Arc<str>, identity: Identity, stated: Option<Stated>) -> Self {
        Self {
            policy: Arc::clone(policy),
            identity,
            cost: 0,
            spent: 0,
            stated,
        }
    }
}

impl Stated {
    fn of(limit: RateLimitOverride) -> Result<Self, String> {
        match Unit::try_from(limit.unit) {
            Ok(Unit::Unknown) | Err(_) => Err(format!(
                "it states a limit in unit {}: the units are 1 (SECOND) to 7 (WEEK)",
                limit.unit
            )),
            Ok(unit) => Ok(Self {
                limit: limit.requests_per_unit,
                unit,
            }),
        }
    }

    fn quotas(self, algorithm: Algorithm) -> Result<Quotas, String> {
        if self.limit == 0 {
            return Ok(Quotas::none());
        }
        let quota = Quota::try_new(self.limit.into(), period(self.unit));
        let quota = match algorithm {
            // A calendar has periods of its own.
            Algorithm::Calendar(_) => quota,
            algorithm => quota.and_then(|quota| quota.try_using(algorithm)),
        };
        quota.map(Quotas::from).map_err(|error| {
            let (limit, unit) = (self.limit, self.unit.as_str_name());
            format!("it states a limit of {limit} per {unit}: {error}")
        })
    }
}

/// The hits of a descriptor: its own, or else those of the request, of which 0 means one.
fn hits(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Result<u64, String> {
    if descriptor.is_negative_hits {
        return Err(
            "its hits are negative, and nothing is given back: a credit without the receipt of a charge has no bound".to_owned(),
        );
    }
    Ok(match descriptor.hits_addend {
        Some(hits) => hits,
        None => u64::from(request.hits_addend).max(1),
    })
}

/// The identity of a descriptor as a whole.
fn key_of_all(descriptor: &RateLimitDescriptor) -> Key {
    let entries = descriptor.entries.iter();
    let parts: Vec<_> = entries
        .flat_map(|entry| [Key::from(&*entry.key), Key::bytes(&entry.value)])
        .collect();
    Key::tuple(&parts)
}

/// The identity whose budget a descriptor charges.
fn identity_of(
    descriptor: &RateLimitDescriptor,
    charge: &RuleCharge,
    limiter: &Limiter,
) -> Result<Identity, Missing> {
    let values = charge.identity.iter();
    let values: Vec<_> = values
        .map(|place| &*descriptor.entries[*place].value)
        .collect();
    match limiter.policy(&charge.policy) {
        Some(policy) => charge.reading.read(&values, limiter, &policy),
        // The check says so.
        None => Err(Missing::default()),
    }
}
