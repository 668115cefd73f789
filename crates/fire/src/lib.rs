//! Tollgate under fire.
//!
//! Processes with random policies ask real servers for decisions while faults are done to those servers, their network and
//! the processes themselves. Each attempt and what came of it is written down, and a [checker](check) decides afterwards
//! whether what was written down can have happened if everything kept its promises. `GUARANTEES.md` says which those are.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`Population`] | policies and callers, from a seed |
//! | [`Attempt`], [`History`] | what was asked and heard, and what was done meanwhile |
//! | [`check`] | pure: is this possible? |

mod attempt;
mod checker;
mod history;
mod population;

pub use attempt::{Asked, Attempt, Budget, Decided, Outcome, Said};
pub use checker::{Findings, Wrong, check};
pub use history::{Disturbance, Effect, History};
pub use population::{Population, SHARED_CALLERS};
