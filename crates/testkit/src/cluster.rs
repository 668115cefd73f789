//! Three masters that share the slots, and any number of replicas.

use std::cell::Cell;

use crate::standalone::until;
use crate::{Network, Standalone};

const SLOTS: usize = 16_384;

/// The time after which a silent node counts as gone. As short as a busy machine allows.
const NODE_TIMEOUT: &str = "1000";

const OPTIONS: [&str; 6] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    NODE_TIMEOUT,
    // So a test that kills a node still has slots to ask.
    "--cluster-require-full-coverage",
    "no",
];

/// A cluster of three masters, which come before their replicas.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Standalone>,
    /// The networks before each node, if there are any: one for clients and replicas, and one for the other nodes.
    networks: Vec<[Network; 2]>,
}

/// Looks at a cluster, ten milliseconds apart at least, after which its nodes are introduced once more: two seconds, and a
/// handshake that a node gives up takes one.
const LOOKS_PER_HANDSHAKE: u32 = 200;

/// The distance of the port for other nodes from the one for clients.
const BUS: u16 = 10_000;

impl Cluster {
    /// Starts three masters.
    ///
    /// # Panics
    ///
    /// If there is no server to start. The message says what to install.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with_replicas(0)
    }

    /// Starts three masters, and one replica for each of the first of them.
    ///
    /// # Panics
    ///
    /// If there is no server to start. The message says what to install.
    #[must_use]
    pub fn start_with_replicas(replicas: usize) -> Self {
        Self::start_as(&vec![0; 3 + replicas], false)
    }

    /// Starts three masters whose clocks are this many seconds ahead.
    ///
    /// # Panics
    ///
    /// If there is no server to start, or no way to give it that clock. The message says what to install.
    #[must_use]
    pub fn start_ahead(seconds: [i64; 3]) -> Self {
        Self::start_as(&seconds, false)
    }

    /// Starts three masters, and a replica for each node beyond them. Networks stand between each node and clients, replicas
    /// and other nodes, and the clocks are this many seconds ahead.
    ///
    /// # Panics
    ///
    /// If there is no server to start. The message says what to install.
    #[must_use]
    pub fn start_behind_networks(ahead_s: &[i64]) -> Self {
        Self::start_as(ahead_s, true)
    }

    fn start_as(ahead_s: &[i64], has_networks: bool) -> Self {
        let cluster = Self::of_strangers(ahead_s, has_networks);
        cluster.introduce();
        for replica in 3..cluster.nodes.len() {
            cluster.replicate(replica);
        }
        cluster
    }

    /// Nodes that have their slots and do not know each other.
    fn of_strangers(ahead_s: &[i64], has_networks: bool) -> Self {
        let (mut nodes, mut networks) = (Vec::new(), Vec::new());
        for &seconds in ahead_s {
            let ways = has_networks.then(|| [(); 2].map(|()| Network::before_nobody()));
            let ports = ways
                .iter()
                .flatten()
                .map(|network| network.port().to_string());
            let ports: Vec<_> = ports.collect();
            let mut options = OPTIONS.to_vec();
            if let [clients, bus] = ports.as_slice() {
                options.extend(["--cluster-announce-ip", "127.0.0.1"]);
                options.extend(["--cluster-announce-port", clients]);
                options.extend(["--cluster-announce-bus-port", bus]);
            }
            let node = Standalone::start_ahead(seconds, &options);
            if let Some([clients, bus]) = &ways {
                clients.lead_to(node.port());
                bus.lead_to(node.port() + BUS);
            }
            nodes.push(node);
            networks.extend(ways);
        }
        let cluster = Self { nodes, networks };
        cluster.share_slots();
        cluster
    }

    /// `redis://127.0.0.1:PORT/` of each node.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        let ports = (0..self.nodes.len()).map(|node| self.port(node));
        ports
            .map(|port| format!("redis://127.0.0.1:{port}/"))
            .collect()
    }

    /// The networks between the nodes and their clients and replicas, in the order of the nodes, if there are networks.
    pub fn networks(&self) -> impl Iterator<Item = &Network> {
        self.networks.iter().map(|[clients, _]| clients)
    }

    /// Isolates a node from all others and from its replica. Clients reach it as before.
    pub fn isolate(&self, node: usize) {
        let name = id(&self.nodes[node]);
        for (other, [clients, bus]) in self.networks.iter().enumerate() {
            if other == node {
                bus.part(&[b"RCmb"]);
                clients.part(&[b"REPLCONF"]);
            } else {
                bus.part(&[name.trim().as_bytes()]);
            }
        }
    }

    /// Lets all nodes reach each other again.
    pub fn join(&self) {
        for network in self.networks.iter().flatten() {
            network.part(&[]);
        }
    }

    fn port(&self, node: usize) -> u16 {
        let networks = self.networks.get(node);
        networks.map_or(self.nodes[node].port(), |[clients, _]| clients.port())
    }

    /// The nodes, masters first.
    #[must_use]
    pub fn nodes(&self) -> &[Standalone] {
        &self.nodes
    }

    /// One node, to be killed or started again.
    #[must_use]
    pub fn node_mut(&mut self, node: usize) -> Option<&mut Standalone> {
        self.nodes.get_mut(node)
    }

    /// The slot of a key, as the cluster sees it.
    ///
    /// # Panics
    ///
    /// If the cluster gives no number.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        let answer = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]);
        answer
            .trim_start_matches(':')
            .trim()
            .parse()
            .expect("a number")
    }

    /// The master that had the slot in the beginning.
    #[must_use]
    pub fn home_of(&self, slot: u16) -> usize {
        let is_after = |number: &usize| number * SLOTS / 3 <= usize::from(slot);
        (0..3).rev().find(is_after).unwrap_or_default()
    }

    /// The master that has the slot: one of the first three, unless another node has taken over.
    #[must_use]
    pub fn owner_of(&self, slot: u16) -> Option<usize> {
        self.nodes
            .iter()
            .position(|node| node.pid().is_some() && owns(node, slot))
    }

    /// Starts to migrate a slot: keys that are gone from the old node are asked for at the new one.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let set = |node: usize, state: &str, other: usize| {
            let id = id(&self.nodes[other]);
            expect_ok(
                &self.nodes[node],
                &["CLUSTER", "SETSLOT", &slot, state, &id],
            );
        };
        set(to, "IMPORTING", from);
        set(from, "MIGRATING", to);
    }

    /// Migrates keys of a slot under migration, at most this many.
    ///
    /// # Panics
    ///
    /// If a key cannot be migrated.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize, most: usize) {
        let source = &self.nodes[from];
        let answer = source.command(&[
            "CLUSTER",
            "GETKEYSINSLOT",
            &slot.to_string(),
            &most.to_string(),
        ]);
        let port = self.nodes[to].port().to_string();
        for key in answer.lines().filter(|line| !line.starts_with(['*', '$'])) {
            let moved =
                source.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000", "REPLACE"]);
            assert!(moved.starts_with('+'), "{moved}");
        }
    }

    /// Ends the migration of a slot whose keys have all gone.
    pub fn end_move(&self, slot: u16, to: usize) {
        let slot = slot.to_string();
        let id = id(&self.nodes[to]);
        // The new owner is told first, so that the slot always has one.
        let is_master = |&node: &usize| {
            let node = &self.nodes[node];
            let role = || node.try_command(&["ROLE"]);
            node.pid().is_some() && role().is_ok_and(|role| role.contains("master"))
        };
        let others = (0..self.nodes.len()).filter(|&node| node != to);
        for node in [to].into_iter().chain(others.filter(is_master)) {
            expect_ok(
                &self.nodes[node],
                &["CLUSTER", "SETSLOT", &slot, "NODE", &id],
            );
        }
    }

    fn share_slots(&self) {
        for (number, node) in self.nodes[..3].iter().enumerate() {
            let (from, to) = (number * SLOTS / 3, (number + 1) * SLOTS / 3);
            let slots: Vec<_> = (from..to).map(|slot| slot.to_string()).collect();
            let words = ["CLUSTER", "ADDSLOTS"].into_iter();
            let words: Vec<_> = words.chain(slots.iter().map(String::as_str)).collect();
            expect_ok(node, &words);
            let epoch = (number + 1).to_string();
            expect_ok(node, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
        }
    }

    fn introduce(&self) {
        let bus = self.networks.first().map(|[_, bus]| bus.port());
        let bus = bus.unwrap_or(self.nodes[0].port() + BUS).to_string();
        let port = self.port(0).to_string();
        let meet = || {
            for node in &self.nodes[1..] {
                expect_ok(node, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        };
        let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
        let is_introduced = |node: &Standalone| {
            let info = node.command(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok")
                && info.contains("cluster_slots_assigned:16384")
                && info.contains(&known)
        };
        let looks = Cell::new(0_u32);
        until("the nodes know each other and all slots", || {
            // A node gives up a handshake that takes longer than a second, and a busy machine may take that long.
            if looks
                .replace(looks.get() + 1)
                .is_multiple_of(LOOKS_PER_HANDSHAKE)
            {
                meet();
            }
            self.nodes.iter().all(is_introduced)
        });
    }

    fn replicate(&self, replica: usize) {
        let (master, replica) = (id(&self.nodes[replica - 3]), &self.nodes[replica]);
        expect_ok(replica, &["CLUSTER", "REPLICATE", &master]);
        until("the replica follows", || {
            let info = replica.command(&["INFO", "replication"]);
            info.contains("master_link_status:up")
        });
    }
}

fn owns(node: &Standalone, slot: u16) -> bool {
    let nodes = node.command(&["CLUSTER", "NODES"]);
    let Some(myself) = nodes.lines().find(|line| line.contains("myself,master")) else {
        return false;
    };
    let mut ranges = myself.split(' ').skip(8);
    ranges.any(|range| {
        let mut ends = range.split('-').map(str::parse::<u16>);
        match (ends.next(), ends.next()) {
            (Some(Ok(first)), Some(Ok(last))) => (first..=last).contains(&slot),
            (Some(Ok(only)), None) => only == slot,
            _ => false,
        }
    })
}

fn id(node: &Standalone) -> String {
    let answer = node.command(&["CLUSTER", "MYID"]);
    answer.lines().nth(1).unwrap_or_default().to_owned()
}

fn expect_ok(node: &Standalone, words: &[&str]) {
    let answer = node.command(words);
    assert!(answer.starts_with("+OK"), "{}: {answer}", words[1]);
}

#[cfg(test)]
mod tests {
    use std::thread::{scope, sleep};
    use std::time::Duration;

    use super::*;

    /// As on a machine that is busy with something else for longer than a handshake may take.
    #[test]
    fn nodes_whose_first_handshake_was_given_up_are_introduced_again() {
        let cluster = Cluster::of_strangers(&[0; 3], false);
        let late = &cluster.nodes[0];

        late.stall();
        scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_secs(3));
                late.go_on();
            });
            cluster.introduce();
        });

        assert_eq!(cluster.owner_of(0), Some(0));
    }
}
