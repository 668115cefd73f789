//! What happened: the attempts, and what was done to the servers meanwhile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_core::Quota;

use crate::attempt::Attempt;

/// Everything that a checker needs to know.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// The quota of each policy. They are not written down: they follow from the seed.
    #[serde(skip)]
    pub quotas: Vec<Quota>,
    /// In any order.
    pub attempts: Vec<Attempt>,
    /// In the order in which they began.
    pub disturbances: Vec<Disturbance>,
    /// Whether callers live in several places, so that a call about two of them is decided piece by piece, and what it took
    /// is given back if a later piece is denied.
    pub is_apart: bool,
    /// Where each caller lives, if not all live in one place.
    pub homes: BTreeMap<u32, Home>,
    /// When processes were kept waiting by the machine that they run on.
    pub waits: Vec<Wait>,
    /// Within what everybody is to be answered, if within anything.
    pub deadline_us: Option<u64>,
}

/// A process was not given a processor, between two points in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The number of the process.
    pub process: u32,
    /// From when.
    pub from_us: u64,
    /// To when.
    pub to_us: u64,
}

/// What was done to the servers, between two points in time of the parent's clock, in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Not before.
    pub from_us: u64,
    /// Not after.
    pub to_us: u64,
    /// What it may do to a history.
    pub effect: Effect,
    /// To whom it was done, if not to all: who lives there.
    pub home: Option<Home>,
}

/// Where callers live who are decided by one clock, if not all are.
pub type Home = u8;

/// What a disturbance may do to a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Attempts may fail, be late, or be decided after nobody waits for them any more.
    Trouble,
    /// Every budget was lost, at one moment.
    Loss,
    /// Any budget may have been lost, or a part of what had been taken from it, at any moment.
    MaybeLoss,
    /// The clock that decides was set, or another decides, to so many µs ahead of everybody else's.
    Clock(i64),
}

impl Disturbance {
    /// Something that is done to everybody between two points in time.
    #[must_use]
    pub fn of_all(effect: Effect, from_us: u64, to_us: u64) -> Self {
        Self {
            from_us,
            to_us,
            effect,
            home: None,
        }
    }

    /// Trouble between two points in time.
    #[must_use]
    pub fn trouble(from_us: u64, to_us: u64) -> Self {
        Self::of_all(Effect::Trouble, from_us, to_us)
    }

    /// Whether it is done to whoever lives there.
    pub(crate) fn concerns(&self, home: Option<Home>) -> bool {
        self.home.is_none() || self.home == home
    }
}
