//! The outcome for a request while the backend cannot decide.

use tollgate_core::{BackendError, Decision};

use super::Plan;

/// The failure rule's outcome for a request.
#[derive(Debug)]
pub enum Fallback {
    /// A budget of this process decided about those policies of the plan that ask for it.
    Decide(Box<(Plan<'static>, Decision)>),
    /// Every policy says that the request passes.
    Pass(BackendError),
    /// A policy says that the request is refused.
    Refuse(BackendError),
}
