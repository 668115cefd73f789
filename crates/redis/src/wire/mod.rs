//! What goes to the script and what comes back: see `lua/README.md`.
//!
//! A call carries many requests. The reply carries the states as the script found them and the time; what was decided
//! follows from that by core's own rule, here as there.

mod call;
#[cfg(feature = "fuzz")]
pub mod forged;
mod lower;
mod numbers;
mod reply;
mod state;

#[cfg(test)]
mod by_itself;
#[cfg(test)]
mod differential;

pub(crate) use self::call::{Call, MAX_KEYS, Plan};
pub(crate) use self::lower::{OwnedCharge, Request, Work};
pub(crate) use self::reply::{Outcome, Reply, replay};
