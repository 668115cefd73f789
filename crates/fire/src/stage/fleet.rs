//! Faults of a fleet.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tollgate_testkit::{Cluster, Network, Standalone};

use super::{Servers, Stage};
use crate::Result;
use crate::history::Effect;

/// Far longer than a failover on a busy machine.
const LONG: Duration = Duration::from_secs(60);

impl Stage {
    pub(super) fn fail_over(&mut self) -> Result<Effect> {
        match &mut self.servers {
            Servers::Sentinel(sentinels) => {
                sentinels.kill_master();
                // Until then it would come back as a second master, for clients that are told of it.
                until("the Sentinels agree on the replica", || sentinels.agree())?;
                join(sentinels.networks());
                sentinels.revive();
                Ok(Effect::MaybeLoss)
            }
            Servers::Cluster(cluster) => {
                let (old, new) = pair(cluster);
                cluster.node_mut(old).ok_or("no such node")?.kill();
                until("the replica takes over", || {
                    is_master(&cluster.nodes()[new])
                })?;
                cluster.join();
                cluster.node_mut(old).ok_or("no such node")?.restart();
                until("the old master follows", || follows(&cluster.nodes()[old]))?;
                Ok(Effect::MaybeLoss)
            }
            Servers::Single(_) => Err("one server has no other to fail over to".into()),
        }
    }

    /// Makes the Sentinels replace the master, which still takes writes for this long. The Sentinels would leave it so for some
    /// ten seconds.
    pub(super) fn plan_failover(&mut self, time: Duration) -> Result<Effect> {
        let Servers::Sentinel(sentinels) = &self.servers else {
            return Err("only Sentinels are told to fail over".into());
        };
        let old = sentinels.named().ok_or("the Sentinels do not agree")?;
        let new = 1 - old;
        sentinels.plan_failover();
        until("the Sentinels agree on the replica", || {
            sentinels.named() == Some(new)
        })?;
        sleep(time);
        sentinels.follow(old, new);
        until("the fleet is whole", || sentinels.is_whole())?;
        Ok(Effect::MaybeLoss)
    }

    /// Isolates a master from all but clients until another is in its place.
    pub(super) fn isolate(&mut self) -> Result<Effect> {
        match &mut self.servers {
            Servers::Sentinel(sentinels) => {
                let old = sentinels.named().ok_or("the Sentinels do not agree")?;
                let new = 1 - old;
                sentinels.networks()[old].part(&[b"REPLCONF", b"sentinel-"]);
                until("the Sentinels agree on the replica", || {
                    sentinels.named() == Some(new)
                })?;
                join(sentinels.networks());
                sentinels.follow(old, new);
                until("the fleet is whole", || sentinels.is_whole())?;
            }
            Servers::Cluster(cluster) => {
                let (old, new) = pair(cluster);
                cluster.isolate(old);
                until("the replica takes over", || {
                    is_master(&cluster.nodes()[new])
                })?;
                cluster.join();
                until("the old master follows", || follows(&cluster.nodes()[old]))?;
            }
            Servers::Single(_) => return Err("one server is always alone".into()),
        }
        Ok(Effect::MaybeLoss)
    }

    /// Starts the dead servers, and waits until all have a place.
    pub(super) fn mend_fleet(&mut self) -> Result<()> {
        match &mut self.servers {
            Servers::Single(_) => Ok(()),
            Servers::Sentinel(sentinels) => {
                until("the Sentinels agree on a master", || sentinels.agree())?;
                sentinels.revive();
                if let Some(master) = sentinels.named() {
                    sentinels.follow(1 - master, master);
                }
                until("the fleet is whole", || sentinels.is_whole())
            }
            Servers::Cluster(cluster) => {
                for number in 0..cluster.nodes().len() {
                    let node = cluster.node_mut(number).ok_or("no such node")?;
                    if node.pid().is_none() {
                        node.restart();
                    }
                }
                until("one of the pair follows", || {
                    let (master, replica) = pair(cluster);
                    let nodes = cluster.nodes();
                    is_master(&nodes[master]) && follows(&nodes[replica])
                })
            }
        }
    }

    pub(super) fn part_replicas(&self) {
        for network in self.networks() {
            network.part(&[b"REPLCONF"]);
        }
    }

    /// Ends every partition within the fleet.
    pub(super) fn join(&self) {
        match &self.servers {
            Servers::Single(_) => {}
            Servers::Sentinel(sentinels) => join(sentinels.networks()),
            Servers::Cluster(cluster) => cluster.join(),
        }
    }

    /// Migrates a few of the slots in use from one node to another, which loses nothing.
    pub(super) fn reshard(&self) -> Result<Effect> {
        let Servers::Cluster(cluster) = &self.servers else {
            return Err("only a cluster has slots".into());
        };
        for tag in 0..12 {
            let slot = cluster.slot_of(&format!("{{{tag}}}"));
            // A new master may not have been told of its slots.
            until("a slot has moved", || {
                let Some(from) = cluster.owner_of(slot) else {
                    return false;
                };
                // Never from or to the two that take each other's place.
                let to = match from {
                    1 => 2,
                    2 => 1,
                    _ => return true,
                };
                // Each step may be repeated: what has moved has moved.
                catch_unwind(AssertUnwindSafe(|| move_slot(cluster, slot, from, to))).is_ok()
            })?;
        }
        Ok(Effect::Trouble)
    }
}

fn move_slot(cluster: &Cluster, slot: u16, from: usize, to: usize) {
    cluster.begin_move(slot, from, to);
    for _ in 0..6 {
        cluster.move_keys(slot, from, to, 1);
        sleep(Duration::from_millis(5));
    }
    cluster.move_keys(slot, from, to, 10_000);
    cluster.end_move(slot, to);
}

fn join(networks: &[Network]) {
    for network in networks {
        network.part(&[]);
    }
}

/// The first and the last node have the same slots in turn: returns the owner of these, and its replica.
pub(super) fn pair(cluster: &Cluster) -> (usize, usize) {
    let last = cluster.nodes().len() - 1;
    if is_master(&cluster.nodes()[0]) {
        (0, last)
    } else {
        (last, 0)
    }
}

fn follows(node: &Standalone) -> bool {
    let said = node.try_command(&["INFO", "replication"]);
    said.is_ok_and(|said| said.contains("master_link_status:up"))
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
