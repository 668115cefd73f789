//! A web server that a test starts: alone, on a port of 127.0.0.1, with a folder of its own.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::standalone::watch;

/// On a machine busy with a build that is seconds.
const STARTUP: Duration = Duration::from_secs(60);

/// The process of a web server.
#[derive(Debug)]
pub(crate) struct WebServer {
    address: SocketAddr,
    process: Child,
    /// Kills the server when this process dies without a word: the watchdog's input ends then.
    watchdog: Child,
    folder: TempDir,
}

impl WebServer {
    /// Starts the server that `command` makes for a folder and an address, and waits until it listens there.
    ///
    /// # Panics
    ///
    /// If there is no such program, with the sentence that says what to install; or if the program does not listen, with its words.
    pub(crate) fn start(install: &str, command: impl Fn(&Path, SocketAddr) -> Command) -> Self {
        let started_at = Instant::now();
        loop {
            let mut server = Self::spawn(install, &command);
            // It ends by itself if another process has taken the port meanwhile.
            while matches!(server.process.try_wait(), Ok(None)) {
                if TcpStream::connect(server.address).is_ok() {
                    return server;
                }
                sleep(Duration::from_millis(10));
            }
            assert!(
                started_at.elapsed() < STARTUP,
                "it does not listen: {}",
                fs::read_to_string(server.folder.path().join(LOG)).unwrap_or_default()
            );
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the server, and starts the one that `command` makes for the same folder, on the same address.
    ///
    /// # Panics
    ///
    /// If it does not listen within the time that a server may take to start.
    pub(crate) fn restart(&mut self, command: impl Fn(&Path) -> Command) {
        let started_at = Instant::now();
        loop {
            self.kill();
            let (process, watchdog) = run("it is gone", command(self.folder.path()), &self.folder);
            (self.process, self.watchdog) = (process, watchdog);
            while matches!(self.process.try_wait(), Ok(None)) {
                if TcpStream::connect(self.address).is_ok() {
                    return;
                }
                sleep(Duration::from_millis(10));
            }
            assert!(started_at.elapsed() < STARTUP, "it does not listen again");
        }
    }

    /// Kills the process with its group. The watchdog first, so that it never kills a number that belongs to another process by
    /// then.
    fn kill(&mut self) {
        // All may have ended.
        let _gone = self.watchdog.kill();
        let _status = self.watchdog.wait();
        let _gone = Command::new("kill")
            .args(["-9", "--", &group(&self.process)])
            .stderr(Stdio::null())
            .status();
        let _status = self.process.wait();
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn spawn(install: &str, command: &impl Fn(&Path, SocketAddr) -> Command) -> Self {
        let folder = tempfile::Builder::new().prefix("tollgate-").tempdir();
        let folder = folder.expect("a folder");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = free.expect("a port");
        let (process, watchdog) = run(install, command(folder.path(), address), &folder);
        Self {
            address,
            process,
            watchdog,
            folder,
        }
    }
}

/// Starts a process, and its watchdog.
fn run(install: &str, mut command: Command, folder: &TempDir) -> (Child, Child) {
    let log = fs::File::create(folder.path().join(LOG)).expect("a file");
    let process = command
        // Its workers end with it.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let process = match process {
        Ok(process) => process,
        Err(error) if error.kind() == ErrorKind::NotFound => panic!("{install}"),
        Err(error) => panic!("cannot start {command:?}: {error}"),
    };
    let watchdog = watch(&group(&process), folder.path());
    (process, watchdog)
}

/// The words of the server.
const LOG: &str = "log";

/// The group of a process, in the words of `kill`.
fn group(process: &Child) -> String {
    format!("-{}", process.id())
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.kill();
    }
}
