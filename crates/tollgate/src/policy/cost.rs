//! What a request costs.

use std::fmt;
use std::sync::Arc;

use crate::RequestView;

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

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(cost) => fmt::Debug::fmt(cost, f),
            Self::By(_) => f.write_str("cost_by(..)"),
        }
    }
}
