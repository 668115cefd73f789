//! A real Envoy and the gateway process that it asks, seen from their parent, which starts, stops and kills them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_testkit::Envoy;

use crate::Result;
use crate::client::waited_us;
use crate::crew::{Record, record};
use crate::fault::Fault;
use crate::gateway::GatewayOrders;
use crate::gateway::configuration::{of_envoy, of_gateway};
use crate::history::{ENVOY_PROCESS, GATEWAY_PROCESS, Wait};
use crate::population::Population;
use crate::signal::signal;
use crate::wall::now_us;

/// The word that makes this program a gateway; its orders follow.
pub const GATEWAY: &str = "gateway";

/// A busy machine takes a while to start a process.
const PATIENCE: Duration = Duration::from_secs(30);

/// The interval at which Envoy's wait for a processor is read.
const TICK: Duration = Duration::from_millis(10);

/// A real Envoy before a gateway process.
#[derive(Debug)]
pub(crate) struct Front {
    program: PathBuf,
    orders: GatewayOrders,
    population: Population,
    folder: TempDir,
    gateway: Option<Child>,
    /// The records of all gateway processes, living and dead.
    records: Vec<JoinHandle<Record>>,
    envoy: Envoy,
    watch: Watch,
    /// The times in which one of them was away, or stopped.
    away: Vec<Wait>,
    /// The version of the gateway's file.
    version: usize,
}

impl Front {
    /// Starts both, and waits until they answer. The orders are complete but for the file and the address.
    pub(crate) fn start(program: PathBuf, orders: GatewayOrders) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tollgate-").tempdir()?;
        let population = Population::of(orders.seed);
        let orders = GatewayOrders {
            file: folder.path().join("gateway.toml"),
            address: free_address()?,
            ..orders
        };
        write(&orders.file, &of_gateway(&population, 0))?;
        let service = folder.path().join("service");
        let envoy =
            Envoy::start(|port| of_envoy(&population, port, orders.address, &service, orders.flaw));
        let mut front = Self {
            program,
            orders,
            population,
            folder,
            gateway: None,
            records: Vec::new(),
            watch: Watch::start(envoy.process_id()),
            envoy,
            away: Vec::new(),
            version: 0,
        };
        front.start_gateway()?;
        Ok(front)
    }

    /// The address at which clients ask.
    pub(crate) fn address(&self) -> SocketAddr {
        self.envoy.address()
    }

    /// Does a fault to one of both.
    pub(crate) fn suffer(&mut self, fault: Fault) -> Result<()> {
        let from_us = now_us();
        let process = match fault {
            Fault::GatewayDies(time) => {
                self.kill_gateway()?;
                sleep(time);
                self.start_gateway()?;
                GATEWAY_PROCESS
            }
            Fault::GatewayStops(time) => {
                self.signal("-STOP")?;
                sleep(time);
                self.signal("-CONT")?;
                GATEWAY_PROCESS
            }
            Fault::EnvoyDies => {
                self.watch.look_at(0);
                self.envoy.restart();
                self.watch.look_at(self.envoy.process_id());
                ENVOY_PROCESS
            }
            _ => {
                self.version += 1;
                let file = of_gateway(&self.population, self.version);
                return write(&self.orders.file, &file);
            }
        };
        self.away.push(Wait {
            process,
            from_us,
            to_us: now_us(),
        });
        Ok(())
    }

    /// Ends both. Returns the record of all gateway processes, with the times in which one of both was kept waiting.
    pub(crate) fn finish(mut self) -> Result<Record> {
        let ended = self.gateway.take().map(end).transpose();
        let mut all = Record::default();
        for record in self.records.drain(..) {
            let record = record.join().map_err(|_panic| "a record was not kept")?;
            all.rulings.extend(record.rulings);
            all.waits.extend(record.waits);
        }
        all.waits.extend(&self.away);
        all.waits.extend(self.watch.end());
        all.away.append(&mut self.away);
        all.wrongs
            .extend(ended.err().map(|error| error.to_string()));
        Ok(all)
    }

    fn start_gateway(&mut self) -> Result<()> {
        let mut gateway = Command::new(&self.program)
            .arg(GATEWAY)
            .arg(serde_json::to_string(&self.orders)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = gateway.stdout.take().ok_or("a gateway without output")?;
        let record = move || record(GATEWAY_PROCESS, output);
        self.records.push(std::thread::spawn(record));
        let until = Instant::now() + PATIENCE;
        let process = self.gateway.insert(gateway);
        while TcpStream::connect(self.orders.address).is_err() {
            if let Some(status) = process.try_wait()? {
                return Err(format!("the gateway ended with {status}").into());
            }
            if Instant::now() > until {
                return Err(format!("the gateway does not listen within {PATIENCE:?}").into());
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn kill_gateway(&mut self) -> Result<()> {
        if let Some(mut gateway) = self.gateway.take() {
            gateway.kill()?;
            gateway.wait()?;
        }
        Ok(())
    }

    fn signal(&self, name: &str) -> Result<()> {
        signal(self.gateway.as_ref().ok_or("there is no gateway")?, name)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // The folder outlives both.
        let _gone = self.kill_gateway();
        let _kept = self.folder.path();
    }
}

fn free_address() -> Result<SocketAddr> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(free.local_addr()?)
}

/// Ends a process that goes on until its input ends.
fn end(mut process: Child) -> Result<()> {
    drop(process.stdin.take());
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match process.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("a gateway ended with {status}").into()),
            None => sleep(Duration::from_millis(10)),
        }
    }
    process.kill()?;
    process.wait()?;
    Err("a gateway did not end when it was told to".into())
}

/// Replaces a file as a whole.
fn write(path: &Path, text: &str) -> Result<()> {
    let next = path.with_extension("next");
    fs::write(&next, text)?;
    Ok(fs::rename(next, path)?)
}

/// Reads for how long Envoy waits for a processor, as each process of our own does.
#[derive(Debug)]
struct Watch {
    /// The number of Envoy's process; 0 while there is none.
    process: Arc<AtomicU32>,
    is_over: Arc<AtomicBool>,
    waits: Arc<Mutex<Vec<Wait>>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn start(process: u32) -> Self {
        let (process, is_over) = (Arc::new(AtomicU32::new(process)), Arc::default());
        let waits: Arc<Mutex<Vec<Wait>>> = Arc::default();
        let (of, over, kept) = (
            Arc::clone(&process),
            Arc::clone(&is_over),
            Arc::clone(&waits),
        );
        let thread = std::thread::spawn(move || look(&of, &over, &kept));
        Self {
            process,
            is_over,
            waits,
            thread: Some(thread),
        }
    }

    fn look_at(&self, process: u32) {
        self.process.store(process, Ordering::Relaxed);
    }

    fn end(&mut self) -> Vec<Wait> {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
        std::mem::take(&mut self.waits.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn look(of: &AtomicU32, is_over: &AtomicBool, waits: &Mutex<Vec<Wait>>) {
    let mut before = Default::default();
    while !is_over.load(Ordering::Relaxed) {
        sleep(TICK);
        let now = waited_us(&of.load(Ordering::Relaxed).to_string());
        let kept_us = now.longest_since(&before);
        if u128::from(kept_us) > TICK.as_micros() {
            let to_us = now_us();
            waits
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(Wait {
                    process: ENVOY_PROCESS,
                    from_us: to_us.saturating_sub(kept_us),
                    to_us,
                });
        }
        before = now;
    }
}
