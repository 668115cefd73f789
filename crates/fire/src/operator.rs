//! Bans and pardons by an operator, as clients record them.

use serde::{Deserialize, Serialize};

use crate::attempt::Outcome;

/// One call of an operator about a caller under the policy with a ban. Times are of the clients' clock, in µs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorCall {
    /// The number of the process.
    pub process: u32,
    /// The caller.
    pub caller: u32,
    /// The action.
    pub act: OperatorAct,
    /// The time of the call.
    pub sent_us: u64,
    /// The time of the answer; 0 until there is one.
    pub heard_us: u64,
    /// The outcome. The only verdict of a decision is the ban's.
    pub outcome: Outcome,
}

/// The action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperatorAct {
    /// A ban for this long.
    Ban {
        /// The length.
        lasting_us: u64,
    },
    /// The end of any ban, of all strikes, and of all that earlier bans led to.
    Unban,
}
