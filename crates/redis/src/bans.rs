//! The list of bans, for operators.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Answer, BanList, BannedCaller, Scope, Timestamp, Unit};

use crate::fleet::Fleet;
use crate::name::{Name, Names};
use crate::walk::{self, Visitor};
use crate::wire::read_state;

/// Lists the bans of a scope. The work ends soon after the answer is dropped.
pub(crate) fn list(fleet: &Fleet, names: &Arc<Names>, scope: Scope) -> Answer<BanList> {
    walk::list(
        fleet,
        Listing {
            names: Arc::clone(names),
            scope,
            callers: HashMap::new(),
        },
    )
}

/// A list in the making.
struct Listing {
    names: Arc<Names>,
    scope: Scope,
    /// By the names of their states: `SCAN` may show a name twice.
    callers: HashMap<Name, BannedCaller>,
}

impl Visitor for Listing {
    type List = BanList;

    fn pattern(&self) -> Name {
        self.names.pattern(self.scope)
    }

    fn wants(&self, _name: &[u8]) -> bool {
        true
    }

    /// Adds a ban in force.
    fn see(&mut self, name: &Name, state: &[u8], now: Timestamp) -> bool {
        let Some(state) = read_state(state, Unit::Ban) else {
            return false;
        };
        let left = state.banned_for(now);
        let caller = left.and_then(|left| self.caller(name, left));
        self.callers
            .extend(caller.map(|caller| (name.clone(), caller)));
        true
    }

    fn is_full(&self) -> bool {
        self.callers.len() > BanList::MOST
    }

    fn into_list(self, is_complete: bool) -> BanList {
        BanList::new(self.callers.into_values(), is_complete)
    }
}

impl Listing {
    /// The caller that this name stands for, if this backend asks for such a name.
    fn caller(&self, name: &[u8], left: Duration) -> Option<BannedCaller> {
        let read = self.names.read(self.scope, name)?;
        Some(match read.key() {
            Some(key) => BannedCaller::new(key.clone(), left),
            None => BannedCaller::hashed(read.identity(), left),
        })
    }
}
