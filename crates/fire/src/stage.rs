//! The servers, and how each fault is done to them.

mod fleet;

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use tollgate_testkit::{
    Cluster, Fault as Breakage, Network, Proxy, Sentinels, Standalone, Weather,
};

use crate::Result;
use crate::client::{Place, now_us};
use crate::clock;
use crate::fault::{Fault, Topology};
use crate::forger::{Forger, Forgery};
use crate::history::{Disturbance, Effect};

/// How long a fault lasts that has no length of its own.
const WHILE: Duration = Duration::from_millis(400);

/// What the clients ask.
#[derive(Debug)]
pub(crate) enum Stage {
    Single(Box<Single>),
    Sentinel(Box<Sentinels>),
    Cluster(Cluster),
}

/// clients → network → (forger →) proxy → server.
#[derive(Debug)]
pub(crate) struct Single {
    network: Network,
    /// Stands there for as long as this does.
    _forger: Option<Forger>,
    proxy: Proxy,
    server: Standalone,
    clock: Option<PathBuf>,
    ahead_us: i64,
}

impl Stage {
    pub(crate) fn start(topology: Topology, forgery: Option<Forgery>) -> Result<Self> {
        if let Some(file) = clock::file() {
            // What an earlier run has left.
            clock::set(&file, 0)?;
        }
        Ok(match topology {
            Topology::Single => {
                let server = Standalone::start();
                let proxy = Proxy::before(server.port());
                let forger = forgery.map(|forgery| Forger::before(proxy.port(), forgery));
                let forger = forger.transpose()?;
                let door = forger.as_ref().map_or(proxy.port(), Forger::port);
                Self::Single(Box::new(Single {
                    network: Network::before(door),
                    _forger: forger,
                    proxy,
                    server,
                    clock: clock::file(),
                    ahead_us: 0,
                }))
            }
            Topology::Sentinel => Self::Sentinel(Box::new(Sentinels::start_behind_networks())),
            Topology::Cluster => Self::Cluster(Cluster::start_behind_networks(1)),
        })
    }

    pub(crate) fn has_clock(&self) -> bool {
        matches!(self, Self::Single(single) if single.clock.is_some())
    }

    pub(crate) fn place(&self) -> Place {
        match self {
            Self::Single(single) => {
                Place::Single(format!("redis://127.0.0.1:{}/", single.network.port()))
            }
            Self::Sentinel(sentinels) => {
                Place::Sentinel(sentinels.master_name().to_owned(), sentinels.urls().into())
            }
            Self::Cluster(cluster) => Place::Cluster(cluster.urls()),
        }
    }

    /// Does it, `meanwhile` something else if it takes its time, and puts things right again. What it may have done to
    /// the budgets is added to `done`.
    pub(crate) fn suffer(
        &mut self,
        fault: Fault,
        done: &mut Vec<Disturbance>,
        meanwhile: impl FnOnce(&mut Self, &mut Vec<Disturbance>) -> Result<()>,
    ) -> Result<()> {
        let from_us = now_us();
        let effect = match fault {
            Fault::ScriptFlush => self.tell_all(&["SCRIPT", "FLUSH"], Effect::Trouble),
            Fault::ClientKill => {
                self.tell_all(&["CLIENT", "KILL", "TYPE", "normal"], Effect::Trouble)
            }
            Fault::FlushAll => {
                let effect = match self {
                    Self::Single(_) => Effect::Loss,
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
                // Nothing else can be done meanwhile: nobody would answer.
                let master = self.first();
                master.stall();
                sleep(time);
                master.go_on();
                Effect::Trouble
            }
            Fault::Failover => self.fail_over()?,
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
                done.push(Disturbance {
                    from_us,
                    to_us: now_us(),
                    effect,
                });
                effect
            }
            Fault::Reshard => self.reshard()?,
            Fault::ClientDies => Effect::Trouble,
            Fault::Kill | Fault::Clock(_) => self.suffer_alone(fault)?,
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
                if let Self::Single(single) = self {
                    single.proxy.fail_with(Breakage::None);
                }
                Effect::Trouble
            }
        };
        done.push(Disturbance {
            from_us,
            to_us: now_us(),
            effect,
        });
        Ok(())
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

    /// What only one server can suffer: everything that a fleet is there to prevent.
    fn suffer_alone(&mut self, fault: Fault) -> Result<Effect> {
        let Self::Single(single) = self else {
            return Err(format!("{fault:?} is not for a fleet").into());
        };
        let Fault::Clock(by_us) = fault else {
            single.server.restart();
            return Ok(Effect::Loss);
        };
        single.ahead_us += by_us;
        if let Some(file) = &single.clock {
            clock::set(file, single.ahead_us)?;
        }
        Ok(Effect::Clock(single.ahead_us))
    }

    fn set_weather(&self, weather: Weather) {
        for network in self.networks() {
            network.set(weather);
        }
    }

    fn break_answers(&self, fault: Fault) -> Result<()> {
        let Self::Single(single) = self else {
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
        match self {
            Self::Single(single) => vec![&single.network],
            Self::Sentinel(sentinels) => sentinels.networks().iter().collect(),
            Self::Cluster(cluster) => cluster.networks().collect(),
        }
    }

    fn nodes(&self) -> &[Standalone] {
        match self {
            Self::Single(single) => std::slice::from_ref(&single.server),
            Self::Sentinel(sentinels) => sentinels.servers(),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// One that is a master.
    fn first(&self) -> &Standalone {
        let nodes = self.nodes();
        let master = nodes.iter().find(|node| fleet::is_master(node));
        master.unwrap_or(&nodes[0])
    }

    fn tell_all(&self, words: &[&str], effect: Effect) -> Effect {
        for node in self.nodes() {
            // A replica refuses to be flushed, and has nothing that its master has not.
            let _answer = node.try_command(words);
        }
        effect
    }

    /// Puts right whatever a fault has left that did not come to its end.
    pub(crate) fn mend(&mut self) -> Result<()> {
        self.set_weather(Weather::default());
        self.join();
        for node in self.nodes() {
            if node.pid().is_some() {
                node.go_on();
            }
        }
        match self {
            Self::Single(single) => {
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

    /// The names of keys that would stay for ever.
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

/// What the way is like under a fault of the network, and for how long.
fn weather(fault: Fault) -> Option<(Weather, Duration)> {
    let fine = Weather::default();
    Some(match fault {
        Fault::Latency(delay) => (Weather { delay, ..fine }, WHILE + delay * 2),
        Fault::Narrow(bytes) => {
            let bytes_per_second = Some(bytes);
            let narrow = Weather {
                bytes_per_second,
                ..fine
            };
            (narrow, WHILE)
        }
        Fault::Lossy(loss_percent) => (
            Weather {
                loss_percent,
                ..fine
            },
            WHILE * 3,
        ),
        Fault::Partition(time) => {
            let is_parted = true;
            (Weather { is_parted, ..fine }, time)
        }
        Fault::Deaf(time) => {
            let is_deaf = true;
            (Weather { is_deaf, ..fine }, time)
        }
        _ => return None,
    })
}

/// Asks for some twenty megabytes, and reads none of it for as long as the connection is kept.
fn ask_in_vain(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_write_timeout(Some(WHILE))?;
    stream.write_all(&b"CONFIG GET *\r\n".repeat(2_000))?;
    Ok(stream)
}
