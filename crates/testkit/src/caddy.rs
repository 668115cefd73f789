//! Caddy, alone.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use crate::web_server::WebServer;

/// A Caddy of its own, on a port of 127.0.0.1.
#[derive(Debug)]
pub struct Caddy(WebServer);

impl Caddy {
    /// Starts Caddy with these directives for its site, and waits until it listens.
    ///
    /// # Panics
    ///
    /// If there is no Caddy to start. The message says what to install.
    #[must_use]
    pub fn start(site: &str) -> Self {
        let install =
            "there is no `caddy`: `apt-get install caddy`, or another package that has it";
        Self(WebServer::start(install, |folder, address| {
            let file = folder.join("Caddyfile");
            let port = address.port();
            let options = "{\n  admin off\n  auto_https off\n}\n";
            // Of any host, as nginx is.
            let site = format!("http://:{port} {{\nbind 127.0.0.1\n{site}\n}}\n");
            let text = format!("{options}{site}");
            fs::write(&file, text).expect("a file");
            let mut command = Command::new("caddy");
            command.args(["run", "--adapter", "caddyfile", "--config"]);
            // It keeps its state in the folder, and not in the user's.
            command
                .arg(&file)
                .env("XDG_DATA_HOME", folder)
                .env("XDG_CONFIG_HOME", folder);
            command
        }))
    }

    /// The address on which Caddy listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}
