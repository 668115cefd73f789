//! What a request costs.

use std::fmt;
use std::sync::Arc;

use super::{Limit, Policy};
use crate::{ConfigError, RequestView};

/// The same for every request, or as a function says.
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
    /// Whether what every request costs could pass, in each tier. One whose every request is refused, for good, has nothing
    /// of a limit, so that it is taken for a mistake, on trial as well; whom to refuse always, lists say. Who is checked with
    /// [another cost](crate::Check::cost) is told by the verdict.
    #[doc(hidden)]
    pub fn check_cost(&self) -> Result<(), ConfigError> {
        let Some(cost) = self.cost.fixed() else {
            return Ok(());
        };
        let is_short = |limit: &&Limit| limit.quota.capacity() < cost;
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
            None => Ok(()),
            Some((tier, _)) => Err(ConfigError::Tier {
                policy: self.name.to_string(),
                tier: tier.to_owned(),
                reason:
                    "a full budget holds less than a request costs, so that none would ever pass"
                        .to_owned(),
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
