//! The limits that a handler or route states.

use tollgate_core::Quota;
use tollgate_limiter::Policy;

/// One limit of a handler or route.
#[derive(Debug)]
pub enum Rule {
    /// A policy of its own.
    Inline(OwnPolicy),
    /// A policy of the limiter.
    Named {
        /// Its name.
        policy: String,
        /// The cost of a request, if it differs from the policy's.
        cost: Option<u64>,
    },
}

/// A policy of a handler's or route's own.
#[derive(Debug)]
pub struct OwnPolicy {
    /// The quotas. Invalid ones were refused by the compiler, or when the route was built.
    pub(super) quotas: Vec<Quota>,
    /// The name, if it is not the route's.
    pub(super) name: Option<String>,
    /// Gives the policy its key, cost and mode.
    pub(super) finish: fn(Policy) -> Policy,
}
