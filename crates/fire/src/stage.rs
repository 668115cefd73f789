//! The servers, and the way in which each fault is done to them.

mod clocks;
mod fleet;
mod homes;
mod level;
mod network;

use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tollgate_testkit::{
    Cluster, Fault as Breakage, Network, Proxy, Sentinels, Standalone, Weather,
};

use self::clocks::Clocks;
use self::network::{ask_in_vain, weather};
use crate::Result;
use crate::client::Place;
use crate::clock;
use crate::fault::{Fault, Topology};
use crate::forger::Forger;
use crate::forgery::Forgery;
use crate::history::{Disturbance, Effect, Home};
use crate::wall::now_us;

/// The length of a fault that has none of its own.
const WHILE: Duration = Duration::from_millis(400);

/// The servers that the clients ask.
#[derive(Debug)]
pub(crate) struct Stage {
    servers: Servers,
    clocks: Clocks,
    /// The last time at which the replica had everything of its master.
    level_us: u64,
}

#[derive(Debug)]
enum Servers {
    Single(Box<SingleServer>),
    Sentinel(Box<Sentinels>),
    Cluster(Cluster),
}

/// clients → network → (forger →) proxy → server.
#[derive(Debug)]
struct SingleServer {
    network: Network,
    /// Held so that it stays alive.
    _forger: Option<Forger>,
    proxy: Proxy,
    server: Standalone,
}

/// Callers of a cluster whose budgets are on the two servers that take each other's place, and all others.
const HOMES: [Home; 2] = [0, 1];

impl Stage {
    /// Starts it, with clocks of this seed, and all of them this many seconds further ahead. One server whose clock cannot be set
    /// shows the time as it is.
    pub(crate) fn start(
        topology: Topology,
        forgery: Option<Forgery>,
        seed: u64,
        ahead_s: i64,
    ) -> Result<Self> {
        let folder = clock::folder();
        if let Some(folder) = &folder {
            clock::forget(folder)?;
        }
        let mut rng = Rng::with_seed(seed);
        let mut ahead = [0; 3].map(|_| rng.i64(0..15));
        if ahead[0] == ahead[1] {
            // The successor should have another clock.
            ahead[1] += 5;
        }
        let [one, other, rest] = ahead.map(|seconds| ahead_s + seconds);
        let (servers, clocks) = match topology {
            Topology::Single => {
                let single = SingleServer::start(forgery)?;
                let first_s = match &folder {
                    Some(folder) => {
                        clock::set(folder, single.server.port(), ahead_s * 1_000_000)?;
                        ahead_s
                    }
                    None => 0,
                };
                let clocks = Clocks::ahead(folder, &[first_s], None);
                (Servers::Single(Box::new(single)), clocks)
            }
            Topology::Sentinel => {
                let ahead = [one, other];
                let sentinels = Sentinels::start_behind_networks(ahead);
                let clocks = Clocks::ahead(folder, &ahead, None);
                (Servers::Sentinel(Box::new(sentinels)), clocks)
            }
            Topology::Cluster => {
                // The slots that migrate under load belong to the nodes in the middle, whose clocks agree.
                let ahead = [one, rest, rest, other];
                let cluster = Cluster::start_behind_networks(&ahead);
                // Nodes notice by their clocks that another has gone, so their clocks are never set.
                (
                    Servers::Cluster(cluster),
                    Clocks::ahead(None, &ahead, Some(HOMES[0])),
                )
            }
        };
        Ok(Self {
            servers,
            clocks,
            level_us: now_us(),
        })
    }

    /// The offsets of the clocks from the beginning on.
    pub(crate) fn first_clocks(&self) -> Vec<Disturbance> {
        match &self.servers {
            Servers::Cluster(_) => {
                let numbered = HOMES.into_iter().enumerate();
                let first = |(number, home)| self.clocks.first(number, Some(home));
                numbered.map(first).collect()
            }
            _ => vec![self.clocks.first(0, None)],
        }
    }

    pub(crate) fn has_clock(&self) -> bool {
        self.clocks.can_be_set()
    }

    pub(crate) fn place(&self) -> Place {
        match &self.servers {
            Servers::Single(single) => {
                Place::Single(format!("redis://127.0.0.1:{}/", single.network.port()))
            }
            Servers::Sentinel(sentinels) => {
                Place::Sentinel(sentinels.master_name().to_owned(), sentinels.urls().into())
            }
            Servers::Cluster(cluster) => Place::Cluster(cluster.urls()),
        }
    }

