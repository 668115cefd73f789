//! The charges that a request of descriptors asks for.

use std::net::IpAddr;
use std::sync::Arc;

use tollgate::{Check, JointOutcome, Key, Limiter};

use crate::counts::{Counters, Tally};
use crate::proto::{RateLimitDescriptor, RateLimitRequest};
use crate::rules::{Found, Rule, RuleCharge, Rules};

/// The most charges of one request: as many as one decision of the library has quotas.
const MOST_CHARGES: usize = 32;

/// The charges of one request, and what each descriptor has to do with them.
#[derive(Debug, Default)]
pub(super) struct Asked {
    charges: Vec<Charge>,
    descriptors: Vec<Place>,
}

/// The consequence of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The charge at this place; several descriptors may share one.
    Charge(usize),
    /// It has no limit, by a rule.
    Unlimited,
    /// No rule is for it.
    Unknown,
}

/// One budget, and what the request takes from it.
#[derive(Debug)]
struct Charge {
    policy: Arc<str>,
    key: Key,
    /// The hits that the request asks for.
    cost: u64,
    /// The hits that were spent already.
    spent: u64,
}

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
        };
        for (place, descriptor) in request.descriptors.iter().enumerate() {
            let hits = hits(request, descriptor);
            let asks = hits.and_then(|hits| asked.add(request, descriptor, hits, rules, limiter));
            let asks = asks.map_err(|reason| format!("descriptor {}: {reason}", place + 1))?;
            asked.descriptors.push(asks);
        }
        Ok(asked)
    }

    fn add(
        &mut self,
        request: &RateLimitRequest,
        descriptor: &RateLimitDescriptor,
        hits: u64,
        rules: &Rules,
        limiter: &Limiter,
    ) -> Result<Place, String> {
        if descriptor.entries.is_empty() {
            return Err("it has no entries".to_owned());
        }
        if descriptor.entries.iter().any(|entry| entry.key.is_empty()) {
            return Err("an entry has an empty key".to_owned());
        }
        let entries = descriptor.entries.iter();
        let entries = entries.map(|entry| (entry.key.as_str(), entry.value.as_str()));
        match rules.find(&request.domain, entries) {
            Found::NoDomain | Found::NoRule => Ok(Place::Unknown),
            Found::Rule(Rule { charge: None, .. }) => Ok(Place::Unlimited),
            Found::Rule(Rule {
                charge: Some(charge),
                ..
            }) => {
                let key = key_of(descriptor, charge, limiter)?;
                self.charge(charge, key, hits)
            }
        }
    }

    /// Adds hits to a budget. Several descriptors that reach one budget make one charge of all their hits.
    fn charge(&mut self, rule: &RuleCharge, key: Key, hits: u64) -> Result<Place, String> {
        let is_same = |charge: &Charge| charge.policy == rule.policy && charge.key == key;
        let known = self.charges.iter().position(is_same);
        let place = known.unwrap_or(self.charges.len());
        if place == MOST_CHARGES {
            return Err(format!(
                "with it the request charges more than {MOST_CHARGES} budgets, and at most {MOST_CHARGES} are decided together"
            ));
        }
        if known.is_none() {
            self.charges.push(Charge {
                policy: Arc::clone(&rule.policy),
                key,
                cost: 0,
                spent: 0,
            });
        }
        let charge = &mut self.charges[place];
        let sum = if rule.is_report {
            &mut charge.spent
        } else {
            &mut charge.cost
        };
        // More than this is more than any budget holds as well.
        *sum = sum.saturating_add(hits);
        Ok(Place::Charge(place))
    }

    /// The questions to the limiter, one for each charge. A charge of nothing asks how its budget stands.
    pub(super) fn checks<'a>(&self, limiter: &'a Limiter) -> Vec<Check<'a>> {
        let charges = self.charges.iter();
        let check = |charge: &Charge| {
            let check = limiter.check(&charge.policy, charge.key.clone());
            check.cost(charge.cost)
        };
        charges.map(check).collect()
    }

    /// Takes what was spent already, whatever became of the request.
    pub(super) fn debit(&self, limiter: &Limiter, outcome: &JointOutcome, counts: &Counters) {
        for (place, charge) in self.charges.iter().enumerate() {
            if charge.spent == 0 {
                continue;
            }
            if outcome.undecided().is_some() {
                counts.add(Tally::LostReport);
            }
            for receipt in outcome.receipts_of_spent(place, charge.spent) {
                limiter.debit(&receipt, charge.spent);
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

/// The identity whose budget a descriptor charges.
fn key_of(
    descriptor: &RateLimitDescriptor,
    charge: &RuleCharge,
    limiter: &Limiter,
) -> Result<Key, String> {
    let values = charge.identity.iter();
    let values: Vec<_> = values
        .map(|place| &*descriptor.entries[*place].value)
        .collect();
    let key = match values.as_slice() {
        [] => Key::global(),
        [value] => Key::from(*value),
        values => {
            let parts: Vec<_> = values.iter().map(|value| Key::from(*value)).collect();
            Key::tuple(&parts)
        }
    };
    let Some(policy) = limiter.policy(&charge.policy) else {
        return Ok(key);
    };
    let Err(misfit) = limiter.fits(&policy, &key) else {
        return Ok(key);
    };
    // The policy's key is an address, as that of a layer in a service is.
    match values.as_slice() {
        [value] => match value.parse::<IpAddr>() {
            Ok(address) => Ok(limiter.client_key(address)),
            Err(_) => Err(misfit.to_string()),
        },
        _ => Err(misfit.to_string()),
    }
}
