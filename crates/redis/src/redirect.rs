//! The errors by which a node of a cluster redirects a call.

use redis::RedisError;

use crate::server::Address;

/// The instruction of a node that has redirected us. Each proves that the call did not run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot has another owner.
    Moved(Address),
    /// The slot is migrating, and this key has gone ahead.
    Ask(Address),
    /// The slot is migrating, and the keys of the call may be in two places.
    Split,
    /// The keys are migrating, and will be in one place.
    Wait,
    /// The cluster has no owner for the slot at present; a cluster may also refuse all slots while one has no owner.
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
            // Before Redis 7 a node says this as soon as one key has gone ahead. Requests for the other keys, sent ahead one by
            // one, would find nothing there and begin with a full budget.
            "ASK" if jobs > 1 => Some(Self::Split),
            "ASK" => address().map(Self::Ask),
            "TRYAGAIN" if jobs > 1 => Some(Self::Split),
            "TRYAGAIN" => Some(Self::Wait),
            "CLUSTERDOWN" => Some(Self::Down),
            _ => None,
        }
    }
}
