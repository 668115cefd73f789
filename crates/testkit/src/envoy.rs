//! Envoy, alone and with one thread.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::web_server::WebServer;

/// An Envoy of its own, on a port of 127.0.0.1.
#[derive(Debug)]
pub struct Envoy(WebServer);

impl Envoy {
    /// Starts Envoy with the configuration that `configuration` makes for its port, and waits until it listens there.
    ///
    /// # Panics
    ///
    /// If there is no Envoy to start, or if it refuses the configuration. The message says what to install, or what Envoy says.
    #[must_use]
    pub fn start(configuration: impl Fn(u16) -> String) -> Self {
        let install = "there is no Envoy: run `tests/install.sh`";
        Self(WebServer::start(install, |folder, address| {
            let file = folder.join(FILE);
            fs::write(&file, configuration(address.port())).expect("a file");
            command(folder)
        }))
    }

    /// Kills Envoy, as a crash would, and starts another with its configuration, on its port.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn restart(&mut self) {
        self.0.restart(command);
    }

    /// The number of its process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.0.process_id()
    }

    /// The address on which Envoy listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// Its configuration, in its folder.
const FILE: &str = "envoy.yaml";

fn command(folder: &Path) -> Command {
    let mut command = Command::new(binary());
    command.arg("--config-path").arg(folder.join(FILE));
    command.args([
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "--log-level",
        "warn",
    ]);
    command
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
