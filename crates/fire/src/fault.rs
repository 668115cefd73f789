//! The faults of servers, network and clients, and their schedules from a seed.

use std::time::Duration;

use fastrand::Rng;

/// A fault of the servers, the network or the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL to the server, and an empty one in its place.
    Kill,
    /// SIGSTOP to the server for a while.
    Stop(Duration),
    /// `SCRIPT FLUSH`.
    ScriptFlush,
    /// `SCRIPT FLUSH` over a thousand times a second for a while.
    FlushStorm(Duration),
    /// `FLUSHALL`.
    FlushAll,
    /// `CLIENT KILL` of all clients.
    ClientKill,
    /// `CLIENT KILL` while a client is idle, which asks a while later.
    IdleEnd(Duration),
    /// Connections are forgotten on the way while a client is idle. New ones work.
    Forgotten,
    /// All bytes take that long, each way.
    Latency(Duration),
    /// That many bytes in a second, each way.
    Narrow(u32),
    /// This percentage of packets is lost, and sent again after a while.
    Lossy(u8),
    /// Nothing passes between clients and servers for a while, and then all bytes arrive.
    Partition(Duration),
    /// Answers are not read for a while, so that all calls run and all answers come late.
    Deaf(Duration),
    /// Another client asks for a lot and does not read it, so that it piles up in the server.
    SlowReader,
    /// Half of an answer comes, and the connection is closed.
    Truncate,
    /// An answer does not come, and the connection is closed.
    Drop,
    /// The server's side closes its half of the connection, and still reads.
    HalfClose,
    /// Answers vanish, and the connection stays open.
    Stall,
    /// The clock of the deciding server is set, by this many µs.
    Clock(i64),
    /// The server has no memory left.
    OutOfMemory,
    /// The master of a fleet is killed, another takes over, and the old one comes back as its replica.
    Failover,
    /// The Sentinels are told to replace the master, which still takes writes for a while.
    PlannedFailover(Duration),
    /// Replicas are cut off from their masters for a while.
    ReplicaParted(Duration),
    /// Replicas are cut off, and then the master is killed: its successor is that old.
    StaleFailover(Duration),
    /// A master is isolated from the rest of its fleet, but not from clients, until another has taken over.
    Isolated,
    /// Slots migrate to another node under load.
    Reshard,
    /// SIGKILL to a client in the middle of its work.
    ClientDies,
    /// SIGSTOP to a client that holds places, until its lease has ended and others hold them.
    HolderStops,
    /// SIGKILL to the gateway process that Envoy asks, and another after a while.
    GatewayDies(Duration),
    /// SIGSTOP to the gateway process for a while.
    GatewayStops(Duration),
    /// The gateway's file is replaced, by one with the same policies and another one.
    GatewayReloads,
    /// SIGKILL to Envoy, and another one in its place.
    EnvoyDies,
}

/// The kinds of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server behind a network.
    Single,
    /// A master, its replica and three Sentinels.
    Sentinel,
    /// Three masters and a replica.
    Cluster,
}

impl Topology {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Single, Self::Sentinel, Self::Cluster];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
        }
    }

    /// The faults of one round: each once, in an order from the seed.
    #[must_use]
    pub fn round(
        self,
        rng: &mut Rng,
        has_clock: bool,
        has_envoy: bool,
        has_holders: bool,
    ) -> Vec<Fault> {
        let mut faults = vec![
            Fault::ScriptFlush,
            Fault::ClientKill,
            Fault::ClientDies,
            Fault::FlushAll,
            Fault::SlowReader,
            Fault::Forgotten,
            Fault::IdleEnd(millis(rng, 20..200)),
            Fault::Latency(millis(rng, 1..300)),
            Fault::Narrow(rng.u32(2_000..40_000)),
            Fault::Lossy(rng.u8(1..40)),
            Fault::Partition(millis(rng, 100..2_500)),
            Fault::Deaf(millis(rng, 100..2_500)),
            Fault::FlushStorm(millis(rng, 100..2_000)),
        ];
        match self {
            Self::Single => {
                faults.extend([
                    Fault::Kill,
                    Fault::OutOfMemory,
                    Fault::Truncate,
                    Fault::Drop,
                    Fault::HalfClose,
                    Fault::Stall,
                    Fault::Stop(millis(rng, 100..5_000)),
                ]);
            }
            Self::Sentinel => faults.extend([
                Fault::Failover,
                Fault::PlannedFailover(millis(rng, 1_500..4_000)),
                Fault::ReplicaParted(millis(rng, 100..2_500)),
                Fault::StaleFailover(millis(rng, 100..1_500)),
                Fault::Isolated,
                // Shorter than the time after which the Sentinels act: that is a fault of its own.
                Fault::Stop(millis(rng, 100..250)),
            ]),
            Self::Cluster => faults.extend([
                Fault::Failover,
                Fault::ReplicaParted(millis(rng, 100..2_500)),
                Fault::StaleFailover(millis(rng, 100..1_500)),
                Fault::Isolated,
                Fault::Reshard,
                Fault::Stop(millis(rng, 100..400)),
            ]),
        }
        if has_clock {
            let forward = rng.i64(100_000..20_000_000);
            faults.extend([Fault::Clock(forward), Fault::Clock(-forward / 3)]);
        }
        if has_holders {
            faults.push(Fault::HolderStops);
        }
        if has_envoy {
            faults.extend([
                Fault::GatewayDies(millis(rng, 0..800)),
                Fault::GatewayStops(millis(rng, 100..2_500)),
                Fault::GatewayReloads,
                Fault::EnvoyDies,
            ]);
        }
        rng.shuffle(&mut faults);
        faults
    }
}

