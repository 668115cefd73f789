//! nginx, alone and in one process.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::standalone::watch;

/// On a machine busy with a build that is seconds.
const STARTUP: Duration = Duration::from_secs(60);

/// An nginx of its own, on a port of 127.0.0.1.
#[derive(Debug)]
pub struct Nginx {
    address: SocketAddr,
    process: Child,
    /// Kills nginx when this process dies without a word: the watchdog's input ends then.
    watchdog: Child,
    _folder: TempDir,
}

impl Nginx {
    /// Starts nginx with these directives in its `http` block and these in its `server` block, and waits until it listens.
    ///
    /// # Panics
    ///
    /// If there is no nginx to start. The message says what to install.
    #[must_use]
    pub fn start(http: &str, server: &str) -> Self {
        let started_at = Instant::now();
        loop {
            let mut nginx = Self::spawn(http, server);
            // It ends by itself if another process has taken the port meanwhile.
            while matches!(nginx.process.try_wait(), Ok(None)) {
                if TcpStream::connect(nginx.address).is_ok() {
                    return nginx;
                }
                sleep(Duration::from_millis(10));
            }
            assert!(
                started_at.elapsed() < STARTUP,
                "nginx does not listen, perhaps because of its configuration: {http} {server}"
            );
        }
    }

    /// The address on which nginx listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of its process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    fn spawn(http: &str, server: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("tollgate-").tempdir();
        let folder = folder.expect("a folder");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = free.expect("a port");
        let file = folder.path().join("nginx.conf");
        fs::write(&file, configuration(folder.path(), address, http, server)).expect("a file");
        let process = Command::new("nginx")
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = match process {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => panic!(
                "a real nginx is compared with, and there is no `nginx`: `apt-get install nginx-light`, or another \
                 package that has it"
            ),
            Err(error) => panic!("cannot start nginx: {error}"),
        };
        Self {
            address,
            watchdog: watch(process.id(), folder.path()),
            process,
            _folder: folder,
        }
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

impl Drop for Nginx {
    fn drop(&mut self) {
        // The watchdog first, so that it never kills a number that belongs to another process by then. Both may have ended.
        for process in [&mut self.watchdog, &mut self.process] {
            let _gone = process.kill();
            let _status = process.wait();
        }
    }
}
