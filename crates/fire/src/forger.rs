//! A limiter with a deliberate defect: the script is changed on its way to the server. It shows that the whole chain from
//! clients to checker would notice.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::Result;
use crate::forgery::Forgery;

/// A proxy before a server, on a port of its own, that changes the script while it is loaded.
#[derive(Debug)]
pub(crate) struct Forger {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    forgery: Forgery,
    server: u16,
    /// The names of the true scripts, and of the false ones in their places.
    names: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    is_over: Mutex<bool>,
}

impl Forger {
    pub(crate) fn before(server: u16, forgery: Forgery) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            forgery,
            server,
            names: Mutex::default(),
            is_over: Mutex::new(false),
        });
        let accepting = Arc::clone(&shared);
        let _detached = thread::spawn(move || accept(&listener, &accepting));
        Ok(Self { port, shared })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        *lock(&self.shared.is_over) = true;
        let _woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        if *lock(&shared.is_over) {
            return;
        }
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server)) else {
            continue;
        };
        let ends = [&client, &server].map(TcpStream::try_clone);
        let [Ok(client_end), Ok(server_end)] = ends else {
            continue;
        };
        let shared = Arc::clone(shared);
        let _detached = thread::spawn(move || {
            let _broken = requests(client_end, &server_end, &shared);
            let _closed = server_end.shutdown(Shutdown::Both);
        });
        let _detached = thread::spawn(move || {
            let (mut server, mut client) = (server, client);
            let _broken = std::io::copy(&mut server, &mut client);
            let _closed = client.shutdown(Shutdown::Both);
        });
    }
}

fn requests(client: TcpStream, mut server: &TcpStream, shared: &Shared) -> Result<()> {
    let mut client = BufReader::new(client);
    loop {
        let mut words = command(&mut client)?;
        let is = |position: usize, word: &str| {
            words
                .get(position)
                .is_some_and(|it: &Vec<u8>| it.eq_ignore_ascii_case(word.as_bytes()))
        };
        if is(0, "SCRIPT") && is(1, "LOAD") && words.get(2).is_some_and(|it| is_ours(it)) {
            let script = String::from_utf8_lossy(&words[2]);
            // A composed script leaves its calls to the one with the defect.
            let forged = match script.contains("local RULES = {") {
                true => shared.forgery.forge(&script)?,
                false => "return ''".to_owned(),
            };
            let real = loaded(shared, &words[2])?;
            let name = loaded(shared, forged.as_bytes())?;
            lock(&shared.names).insert(real, name);
            words[2] = forged.into_bytes();
        } else if is(0, "EVALSHA")
            && words.len() > 2
            && let Some(forged) = lock(&shared.names).get(&words[1])
        {
            words[1].clone_from(forged);
        }
        server.write_all(&packed(&words))?;
    }
}

/// Tells the script from the short text with which a new connection tries whether it may load one.
fn is_ours(script: &[u8]) -> bool {
    const CLOCK: &[u8] = b"redis.call('TIME')";
    script.windows(CLOCK.len()).any(|words| words == CLOCK)
}

/// Loads a script and returns its name.
fn loaded(shared: &Shared, script: &[u8]) -> Result<Vec<u8>> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server))?;
    server.write_all(&packed(&[
        b"SCRIPT".to_vec(),
        b"LOAD".to_vec(),
        script.to_vec(),
    ]))?;
    let mut answer = BufReader::new(server);
    let length = number(&mut answer, b'$')?;
    text(&mut answer, length)
}

fn packed(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn command(client: &mut impl BufRead) -> Result<Vec<Vec<u8>>> {
    let words = number(client, b'*')?;
    let word = |_| {
        let length = number(client, b'$')?;
        text(client, length)
    };
    (0..words).map(word).collect()
}

fn number(input: &mut impl BufRead, kind: u8) -> Result<usize> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    let digits = line.strip_prefix(&[kind]).ok_or("not what was expected")?;
    Ok(std::str::from_utf8(digits)?.trim().parse()?)
}

fn text(input: &mut impl Read, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length + 2];
    input.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}
