//! The cost of a request.

use std::fmt;
use std::sync::Arc;

use super::{Limit, Policy};
use crate::{ConfigError, RequestView};

/// A fixed cost, or a function of the request.
#[derive(Clone)]
pub(crate) enum Cost {
    Fixed(u64),
    By(Arc<CostBy>),
}

type CostBy = dyn Fn(&RequestView<'_>) -> u64 + Send + Sync;

impl Cost {
    pub(crate) const ONE: Self = Self::Fixed(1);

    pub(crate) fn of(&self, request: &RequestView<'_>) -> u64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::By(cost) => cost(request),
        }
    }

    /// If it is the same for every request.
    #[inline]
    pub(crate) fn fixed(&self) -> Option<u64> {
        match self {
            Self::Fixed(cost) => Some(*cost),
            Self::By(_) => None,
        }
    }
}

impl Policy {
    /// Checks that the fixed cost can pass in each tier. A policy that refuses every request for ever is not a limit but an
    /// error, on trial as well; lists are for callers that are always refused. A check with [another cost](crate::Check::cost) is
    /// answered by its verdict.
    #[doc(hidden)]
    pub fn check_cost(&self) -> Result<(), ConfigError> {
        let Some(cost) = self.cost.fixed() else {
            return Ok(());
        };
        // A ban is charged nothing.
        let is_short = |limit: &&Limit| limit.quota.capacity() < cost && !limit.quota.is_ban();
        if let Some(limit) = self.limits.iter().find(is_short) {
            return Err(ConfigError::Cost {
                policy: self.name.to_string(),
                quota: limit.label.quota().to_owned(),
                cost,
                capacity: limit.quota.capacity(),
            });
        }
        let tiers = self.tiers.iter().flat_map(|tiers| tiers.limits());
        match tiers.into_iter().find(|(_, limit)| is_short(limit)) {
            None => self.check_cost_of_classes(cost),
            Some((tier, _)) => Err(ConfigError::Tier {
                policy: self.name.to_string(),
                tier: tier.to_owned(),
                reason:
                    "a full budget holds less than a request costs, so that no request ever passes"
                        .to_owned(),
            }),
        }
    }

    fn check_cost_of_classes(&self, cost: u64) -> Result<(), ConfigError> {
        let mut limits = self.limits_of_classes();
        match limits.find(|(_, limit)| !limit.quota.is_ban() && limit.quota.capacity() < cost) {
            None => Ok(()),
            Some((class, limit)) => Err(ConfigError::Class {
                policy: self.name.to_string(),
                class: class.to_owned(),
                reason: format!(
                    "a cost of {cost} never passes: the part of this class in {:?} is {}",
                    limit.label.quota(),
                    limit.quota.capacity()
                ),
            }),
        }
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(cost) => fmt::Debug::fmt(cost, f),
            Self::By(_) => f.write_str("cost_by(..)"),
        }
    }
}