    /// Does a fault, `meanwhile` something else if it takes time, and then repairs the servers. Its possible effects on the
    /// budgets are added to `done`.
    pub(crate) fn suffer(
        &mut self,
        fault: Fault,
        done: &mut Vec<Disturbance>,
        meanwhile: impl FnOnce(&mut Self, &mut Vec<Disturbance>) -> Result<()>,
    ) -> Result<()> {
        self.look_at_clocks(done);
        self.look_at_replica();
        let (from_us, before) = (now_us(), self.deciding());
        let effect = match fault {
            Fault::ScriptFlush => self.tell_all(&["SCRIPT", "FLUSH"], Effect::Trouble),
            Fault::FlushStorm(time) => {
                let until = Instant::now() + time;
                while Instant::now() < until {
                    self.tell_all(&["SCRIPT", "FLUSH"], Effect::Trouble);
                    sleep(Duration::from_micros(500));
                }
                Effect::Trouble
            }
            Fault::ClientKill => {
                self.tell_all(&["CLIENT", "KILL", "TYPE", "normal"], Effect::Trouble)
            }
            Fault::IdleEnd(silence) => {
                self.tell_all(&["CLIENT", "KILL", "TYPE", "normal"], Effect::Trouble);
                sleep(silence);
                Effect::Trouble
            }
            Fault::Forgotten => {
                self.networks().into_iter().for_each(Network::forget);
                Effect::Trouble
            }
            Fault::FlushAll => {
                let effect = match self.servers {
                    Servers::Single(_) => Effect::Loss,
                    // One node after the other.
                    _ => Effect::MaybeLoss,
                };
                self.tell_all(&["FLUSHALL"], effect)
            }
            Fault::OutOfMemory => {
                self.tell_all(&["CONFIG", "SET", "maxmemory", "1"], Effect::Trouble);
                sleep(WHILE);
                meanwhile(self, done)?;
                self.tell_all(&["CONFIG", "SET", "maxmemory", "0"], Effect::Trouble)
            }
            Fault::Stop(time) => {
                // No other fault meanwhile: no server would answer.
                let master = self.first();
                master.stall();
                sleep(time);
                master.go_on();
                Effect::Trouble
            }
            Fault::Failover => self.fail_over()?,
            Fault::PlannedFailover(time) => {
                // Both masters may admit, until the last client has heard of the new one.
                let effect = self.plan_failover(time)?;
                done.push(self.done_since(effect, from_us));
                effect
            }
            Fault::ReplicaParted(time) => {
                self.part_replicas();
                self.last(time, done, meanwhile)?;
                self.join();
                Effect::Trouble
            }
            Fault::StaleFailover(time) => {
                self.part_replicas();
                sleep(time);
                self.fail_over()?
            }
            Fault::Isolated => {
                // Both masters may admit.
                let effect = self.isolate()?;
                done.push(self.done_since(effect, from_us));
                effect
            }
            Fault::Reshard => self.reshard()?,
            Fault::ClientDies => Effect::Trouble,
            Fault::Kill => self.restart()?,
            Fault::Clock(by_us) => {
                let number = self.deciding().ok_or("no server decides")?;
                let port = self.nodes()[number].port();
                done.extend(self.clocks.step(number, port, by_us)?);
                Effect::Trouble
            }
            _ => {
                let mut slow_reader = None;
                let time = match weather(fault) {
                    Some((weather, time)) => {
                        self.set_weather(weather);
                        time
                    }
                    None if fault == Fault::SlowReader => {
                        slow_reader = Some(ask_in_vain(self.first().port())?);
                        WHILE
                    }
                    None => {
                        self.break_answers(fault)?;
                        WHILE
                    }
                };
                self.last(time, done, meanwhile)?;
                drop(slow_reader);
                self.set_weather(Weather::default());
                if let Servers::Single(single) = &self.servers {
                    single.proxy.fail_with(Breakage::None);
                }
                Effect::Trouble
            }
        };
        done.push(self.done_since(effect, from_us));
        if fault.leaves_in_doubt(before, self.deciding()) {
            self.doubt_clocks(done);
        } else {
            self.look_at_clocks(done);
        }
        Ok(())
    }

    /// Adds to `done` that the deciding clock has changed since the last look.
    pub(crate) fn look_at_clocks(&mut self, done: &mut Vec<Disturbance>) {
        if let Some(number) = self.deciding() {
            done.extend(self.clocks.decides(number));
        }
    }

