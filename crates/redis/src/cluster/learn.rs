//! The map of the slots, asked of any connected node, or else of the seeds.

use std::sync::atomic::Ordering;
use std::sync::{PoisonError, Weak};
use std::time::Duration;

use redis::ConnectionInfo;
use tollgate_core::{BackendError, FailureKind};

use super::{Cluster, unready};
use crate::connection::{Commands, connect, send, within};
use crate::error::refusal;
use crate::hello;
use crate::link::Origin;
use crate::server;
use crate::slots;
use crate::sync::sleep;

/// The time for which a map is trusted. Nodes report a wrong one themselves, and many do so at once.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

/// The part of the connect deadline that one of several nodes has for its answer, so that a silent one does not keep us from the
/// others.
const PARTS: u32 = 4;

impl Cluster {
    /// Learns the map anew in the background, unless that is under way.
    pub(crate) fn refresh(&self) {
        if self.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let cluster = Weak::clone(&self.myself);
        let _detached = self.runtime.spawn(async move {
            loop {
                let Some(cluster) = cluster.upgrade() else {
                    return;
                };
                let learned = cluster.learn().await.is_ok();
                if learned {
                    cluster.refreshing.store(false, Ordering::Release);
                    return;
                }
                drop(cluster);
                sleep(REFRESH_PAUSE).await;
            }
        });
    }

    /// Asks the connected nodes for the map, then the seeds.
    pub(super) async fn learn(&self) -> Result<(), BackendError> {
        for node in self.nodes() {
            if let (Some(mut connection), Origin::Server(server)) =
                (node.connection(), &node.link.origin)
                && within(
                    self.link.deadline / PARTS,
                    self.learn_from(&mut connection, server),
                )
                .await
                .is_ok()
            {
                return Ok(());
            }
        }
        let mut why = unready("no node was named");
        for seed in &self.seeds {
            let learned = async {
                let mut connection = connect(seed.clone()).await?;
                // A replica knows the cluster as well as a master does.
                match hello::greet(&mut connection, &self.link.client_name, self.link.kind).await {
                    Err(error) if error.kind() != FailureKind::ReadOnly => Err(error),
                    _ => self.learn_from(&mut connection, seed).await,
                }
            };
            match within(self.share_of_seed(), learned).await {
                Ok(()) => return Ok(()),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// The time for one seed. A lone seed has all of it: there is no other that it could keep us from.
    fn share_of_seed(&self) -> Duration {
        let seeds = u32::try_from(self.seeds.len()).unwrap_or(PARTS);
        self.link.deadline / seeds.clamp(1, PARTS)
    }

    async fn learn_from(
        &self,
        connection: &mut Commands,
        server: &ConnectionInfo,
    ) -> Result<(), BackendError> {
        let question = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
        let answer = send(connection, &question).await;
        let answer = answer.map_err(|error| refusal("CLUSTER SLOTS", &error))?;
        let asked = server::address(server).map_or_else(String::new, |(host, _port)| host);
        let ranges = slots::parse(answer, &asked)
            .filter(|ranges| !ranges.is_empty())
            .ok_or_else(|| unready("the node knows no owner of any slot"))?;
        let gone = {
            let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
            slots.replace(ranges, |address, hope| self.make(address, hope))
        };
        for job in gone.iter().flat_map(|node| node.leave()) {
            self.push(job);
        }
        Ok(())
    }
}
