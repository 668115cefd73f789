//! What a node of a cluster says that has not run a call.

use redis::RedisError;

use crate::server::Address;

/// Where a node has sent us, or what it has told us to do. Each proves that the call did not run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot has another owner.
    Moved(Address),
    /// The slot is on its way, and this key has gone ahead.
    Ask(Address),
    /// The slot is on its way, and the keys of the call may be in two places.
    Split,
    /// The keys are on their way, and will be in one place.
    Wait,
    /// The cluster has nobody for the slot at present, or for no slot unless it has somebody for each.
    Down,
}

impl Redirect {
    pub(crate) fn of(error: &RedisError, jobs: usize) -> Option<Self> {
        let address = || {
            let (address, _slot) = error.redirect_node()?;
            // An IPv6 address has colons of its own.
            let (host, port) = address.rsplit_once(':')?;
            Some((host.to_owned(), port.parse().ok()?))
        };
        match error.code()? {
            "MOVED" => address().map(Self::Moved),
            // Before Redis 7 this is said as soon as one key has gone ahead. The others' requests, sent ahead one by one,
            // would find nothing there and begin with a full budget.
            "ASK" if jobs > 1 => Some(Self::Split),
            "ASK" => address().map(Self::Ask),
            "TRYAGAIN" if jobs > 1 => Some(Self::Split),
            "TRYAGAIN" => Some(Self::Wait),
            "CLUSTERDOWN" => Some(Self::Down),
            _ => None,
        }
    }
}
