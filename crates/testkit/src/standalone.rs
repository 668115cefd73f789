//! One server.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{counts, server_binary, shift_clock};

/// The time that a server may take for an answer, the first one after its start too. On a machine busy with a build that is
/// seconds, and under valgrind several times that.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of its own, without persistence. Listens on a port and on a socket in its folder.
#[derive(Debug)]
pub struct Standalone {
    folder: TempDir,
    port: u16,
    options: Vec<String>,
    /// The error of its clock in seconds.
    ahead_s: i64,
    /// Its instructions are counted.
    is_counted: bool,
    process: Option<Child>,
    /// Kills the server when this process dies without a word: the watchdog's input ends then.
    watchdog: Option<Child>,
}

/// Waits for the end of its input, then kills the server and removes its folder.
const WATCHDOG: &str = r#"read -r _; kill -9 "$1"; [ -z "$2" ] || rm -rf "$2""#;

impl Standalone {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If there is no server to start. The message says what to install.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more options: `["--maxmemory", "1mb"]`.
    ///
    /// # Panics
    ///
    /// If there is no server to start. The message says what to install.
    #[must_use]
    pub fn start_with(options: &[&str]) -> Self {
        Self::start_in(folder(), options)
    }

    /// Starts a server whose clock is this many seconds ahead, or behind.
    ///
    /// # Panics
    ///
    /// If there is no server to start, or no way to give it that clock. The message says what to install.
    #[must_use]
    pub fn start_ahead(seconds: i64, options: &[&str]) -> Self {
        Self::start_as(folder(), seconds, options, false)
    }

    /// Starts a server whose instructions are counted, by valgrind's callgrind: it is some fifty times as slow. Its background
    /// work runs once a second, so that almost none of it is counted.
    ///
    /// # Panics
    ///
    /// If there is no server or no valgrind to start. The message says what to install.
    #[must_use]
    pub fn start_counted() -> Self {
        Self::start_as(folder(), 0, &["--hz", "1"], true)
    }

    /// Starts a server in a folder that holds the files of its options.
    pub(crate) fn start_in(folder: TempDir, options: &[&str]) -> Self {
        Self::start_as(folder, 0, options, false)
    }

