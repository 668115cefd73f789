//! nginx, alone and in one process.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::web_server::WebServer;

/// An nginx of its own, on a port of 127.0.0.1.
#[derive(Debug)]
pub struct Nginx(WebServer);

impl Nginx {
    /// Starts nginx with these directives in its `http` block and these in its `server` block, and waits until it listens.
    ///
    /// # Panics
    ///
    /// If there is no nginx to start. The message says what to install.
    #[must_use]
    pub fn start(http: &str, server: &str) -> Self {
        let install =
            "there is no `nginx`: `apt-get install nginx-light`, or another package that has it";
        Self(WebServer::start(install, |folder, address| {
            let file = folder.join("nginx.conf");
            fs::write(&file, configuration(folder, address, http, server)).expect("a file");
            let mut command = Command::new("nginx");
            command.arg("-p").arg(folder).arg("-c").arg(&file);
            command
        }))
    }

    /// The address on which nginx listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The number of its process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.0.process_id()
    }
}

fn configuration(folder: &Path, address: SocketAddr, http: &str, server: &str) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  {http}
  server {{
    listen {address};
    {server}
  }}
}}
"
    )
}
