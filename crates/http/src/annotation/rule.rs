//! What a handler or route says of its limits.

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
        /// What a request costs, if not what the policy says.
        cost: Option<u64>,
    },
}

/// A policy of a handler's or route's own.
#[derive(Debug)]
pub struct OwnPolicy {
    /// What is no quota was refused by the compiler, or when the route was built.
    pub(super) quotas: Vec<Quota>,
    /// If not the route's.
    pub(super) name: Option<String>,
    /// Gives the policy its key, cost and mode.
    pub(super) finish: fn(Policy) -> Policy,
}
