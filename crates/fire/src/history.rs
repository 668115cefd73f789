//! Histories: the attempts, and the disturbances of the servers meanwhile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_core::Quota;

use crate::attempt::Attempt;
use crate::hold::Hold;
use crate::instance::WaitingLine;
use crate::knock::Knock;
use crate::leased::Spend;
use crate::operator::OperatorCall;
use crate::order::Order;
use crate::replacement::Replacement;

/// The input of the checker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// The quota of each policy. They are not recorded: they follow from the seed.
    #[serde(skip)]
    pub quotas: Vec<Quota>,
    /// The quotas that replace a policy's now and then, the others of its versions. They are not recorded either.
    #[serde(skip)]
    pub replacements: BTreeMap<usize, Vec<Quota>>,
    /// The number of the budgets of each policy while it has a quota of another algorithm. Nor are these.
    #[serde(skip)]
    pub others: BTreeMap<usize, usize>,
    /// The attempts, in any order.
    pub attempts: Vec<Attempt>,
    /// The disturbances, in the order in which they began.
    pub disturbances: Vec<Disturbance>,
    /// True if callers live in several places. A call about two of them is then decided piece by piece, and its charges are
    /// given back if a later piece is denied.
    pub is_apart: bool,
    /// The home of each caller, if not all live in one place.
    pub homes: BTreeMap<u32, Home>,
    /// The times in which the machine kept processes waiting.
    pub waits: Vec<Wait>,
    /// The time within which each answer must come, if there is a bound.
    pub deadline_us: Option<u64>,
    /// The attempts to hold a place, in any order.
    #[serde(default)]
    pub holds: Vec<Hold>,
    /// The requests under a policy with a ban, in any order.
    #[serde(default)]
    pub knocks: Vec<Knock>,
    /// The requests for leased budgets, in any order.
    #[serde(default)]
    pub spends: Vec<Spend>,
    /// The calls of operators about callers under that policy, in any order.
    #[serde(default)]
    pub operated: Vec<OperatorCall>,
    /// The requests with ids, in any order.
    #[serde(default)]
    pub orders: Vec<Order>,
    /// The lines of all limiters. A limiter of a history without them has room for all that wait.
    #[serde(default)]
    pub lines: Vec<WaitingLine>,
    /// The times at which quotas were replaced. A history without them says nothing of these times.
    #[serde(default)]
    pub replaced: Vec<Replacement>,
    /// The times in which the gateway process or its Envoy was away, or stopped. They are among the waits as well.
    #[serde(default)]
    pub away: Vec<Wait>,
}

/// The number of the gateway process among all processes of a history.
pub const GATEWAY_PROCESS: u32 = u32::MAX - 1;

/// The number of its Envoy.
pub const ENVOY_PROCESS: u32 = u32::MAX - 2;

/// A process got no processor, between two points in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The number of the process.
    pub process: u32,
    /// The start.
    pub from_us: u64,
    /// The end.
    pub to_us: u64,
}

/// A disturbance of the servers, between two points in time of the parent's clock, in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbance {
    /// The earliest start.
    pub from_us: u64,
    /// The latest end.
    pub to_us: u64,
    /// Its possible effect on a history.
    pub effect: Effect,
    /// The home that it affects, if it does not affect all.
    pub home: Option<Home>,
}

/// The home of callers whose budgets one clock decides, if there is more than one.
pub type Home = u8;

/// The possible effect of a disturbance on a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Attempts may fail, be late, or be decided after their clients have gone.
    Trouble,
    /// Every budget was lost, at one moment.
    Loss,
    /// Any budget, or a part of its charges, may have been lost at any moment.
    MaybeLoss,
    /// The deciding clock was set, or another one decides, this many µs ahead of all other clocks.
    Clock(i64),
}

impl Disturbance {
    /// A disturbance of all homes between two points in time.
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

    /// Says whether it affects callers of this home.
    pub(crate) fn concerns(&self, home: Option<Home>) -> bool {
        self.home.is_none() || self.home == home
    }
}
