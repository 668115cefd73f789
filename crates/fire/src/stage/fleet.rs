//! What only a fleet can suffer.

use std::thread::sleep;
use std::time::{Duration, Instant};

use tollgate_testkit::Standalone;

use super::Stage;
use crate::Result;
use crate::history::Effect;

/// Far more than a failover takes on a busy machine.
const LONG: Duration = Duration::from_secs(30);

impl Stage {
    pub(super) fn fail_over(&mut self) -> Result<Effect> {
        match self {
            Self::Sentinel(sentinels) => {
                sentinels.kill_master();
                // Until then it would come back as a second master, for whoever is told of it.
                until("the Sentinels agree on the replica", || sentinels.agree())?;
                sentinels.revive();
                Ok(Effect::MaybeLoss)
            }
            Self::Cluster(cluster) => {
                // The first and the last node have the same slots, in turn.
                let last = cluster.nodes().len() - 1;
                let (old, new) = if is_master(&cluster.nodes()[0]) {
                    (0, last)
                } else {
                    (last, 0)
                };
                cluster.node_mut(old).ok_or("no such node")?.kill();
                until("the replica takes over", || {
                    is_master(&cluster.nodes()[new])
                })?;
                cluster.node_mut(old).ok_or("no such node")?.restart();
                until("the old master follows", || {
                    let said = cluster.nodes()[old].try_command(&["INFO", "replication"]);
                    said.is_ok_and(|said| said.contains("master_link_status:up"))
                })?;
                Ok(Effect::MaybeLoss)
            }
            Self::Single(_) => Err("one server has nobody to fail over to".into()),
        }
    }

    /// Moves a few of the slots that are in use from one node to another: nothing is lost by that.
    pub(super) fn reshard(&self) -> Result<Effect> {
        let Self::Cluster(cluster) = self else {
            return Err("only a cluster has slots".into());
        };
        for tag in 0..12 {
            let slot = cluster.slot_of(&format!("{{{tag}}}"));
            let from = cluster.owner_of(slot).ok_or("a slot of nobody's")?;
            // Never from or to the two that take each other's place.
            let to = match from {
                1 => 2,
                2 => 1,
                _ => continue,
            };
            cluster.begin_move(slot, from, to);
            for _ in 0..6 {
                cluster.move_keys(slot, from, to, 1);
                sleep(Duration::from_millis(5));
            }
            cluster.move_keys(slot, from, to, 10_000);
            cluster.end_move(slot, to);
        }
        Ok(Effect::Trouble)
    }
}

/// A server that changes its role closes its connections, and is asked again.
pub(super) fn is_master(node: &Standalone) -> bool {
    let role = node.try_command(&["ROLE"]);
    role.is_ok_and(|role| role.contains("master"))
}

fn until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let started_at = Instant::now();
    while !is_so() {
        if started_at.elapsed() > LONG {
            return Err(format!("not within {LONG:?}: {what}").into());
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}
