//! The owners of the slots.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Value, from_redis_value};

use crate::dispatch::Dispatch;
use crate::server::Address;
use crate::slot::SLOTS;
use crate::sync::Instant;

/// The time in which some nodes may not have heard yet that a node was replaced: far longer than they take to tell each other.
const HEARSAY: Duration = Duration::from_secs(60);

/// The masters of a cluster and their slots, as far as we know.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    nodes: HashMap<Address, Arc<Dispatch>>,
    owners: Vec<Option<Arc<Dispatch>>>,
    /// The recently replaced nodes that had stopped answering, and the time. A node that has not heard of it may name them again,
    /// and no call waits for them because of that.
    silent: HashMap<Address, Instant>,
}

/// Says whether a newly named node is worth waiting for before it has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prospect {
    Some,
    None,
}

impl Slots {
    pub(crate) fn owner(&self, slot: u16) -> Option<&Arc<Dispatch>> {
        self.owners.get(usize::from(slot))?.as_ref()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<Dispatch>> {
        self.nodes.values()
    }

    /// Says whether each slot has an owner.
    pub(crate) fn are_covered(&self) -> bool {
        self.owners.len() == usize::from(SLOTS) && self.owners.iter().all(Option::is_some)
    }

    /// The node at this address, made if it is new.
    pub(crate) fn node(
        &mut self,
        address: Address,
        make: impl FnOnce(Address, Prospect) -> Arc<Dispatch>,
    ) -> Arc<Dispatch> {
        let silent = &self.silent;
        let node = self.nodes.entry(address).or_insert_with_key(|address| {
            let replaced_at = silent.get(address);
            let is_silent = replaced_at.is_some_and(|at| Instant::now() < *at + HEARSAY);
            let hope = if is_silent {
                Prospect::None
            } else {
                Prospect::Some
            };
            make(address.clone(), hope)
        });
        Arc::clone(node)
    }

    /// One slot has another owner.
    pub(crate) fn set_owner(&mut self, slot: u16, owner: Arc<Dispatch>) {
        self.owners.resize(usize::from(SLOTS), None);
        if let Some(place) = self.owners.get_mut(usize::from(slot)) {
            *place = Some(owner);
        }
    }

    /// Replaces the whole map. Returns the nodes that have left.
    pub(crate) fn replace(
        &mut self,
        ranges: Vec<Range>,
        mut make: impl FnMut(Address, Prospect) -> Arc<Dispatch>,
    ) -> Vec<Arc<Dispatch>> {
        let mut old = std::mem::take(&mut self.nodes);
        self.owners = vec![None; usize::from(SLOTS)];
        for range in ranges {
            if let Some(node) = old.remove(&range.master) {
                self.nodes.insert(range.master.clone(), node);
            }
            let node = self.node(range.master, &mut make);
            let (first, last) = (usize::from(range.first), usize::from(range.last));
            for owner in self.owners.get_mut(first..=last).into_iter().flatten() {
                *owner = Some(Arc::clone(&node));
            }
        }
        if !old.is_empty() {
            let now = Instant::now();
            let silent = old.iter().filter(|(_, node)| !node.is_hopeful());
            self.silent = silent.map(|(address, _)| (address.clone(), now)).collect();
        }
        old.into_values().collect()
    }
}

/// Slots that follow each other and have one master.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Range {
    first: u16,
    last: u16,
    master: Address,
}

impl Range {
    pub(crate) fn len(&self) -> u16 {
        self.last - self.first + 1
    }

    pub(crate) fn into_master(self) -> Address {
        self.master
    }
}

/// Reads the answer to `CLUSTER SLOTS`. A node that does not know its own host leaves it out: then it is the node that was
/// asked.
pub(crate) fn parse(value: Value, asked: &str) -> Option<Vec<Range>> {
    let Value::Array(ranges) = value else {
        return None;
    };
    ranges
        .into_iter()
        .map(|range| parse_range(range, asked))
        .collect()
}

fn parse_range(range: Value, asked: &str) -> Option<Range> {
    let Value::Array(fields) = range else {
        return None;
    };
    let [first, last, Value::Array(master), ..] = &fields[..] else {
        return None;
    };
    let [host, port, ..] = &master[..] else {
        return None;
    };
    let host: Option<String> = from_redis_value(host.clone()).ok()?;
    let host = host.filter(|host| !host.is_empty() && host != "?");
    let (first, last): (u16, u16) = (
        from_redis_value(first.clone()).ok()?,
        from_redis_value(last.clone()).ok()?,
    );
    (first <= last && last < SLOTS).then_some(())?;
    Some(Range {
        first,
        last,
        master: (
            host.unwrap_or_else(|| asked.to_owned()),
            from_redis_value(port.clone()).ok()?,
        ),
    })
}