    /// Adds to `done` that any clock may have decided since the last look, because a fault did not come to its end. Waits a
    /// while for the server that decides now.
    pub(crate) fn doubt_clocks(&mut self, done: &mut Vec<Disturbance>) {
        const PATIENCE: Duration = Duration::from_secs(15);
        let until = Instant::now() + PATIENCE;
        let mut number = self.deciding();
        while number.is_none() && Instant::now() < until {
            sleep(Duration::from_millis(50));
            number = self.deciding();
        }
        done.extend(self.clocks.doubted(number));
    }

    /// The number of the deciding server, of those that take each other's place.
    fn deciding(&self) -> Option<usize> {
        match &self.servers {
            Servers::Single(_) => Some(0),
            Servers::Sentinel(sentinels) => sentinels.named(),
            Servers::Cluster(cluster) => {
                let (master, _) = fleet::pair(cluster);
                fleet::is_master(&cluster.nodes()[master]).then_some(master)
            }
        }
    }

    /// Waits, `meanwhile` something else is done.
    fn last(
        &mut self,
        time: Duration,
        done: &mut Vec<Disturbance>,
        meanwhile: impl FnOnce(&mut Self, &mut Vec<Disturbance>) -> Result<()>,
    ) -> Result<()> {
        sleep(time / 2);
        meanwhile(self, done)?;
        sleep(time / 2);
        Ok(())
    }

    /// Faults of a single server: fleets exist to prevent them.
    fn restart(&mut self) -> Result<Effect> {
        let Servers::Single(single) = &mut self.servers else {
            return Err("a fleet is not restarted".into());
        };
        single.server.restart();
        Ok(Effect::Loss)
    }

    fn set_weather(&self, weather: Weather) {
        for network in self.networks() {
            network.set(weather);
        }
    }

    fn break_answers(&self, fault: Fault) -> Result<()> {
        let Servers::Single(single) = &self.servers else {
            return Err(format!("{fault:?} is not for a fleet").into());
        };
        single.proxy.fail_with(match fault {
            Fault::Truncate => Breakage::Truncate,
            Fault::Drop => Breakage::Drop,
            Fault::HalfClose => Breakage::HalfClose,
            _ => Breakage::Stall,
        });
        Ok(())
    }

    fn networks(&self) -> Vec<&Network> {
        match &self.servers {
            Servers::Single(single) => vec![&single.network],
            Servers::Sentinel(sentinels) => sentinels.networks().iter().collect(),
            Servers::Cluster(cluster) => cluster.networks().collect(),
        }
    }

    fn nodes(&self) -> &[Standalone] {
        match &self.servers {
            Servers::Single(single) => std::slice::from_ref(&single.server),
            Servers::Sentinel(sentinels) => sentinels.servers(),
            Servers::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// A server that is a master.
    fn first(&self) -> &Standalone {
        let nodes = self.nodes();
        let master = nodes.iter().find(|node| fleet::is_master(node));
        master.unwrap_or(&nodes[0])
    }

    fn tell_all(&self, words: &[&str], effect: Effect) -> Effect {
        for node in self.nodes() {
            // A replica refuses to be flushed, and has nothing that its master lacks.
            let _answer = node.try_command(words);
        }
        effect
    }

    /// Repairs the effects of a fault that did not come to its end.
    pub(crate) fn mend(&mut self) -> Result<()> {
        self.set_weather(Weather::default());
        self.join();
        for node in self.nodes() {
            if node.pid().is_some() {
                node.go_on();
            }
        }
        match &mut self.servers {
            Servers::Single(single) => {
                single.proxy.fail_with(Breakage::None);
                if single.server.try_command(&["PING"]).is_err() {
                    single.server.restart();
                }
            }
            _ => self.mend_fleet()?,
        }
        self.tell_all(&["CONFIG", "SET", "maxmemory", "0"], Effect::Trouble);
        Ok(())
    }

    /// The names of keys without an expiry.
    pub(crate) fn immortal_keys(&self) -> Vec<String> {
        let mut immortal = Vec::new();
        for node in self.nodes() {
            let answer = node.command(&["KEYS", "tollgate:*"]);
            for key in answer.lines().filter(|line| line.starts_with("tollgate:")) {
                if node.command(&["PTTL", key]).starts_with(":-1") {
                    immortal.push(key.to_owned());
                }
            }
        }
        immortal
    }
}

impl SingleServer {
    fn start(forgery: Option<Forgery>) -> Result<Self> {
        let server = Standalone::start();
        let proxy = Proxy::before(server.port());
        let forger = forgery.map(|forgery| Forger::before(proxy.port(), forgery));
        let forger = forger.transpose()?;
        let door = forger.as_ref().map_or(proxy.port(), Forger::port);
        Ok(Self {
            network: Network::before(door),
            _forger: forger,
            proxy,
            server,
        })
    }
}
