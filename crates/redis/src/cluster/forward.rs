//! Jobs that a node has redirected.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use super::{Cluster, unready};
use crate::dispatch::Dispatch;
use crate::job::{Job, Route};
use crate::link::Origin;
use crate::redirect::Redirect;
use crate::server::{self, Address};
use crate::sync::{Instant, sleep};

/// The pause of a job that was redirected twice, or whose slot has no owner, so that the cluster can settle. The first few
/// pauses are the shortest. Each later one is twice as long, up to the longest, which is the time for which a settled cluster
/// may wait for its callers.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Cluster {
    /// Forwards jobs that a node has not run.
    pub(crate) fn forward(&self, jobs: Vec<Job>, redirect: &Redirect) {
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
            // Nothing ran. The job's own failure rule may act on that now, because it may be long until a node has the slot.
            let is_over = if job.is_pending() {
                *redirect == Redirect::Down
            } else {
                job.deadline <= Instant::now()
            };
            if is_over {
                job.refuse(unready(
                    "no node can decide about this key now (CLUSTERDOWN)",
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
                // Its waiting jobs are dropped with the backend.
                (None, None) => drop(job),
            }
        });
    }

    /// The node that was named. A node that does not know its own host leaves the host out: then it is the one that had the
    /// slot.
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

/// The pause of a job that was redirected this often.
fn pause(sent_on: u32) -> Duration {
    let doubled = sent_on.saturating_sub(3).min(7);
    (PAUSE * (1 << doubled)).min(LONGEST_PAUSE)
}
