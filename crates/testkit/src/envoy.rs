//! Envoy, alone and with one thread.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::standalone::watch;

/// On a machine busy with a build that is seconds.
const STARTUP: Duration = Duration::from_secs(60);

/// An Envoy of its own, on a port of 127.0.0.1.
#[derive(Debug)]
pub struct Envoy {
    address: SocketAddr,
    process: Child,
    /// Kills Envoy when this process dies without a word: the watchdog's input ends then.
    watchdog: Child,
    folder: TempDir,
}

impl Envoy {
    /// Starts Envoy with the configuration that `configuration` makes for its port, and waits until it listens there.
    ///
    /// # Panics
    ///
    /// If there is no Envoy to start, or if it refuses the configuration. The message says what to install, or what Envoy says.
    #[must_use]
    pub fn start(configuration: impl Fn(u16) -> String) -> Self {
        let started_at = Instant::now();
        loop {
            let mut envoy = Self::spawn(&configuration);
            // It ends by itself if another process has taken the port meanwhile.
            while matches!(envoy.process.try_wait(), Ok(None)) {
                if TcpStream::connect(envoy.address).is_ok() {
                    return envoy;
                }
                sleep(Duration::from_millis(10));
            }
            let log = fs::read_to_string(envoy.log()).unwrap_or_default();
            assert!(
                started_at.elapsed() < STARTUP && !log.contains("initializing config"),
                "Envoy does not start: {log}"
            );
        }
    }

    /// The address on which Envoy listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn spawn(configuration: &impl Fn(u16) -> String) -> Self {
        let folder = tempfile::Builder::new().prefix("tollgate-").tempdir();
        let folder = folder.expect("a folder");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = free.expect("a port");
        let file = folder.path().join("envoy.yaml");
        fs::write(&file, configuration(address.port())).expect("a file");
        let log = fs::File::create(folder.path().join("log")).expect("a file");
        let process = Command::new(binary())
            .arg("--config-path")
            .arg(&file)
            .args([
                "--concurrency",
                "1",
                "--disable-hot-restart",
                "--log-level",
                "warn",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let process = process.expect("Envoy is started");
        Self {
            address,
            watchdog: watch(process.id(), folder.path()),
            process,
            folder,
        }
    }
}

/// The program in the package that `tests/install.sh` installs.
fn binary() -> PathBuf {
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/.venv/lib");
    let versions = fs::read_dir(&libraries).into_iter().flatten().flatten();
    let mut programs = versions.map(|of| of.path().join("site-packages/envoy/_bin/envoy"));
    programs
        .find(|program| program.exists())
        .unwrap_or_else(|| {
            panic!(
                "a real Envoy asks, and there is none under {}: run `tests/install.sh`",
                libraries.display()
            )
        })
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // The watchdog first, so that it never kills a number that belongs to another process by then. Both may have ended.
        for process in [&mut self.watchdog, &mut self.process] {
            let _gone = process.kill();
            let _status = process.wait();
        }
    }
}
