//! What becomes of those whom a node has sent on.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use redis::RedisError;

use super::{Cluster, unready};
use crate::dispatch::Dispatch;
use crate::job::{Job, Route};
use crate::link::Origin;
use crate::server::{self, Address};
use crate::sync::{Instant, sleep};

/// How long whoever was sent on twice, or found nobody, waits until the cluster may have made up its mind. The first few
/// times; then twice as long each time, up to the longest, which is what a cluster that has made it up waits for its callers.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

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

impl Cluster {
    /// Sends jobs on that a node has not run.
    pub(crate) fn send_on(&self, jobs: Vec<Job>, redirect: &Redirect) {
        let slot = jobs.first().map_or(0, |job| job.route.slot);
        let target = match redirect {
            Redirect::Moved(address) => {
                let node = self.node(slot, address);
                let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
                slots.set_owner(slot, node);
                drop(slots);
                self.refresh();
                None
            }
            Redirect::Ask(address) => Some(self.node(slot, address)),
            Redirect::Split => None,
            Redirect::Wait | Redirect::Down => {
                self.refresh();
                None
            }
        };
        for mut job in jobs {
            if job.is_over() {
                continue;
            }
            // Nothing ran. Who waits acts on that now: it may be long until somebody has the slot.
            let is_over = if job.is_pending() {
                *redirect == Redirect::Down
            } else {
                job.deadline <= Instant::now()
            };
            if is_over {
                job.refuse(unready(
                    "the cluster has nobody for this key now (CLUSTERDOWN)",
                ));
                continue;
            }
            job.sent_on += 1;
            job.route = Route {
                slot,
                asking: target.is_some(),
                alone: *redirect == Redirect::Split || job.route.alone,
            };
            let pause = match redirect {
                Redirect::Wait | Redirect::Down => pause(job.sent_on),
                _ if job.sent_on > 2 => pause(job.sent_on),
                _ => Duration::ZERO,
            };
            self.later(job, target.clone(), pause);
        }
    }

    fn later(&self, job: Job, target: Option<Arc<Dispatch>>, pause: Duration) {
        let cluster = Weak::clone(&self.myself);
        let _detached = self.runtime.spawn(async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            match (target, cluster.upgrade()) {
                (Some(node), _) => node.push(job),
                (None, Some(cluster)) => cluster.push(job),
                // With the backend goes whoever waits for it.
                (None, None) => drop(job),
            }
        });
    }

    /// The node that was named. One that does not know its own host leaves it out: it is where the slot was.
    fn node(&self, slot: u16, (host, port): &Address) -> Arc<Dispatch> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let mut host = host.trim_matches(['[', ']']).to_owned();
        if let (true, Some(owner)) = (host.is_empty(), slots.owner(slot))
            && let Origin::Server(server) = &owner.link.origin
            && let Some((here, _port)) = server::address(server)
        {
            host = here;
        }
        slots.node((host, *port), |address, hope| self.make(address, hope))
    }
}

/// How long whoever was sent on so often waits.
fn pause(sent_on: u32) -> Duration {
    let doubled = sent_on.saturating_sub(3).min(7);
    (PAUSE * (1 << doubled)).min(LONGEST_PAUSE)
}
