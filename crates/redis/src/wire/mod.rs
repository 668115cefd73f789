//! The protocol of the script: see `lua/README.md`.
//!
//! A call carries many requests. The reply carries the time, and the states as the script found them. The decisions follow from
//! these by core's own rule, which the script has applied as well.

mod calendars;
mod decide_form;
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

pub(crate) use self::decide_form::words as decide_form_words;
pub(crate) use self::plan::{MAX_KEYS, Plan, ScriptCall};
pub(crate) use self::reply::{LeftStates, Outcome, Reply, held_by_caller, replay};
pub(crate) use self::request::{OwnedCharge, Request, Work};
pub(crate) use self::state::{HeldEntries, decode as read_state};