    fn start_as(folder: TempDir, ahead_s: i64, options: &[&str], is_counted: bool) -> Self {
        let mut server = Self {
            folder,
            port: free_port(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            ahead_s,
            is_counted,
            process: None,
            watchdog: None,
        };
        server.run();
        server
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

    /// The socket that the server listens on as well.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// The server's working folder, where its persistent files would stand.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server's process, to be stopped or inspected. `None` after [`kill`](Self::kill).
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Kills the server as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut watchdog) = self.watchdog.take() {
            // First, so that it never kills a number that belongs to another process by then.
            let _gone = watchdog.kill();
            let _status = watchdog.wait();
        }
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _gone = process.kill();
            let _status = process.wait();
        }
    }

    /// Starts the server again, empty, on its old port.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }

    /// Stops the process, as on a stalled host: connections stay open and nothing answers.
    ///
    /// # Panics
    ///
    /// If there is no process.
    pub fn stall(&self) {
        self.signal("-STOP");
    }

    /// Lets a stalled process go on.
    ///
    /// # Panics
    ///
    /// If there is no process.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    /// The number of instructions since the last call of this method, or since the start.
    ///
    /// # Panics
    ///
    /// If they are not counted.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        assert!(
            self.is_counted,
            "the instructions of this server are not counted"
        );
        let pid = self.pid().expect("a process");
        counts::since_the_last(pid, self.folder())
    }

    fn signal(&self, signal: &str) {
        let pid = self.pid().map(|pid| pid.to_string());
        let status = Command::new("kill").arg(signal).args(pid).status();
        assert!(status.is_ok_and(|status| status.success()), "kill {signal}");
    }

    /// Runs one command, given as its words, and returns the server's answer in the form of the wire.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> String {
        talk(&self.socket(), words).expect("the server answers")
    }

    /// Runs one command on a server that may close the connection instead, as a server does that changes its role.
    ///
    /// # Errors
    ///
    /// If the server closes the connection.
    pub fn try_command(&self, words: &[&str]) -> std::io::Result<String> {
        talk(&self.socket(), words)
    }

    /// Starts the server, and again if it ends by itself: another process may take the port between the check that it is free
    /// and the server's start.
    fn run(&mut self) {
        let started_at = Instant::now();
        let binary = server_binary();
        self.spawn(&binary);
        while !self.answers() {
            let elapsed = started_at.elapsed();
            assert!(
                elapsed < PATIENCE,
                "not within {PATIENCE:?}: {binary} answers"
            );
            if self.has_ended() {
                self.kill();
                self.spawn(&binary);
            }
            sleep(Duration::from_millis(10));
        }
    }

    fn answers(&self) -> bool {
        talk(&self.socket(), &["PING"]).is_ok_and(|answer| answer.starts_with("+PONG"))
    }

    fn has_ended(&mut self) -> bool {
        let process = self.process.as_mut();
        process.is_some_and(|process| process.try_wait().is_ok_and(|status| status.is_some()))
    }

    fn spawn(&mut self, binary: &str) {
        let mut command = if self.is_counted {
            counts::counted(binary, self.folder())
        } else {
            Command::new(binary)
        };
        if self.ahead_s != 0 {
            shift_clock(&mut command, self.ahead_s);
        }
        let process = command
            // A configuration file must come first.
            .args(
                self.options
                    .iter()
                    .take_while(|option| !option.starts_with("--")),
            )
            .args(["--port", &self.port.to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(self.folder.path())
            .arg("--unixsocket")
            .arg(self.socket())
            .args(
                self.options
                    .iter()
                    .skip_while(|option| !option.starts_with("--")),
            )
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = match process {
            Ok(process) => Some(process),
            Err(error) if error.kind() == ErrorKind::NotFound && self.is_counted => {
                panic!(
                    "this test counts the instructions of a server, and there is no `valgrind`: `apt-get install valgrind`"
                )
            }
            Err(error) if error.kind() == ErrorKind::NotFound => panic!(
                "these tests start a real Redis server, and there is no `{binary}`: install Redis 6.2 or later \
                 (`apt-get install redis-server`, `brew install redis`), or name another binary in TOLLGATE_REDIS_SERVER"
            ),
            Err(error) => panic!("cannot start {binary}: {error}"),
        };
        self.watchdog = (self.pid()).map(|pid| watch(&pid.to_string(), self.folder.path()));
    }
}

/// A process that kills this one, or the group behind a `-`, and removes its folder, when the test's own process dies without a
/// word.
pub(crate) fn watch(pid: &str, folder: &Path) -> Child {
    Command::new("sh")
        .args(["-c", WATCHDOG, "watchdog", pid])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell")
}

impl Drop for Standalone {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder that is gone when it is dropped.
pub(crate) fn folder() -> TempDir {
    let mut builder = tempfile::Builder::new();
    builder
        .prefix("tollgate-")
        .tempdir()
        .expect("a temporary folder")
}

/// A port that is free, and whose partner for the other nodes of a cluster is free as well.
pub(crate) fn free_port() -> u16 {
    const BUS: u16 = 10_000;
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let bus = port.checked_add(BUS);
        if bus.is_some_and(|bus| TcpListener::bind((Ipv4Addr::LOCALHOST, bus)).is_ok()) {
            return port;
        }
    }
}

/// Waits until a condition is true.
///
/// # Panics
///
/// If it is not true within the time that a server may take to start.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let started_at = Instant::now();
    while !is_so() {
        assert!(
            started_at.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        sleep(Duration::from_millis(10));
    }
}

fn talk(socket: &Path, words: &[&str]) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut call = format!("*{}\r\n", words.len());
    for word in words {
        call.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(call.as_bytes())?;
    let mut answer = vec![0; 64 * 1024];
    let length = stream.read(&mut answer)?;
    answer.truncate(length);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
