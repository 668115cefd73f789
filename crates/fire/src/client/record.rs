//! The record of a client, for its parent.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, AttemptAnswer};
use crate::hold::Hold;
use crate::instance::WaitingLine;
use crate::knock::Knock;
use crate::leased::Spend;
use crate::operator::OperatorCall;
use crate::order::Order;
use crate::replacement::Replacement;
use crate::ruling::Ruling;

/// The record of a client, a line for each entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Line {
    /// An attempt is about to be made: everything but its answer.
    Ask(u64, Box<Attempt>),
    /// Its outcome and the time.
    Hear(u64, u64, AttemptAnswer),
    /// An attempt to hold a place, and once more when the place is given back.
    Hold(u64, Hold),
    /// A request under a policy with a ban is about to be made, and once more with its answer.
    Knock(u64, Knock),
    /// Requests for a leased budget, with their answers.
    Spend(Spend),
    /// A call of an operator is about to be made, and once more with its answer.
    Operator(u64, OperatorCall),
    /// A request with an id is about to be made, and once more with its answer.
    Order(u64, Order),
    /// The line of a limiter, which is about to be used, or is being closed.
    Waiting(WaitingLine),
    /// The quotas are about to be replaced, and once more when they are.
    Replaced(Replacement),
    /// A decision of a gateway process.
    Ruled(Ruling),
    /// The leases that the process has lost so far, when it has lost another.
    Lost(u64),
    /// The figures of the process's backend at its end.
    End(HolderFigures),
    /// Between these two points in time a thread of the process was to run, and was not given a processor.
    Late(u64, u64),
}

/// The figures of a process about what it held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderFigures {
    /// The units that it still holds by its own books.
    pub held: u64,
    /// The leases that it lost.
    pub lost_leases: u64,
    /// The units of others that it found to have lost their leases.
    pub reclaimed: u64,
}

/// Records an entry.
pub(crate) fn say(line: &Line) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    std::io::stdout().lock().write_all(&text)
}
