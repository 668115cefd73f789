//! What goes to the script and what comes back: see `lua/README.md`.
//!
//! A call carries many requests. The reply carries the states as the script found them and the time; what was decided
//! follows from that by core's own rule, here as there.

#[cfg(feature = "fuzz")]
pub mod forged;
mod numbers;
mod plan;
mod reply;
mod request;
mod state;

#[cfg(test)]
mod by_itself;
#[cfg(test)]
mod differential;

pub(crate) use self::plan::{Call, MAX_KEYS, Plan};
pub(crate) use self::reply::{Outcome, Reply, replay};
pub(crate) use self::request::{OwnedCharge, Request, Work};
