//! A network that is slow, narrow or gone, in both directions. It loses nothing that it was given: what cannot pass waits,
//! as it does where lost packets are sent again. [`Proxy`](crate::Proxy) breaks answers instead.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long what cannot pass waits until it tries again.
const PATIENCE: Duration = Duration::from_millis(5);

/// What the way is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// How long everything takes, each way.
    pub delay: Duration,
    /// How much passes in a second, each way and on each connection. `None` for as much as there is.
    pub bytes_per_second: Option<u32>,
    /// Whether nothing passes at all.
    pub is_parted: bool,
}

/// Stands before a server, on a port of its own.
#[derive(Debug)]
pub struct Network {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    weather: Mutex<Weather>,
    is_over: Mutex<bool>,
}

impl Network {
    /// Stands before the server on this port of 127.0.0.1.
    ///
    /// # Panics
    ///
    /// If no port is free.
    #[must_use]
    pub fn before(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        let _detached = thread::spawn(move || accept(&listener, server, &accepting));
        Self { port, shared }
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What the way is like from now on.
    pub fn set(&self, weather: Weather) {
        *lock(&self.shared.weather) = weather;
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        *lock(&self.shared.is_over) = true;
        // Wakes whoever accepts, to see that it is over.
        let _woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, server: u16, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        if *lock(&shared.is_over) {
            return;
        }
        // Without a server the client sees its connection closed.
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else {
            continue;
        };
        let ends = [&client, &server].map(|end| {
            // Delays are ours to make.
            end.set_nodelay(true).and_then(|()| end.try_clone())
        });
        if let [Ok(client_end), Ok(server_end)] = ends {
            let (there, back) = (Arc::clone(shared), Arc::clone(shared));
            let _detached = thread::spawn(move || carry(client_end, server, &there));
            let _detached = thread::spawn(move || carry(server_end, client, &back));
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, shared: &Shared) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let came_at = Instant::now();
        wait(length, came_at, shared);
        if *lock(&shared.is_over) || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _closed = to.shutdown(Shutdown::Both);
    let _closed = from.shutdown(Shutdown::Both);
}

fn wait(length: usize, came_at: Instant, shared: &Shared) {
    loop {
        let weather = *lock(&shared.weather);
        let sent_for = weather.bytes_per_second.map_or(Duration::ZERO, |bytes| {
            Duration::from_secs(1) * u32::try_from(length).unwrap_or(u32::MAX) / bytes.max(1)
        });
        let due_at = came_at + weather.delay + sent_for;
        let left = due_at.saturating_duration_since(Instant::now());
        if *lock(&shared.is_over) || (left.is_zero() && !weather.is_parted) {
            return;
        }
        // The weather may change meanwhile.
        thread::sleep(if left.is_zero() {
            PATIENCE
        } else {
            left.min(PATIENCE)
        });
    }
}