impl Fault {
    /// Says whether it is over at once, so that it can be done in the middle of another.
    #[must_use]
    pub fn is_instant(self) -> bool {
        matches!(
            self,
            Self::ScriptFlush
                | Self::FlushAll
                | Self::ClientKill
                | Self::ClientDies
                | Self::GatewayReloads
        )
    }

    /// Says whether it is judged by what an idle client is answered, and not by the history of all others.
    #[must_use]
    pub fn is_of_idle_client(self) -> bool {
        matches!(self, Self::IdleEnd(_) | Self::Forgotten)
    }

    /// Says whether it is one of the gateway, and not of the servers.
    #[must_use]
    pub fn is_of_gateway(self) -> bool {
        matches!(
            self,
            Self::GatewayDies(_) | Self::GatewayStops(_) | Self::GatewayReloads | Self::EnvoyDies
        )
    }

    /// Says whether another server decides when it is over.
    #[must_use]
    pub fn replaces_master(self) -> bool {
        matches!(
            self,
            Self::Failover | Self::PlannedFailover(_) | Self::StaleFailover(_) | Self::Isolated
        )
    }

    /// Says that more servers may have decided than the one known `before` and the one known `after`. A fleet on a busy machine
    /// may replace its master twice, and then the other has decided for a while.
    #[must_use]
    pub fn leaves_in_doubt(self, before: Option<usize>, after: Option<usize>) -> bool {
        self.replaces_master() && (after.is_none() || after == before)
    }

    /// The name, without figures.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill and restart",
            Self::Stop(_) => "stop",
            Self::ScriptFlush => "SCRIPT FLUSH",
            Self::FlushStorm(_) => "SCRIPT FLUSH again and again",
            Self::FlushAll => "FLUSHALL",
            Self::ClientKill => "CLIENT KILL",
            Self::IdleEnd(_) => "idle connections closed",
            Self::Forgotten => "idle connections forgotten",
            Self::Latency(_) => "latency",
            Self::Narrow(_) => "bandwidth",
            Self::Lossy(_) => "packet loss",
            Self::Partition(_) => "partition",
            Self::Deaf(_) => "answers not read",
            Self::SlowReader => "slow reader",
            Self::Truncate => "truncated answers",
            Self::Drop => "dropped answers",
            Self::HalfClose => "half-closed connections",
            Self::Stall => "answers that vanish",
            Self::Clock(_) => "clock step",
            Self::OutOfMemory => "no memory",
            Self::Failover => "failover",
            Self::PlannedFailover(_) => "planned failover",
            Self::ReplicaParted(_) => "replica parted",
            Self::StaleFailover(_) => "failover to a stale replica",
            Self::Isolated => "master isolated",
            Self::Reshard => "resharding",
            Self::ClientDies => "client killed",
            Self::HolderStops => "holder stopped",
            Self::GatewayDies(_) => "gateway killed",
            Self::GatewayStops(_) => "gateway stopped",
            Self::GatewayReloads => "gateway's file replaced",
            Self::EnvoyDies => "Envoy killed",
        }
    }
}

fn millis(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_that_was_replaced_twice_leaves_in_doubt_who_decided() {
        let time = Duration::from_secs(1);
        let replacing = [
            Fault::Failover,
            Fault::PlannedFailover(time),
            Fault::StaleFailover(time),
            Fault::Isolated,
        ];
        for fault in replacing {
            // Replaced once, as it should be.
            assert!(!fault.leaves_in_doubt(Some(0), Some(1)), "{fault:?}");
            assert!(!fault.leaves_in_doubt(Some(1), Some(0)), "{fault:?}");
            // Twice, or an unknown number of times.
            assert!(fault.leaves_in_doubt(Some(0), Some(0)), "{fault:?}");
            assert!(fault.leaves_in_doubt(Some(1), None), "{fault:?}");
            assert!(fault.leaves_in_doubt(None, None), "{fault:?}");
        }
        // The server that decides goes on.
        assert!(!Fault::Kill.leaves_in_doubt(Some(0), Some(0)));
        assert!(!Fault::ReplicaParted(time).leaves_in_doubt(Some(0), Some(0)));
    }
}
