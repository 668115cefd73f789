//! A network that fails as it is told.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The fate of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// They arrive.
    None,
    /// They arrive late by this much, each by itself: a late one delays no other.
    Delay(Duration),
    /// They vanish, and so does everything after them, while the connection stays open.
    Stall,
    /// Half of the next one arrives, and the connection is closed.
    Truncate,
    /// The next one does not arrive, and the connection is closed.
    Drop,
    /// The server's side closes its half of the connection, and still reads.
    HalfClose,
}

/// A proxy before a server, on a port of its own.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    fault: Mutex<Fault>,
    /// Both ends of every connection, to be cut.
    open: Mutex<Vec<TcpStream>>,
    /// The number of times at which all connections that were open then have been forgotten.
    forgotten: AtomicU64,
    over: Mutex<bool>,
}

impl Proxy {
    /// Starts before the server on this port of 127.0.0.1.
    ///
    /// # Panics
    ///
    /// If no port is free.
    #[must_use]
    pub fn before(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            fault: Mutex::new(Fault::None),
            open: Mutex::default(),
            forgotten: AtomicU64::new(0),
            over: Mutex::new(false),
        });
        let accepting = Arc::clone(&shared);
        let _detached = thread::spawn(move || accept(&listener, server, &accepting));
        Self { port, shared }
    }

    /// `redis://127.0.0.1:PORT/`
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the fate of answers, on every connection.
    pub fn fail_with(&self, fault: Fault) {
        *lock(&self.shared.fault) = fault;
    }

    /// Forgets every connection, as a firewall does: its answers vanish, and it stays open. New connections work.
    pub fn forget(&self) {
        self.shared.forgotten.fetch_add(1, Ordering::Relaxed);
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        for stream in lock(&self.shared.open).drain(..) {
            // It may be closed already.
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        *lock(&self.shared.over) = true;
        self.cut();
        // Wakes the accepting thread, which sees that it is over.
        let _woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, server: u16, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        if *lock(&shared.over) {
            return;
        }
        // Without a server the client sees its connection closed.
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else {
            continue;
        };
        // Delays are ours to make.
        let ends =
            [&client, &server].map(|end| end.set_nodelay(true).and_then(|()| end.try_clone()));
        let [Ok(client_end), Ok(server_end)] = ends else {
            continue;
        };
        let kept = [&client, &server].map(TcpStream::try_clone);
        lock(&shared.open).extend(kept.into_iter().flatten());
        let _there = thread::spawn(move || requests(client_end, server_end));
        let shared = Arc::clone(shared);
        let _back = thread::spawn(move || answers(server, &client, &shared));
    }
}

fn requests(mut client: TcpStream, mut server: TcpStream) {
    // Either end may close at any time: that is the proxy's purpose.
    let _copied = std::io::copy(&mut client, &mut server);
    let _closed = server.shutdown(Shutdown::Write);
}

fn answers(mut server: TcpStream, client: &TcpStream, shared: &Shared) {
    let mut buffer = vec![0; 64 * 1024];
    let mut stalled = false;
    let opened_at = shared.forgotten.load(Ordering::Relaxed);
    let Ok(end) = client.try_clone() else {
        return;
    };
    let (sent, on_their_way) = mpsc::channel();
    let arriving = thread::spawn(move || arrive(&on_their_way, end));
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        let answer = &buffer[..length];
        let fault = *lock(&shared.fault);
        stalled |= fault == Fault::Stall;
        stalled |= opened_at < shared.forgotten.load(Ordering::Relaxed);
        let whole = match fault {
            _ if stalled => continue,
            Fault::Truncate => &answer[..length / 2],
            Fault::Drop | Fault::HalfClose => &[],
            Fault::None | Fault::Stall | Fault::Delay(_) => answer,
        };
        let due_at = match fault {
            Fault::Delay(by) => Instant::now() + by,
            _ => Instant::now(),
        };
        let is_sent = sent.send((due_at, whole.to_vec())).is_ok();
        match fault {
            Fault::HalfClose => {
                let _closed = client.shutdown(Shutdown::Write);
            }
            Fault::Truncate | Fault::Drop => break,
            _ if !is_sent => break,
            _ => {}
        }
    }
    drop(sent);
    let _arrived = arriving.join();
    let _closed = client.shutdown(Shutdown::Both);
    let _closed = server.shutdown(Shutdown::Both);
}

/// Writes answers when they are due, in their order.
fn arrive(on_their_way: &mpsc::Receiver<(Instant, Vec<u8>)>, mut client: TcpStream) {
    for (due_at, answer) in on_their_way {
        thread::sleep(due_at.saturating_duration_since(Instant::now()));
        if client.write_all(&answer).is_err() {
            return;
        }
    }
}
