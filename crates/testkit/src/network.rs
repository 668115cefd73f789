//! A network that is slow, narrow, lossy or gone. It loses no bytes: whatever cannot pass waits, as on a network that resends
//! lost packets. [`Proxy`](crate::Proxy) breaks answers instead.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The pause before blocked bytes are tried again.
const PATIENCE: Duration = Duration::from_millis(5);

/// The time until lost bytes are sent again: the least that Linux waits. It doubles each time.
const RESENT_AFTER: Duration = Duration::from_millis(200);

/// The names of replicas and Sentinels. The network of the clients must not break the fleet apart.
const INNER: [&[u8]; 2] = [b"REPLCONF", b"sentinel-"];

/// The number of first bytes of a connection that identify its client: a replica says that it is one, and a node of a cluster
/// gives its name.
const INTRODUCTION: usize = 256;

/// The state of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// The delay, each way.
    pub delay: Duration,
    /// The bytes per second, each way and on each connection. `None` for no bound.
    pub bytes_per_second: Option<u32>,
    /// The percentage that is lost and has to be sent again.
    pub loss_percent: u8,
    /// True if nothing passes.
    pub is_parted: bool,
    /// True if answers are not read: they pile up on their way, from there back to the server.
    pub is_deaf: bool,
}

/// A network before a server, on a port of its own.
#[derive(Debug)]
pub struct Network {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    server: AtomicU16,
    weather: Mutex<Weather>,
    /// The names of the nodes for which nothing passes.
    parted: Mutex<Vec<Vec<u8>>>,
    /// The number of times at which all connections of clients that were open then have been forgotten.
    forgotten: AtomicU64,
    is_over: AtomicBool,
}

impl Network {
    /// Starts before the server on this port of 127.0.0.1.
    ///
    /// # Panics
    ///
    /// If no port is free.
    #[must_use]
    pub fn before(server: u16) -> Self {
        let network = Self::before_nobody();
        network.lead_to(server);
        network
    }

    /// Starts before there is a server, for one that must be told its address.
    ///
    /// # Panics
    ///
    /// If no port is free.
    #[must_use]
    pub fn before_nobody() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        let _detached = thread::spawn(move || accept(&listener, &accepting));
        Self { port, shared }
    }

    /// Leads to the server on this port from now on.
    pub fn lead_to(&self, server: u16) {
        self.shared.server.store(server, Ordering::Release);
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the state of the clients' network.
    pub fn set(&self, weather: Weather) {
        *lock(&self.shared.weather) = weather;
    }

    /// Blocks connections whose first bytes hold one of these names; their bytes wait. With no name, all connections share the
    /// state of the clients' network again.
    pub fn part(&self, introductions: &[&[u8]]) {
        let introductions = introductions.iter().map(|it| it.to_vec());
        *lock(&self.shared.parted) = introductions.collect();
    }

    /// Forgets every connection of a client, as a firewall does: its bytes vanish, and it stays open. New connections work.
    pub fn forget(&self) {
        self.shared.forgotten.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // Wakes the accepting thread, which sees that it is over.
        let _woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        let server = shared.server.load(Ordering::Acquire);
        // Without a server the client sees its connection closed.
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else {
            continue;
        };
        let ends = [&client, &server].map(|end| {
            // Delays are ours to make.
            end.set_nodelay(true).and_then(|()| end.try_clone())
        });
        if let [Ok(client_end), Ok(server_end)] = ends {
            let there = Way {
                shared: Arc::clone(shared),
                introduction: Arc::default(),
                opened_at: shared.forgotten.load(Ordering::Acquire),
                is_answers: false,
            };
            let back = Way {
                is_answers: true,
                ..there.clone()
            };
            let _detached = thread::spawn(move || there.carry(client_end, server));
            let _detached = thread::spawn(move || back.carry(server_end, client));
        }
    }
}

/// One direction of a connection.
#[derive(Clone)]
struct Way {
    shared: Arc<Shared>,
    introduction: Arc<Mutex<Vec<u8>>>,
    opened_at: u64,
    is_answers: bool,
}

impl Way {
    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let came_at = Instant::now();
            if !self.is_answers {
                self.introduce(&buffer[..length]);
            }
            self.wait(length, came_at);
            if self.is_forgotten() {
                continue;
            }
            if self.is_over() || to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _closed = to.shutdown(Shutdown::Both);
        let _closed = from.shutdown(Shutdown::Both);
    }

    fn introduce(&self, bytes: &[u8]) {
        let mut introduction = lock(&self.introduction);
        let room = INTRODUCTION.saturating_sub(introduction.len());
        introduction.extend(bytes.iter().take(room));
    }

    fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Acquire)
    }

    fn wait(&self, length: usize, came_at: Instant) {
        let mut resent = None;
        loop {
            let weather = self.weather();
            let resent = *resent.get_or_insert_with(|| resent_after(weather.loss_percent));
            let sent_for = weather.bytes_per_second.map_or(Duration::ZERO, |bytes| {
                Duration::from_secs(1) * u32::try_from(length).unwrap_or(u32::MAX) / bytes.max(1)
            });
            let due_at = came_at + weather.delay + sent_for + resent;
            let left = due_at.saturating_duration_since(Instant::now());
            let is_held =
                weather.is_parted || weather.is_deaf && self.is_answers || self.is_parted();
            if self.is_over() || (left.is_zero() && !is_held) {
                return;
            }
            // The state may change meanwhile.
            thread::sleep(if left.is_zero() {
                PATIENCE
            } else {
                left.min(PATIENCE)
            });
        }
    }

    fn is_inner(&self) -> bool {
        INNER.iter().any(|name| self.says(name))
    }

    fn is_forgotten(&self) -> bool {
        self.opened_at < self.shared.forgotten.load(Ordering::Acquire) && !self.is_inner()
    }

    fn weather(&self) -> Weather {
        if self.is_inner() {
            return Weather::default();
        }
        *lock(&self.shared.weather)
    }

    fn is_parted(&self) -> bool {
        let parted = lock(&self.shared.parted);
        parted.iter().any(|name| self.says(name))
    }

    fn says(&self, name: &[u8]) -> bool {
        let introduction = lock(&self.introduction);
        let mut places = introduction.windows(name.len().max(1));
        places.any(|place| place == name)
    }
}

/// The time until bytes arrive, at this rate of loss.
fn resent_after(loss_percent: u8) -> Duration {
    let mut after = Duration::ZERO;
    let mut next = RESENT_AFTER;
    while fastrand::u8(0..100) < loss_percent.min(90) {
        after += next;
        next *= 2;
    }
    after
}
