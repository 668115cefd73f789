//! The outcome for a request while the backend cannot decide.

use tollgate_core::{BackendError, Decision};

use super::Plan;

/// The failure rule's outcome for a request.
#[derive(Debug)]
pub enum Fallback {
    /// Some policies of the plan were decided.
    Decide(Box<DecidedPart>),
    /// Every policy says that the request passes.
    Pass(BackendError),
    /// A policy says that the request is refused.
    Refuse(BackendError),
}

/// The policies that were decided while the others could not be.
#[derive(Debug)]
pub struct DecidedPart {
    /// Their plan.
    pub plan: Plan<'static>,
    /// The decision on them.
    pub decision: Decision,
    /// True if a budget of this process decided in the backend's place.
    pub is_local: bool,
}
