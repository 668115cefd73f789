//! nginx in one process, with or without `limit_conn`.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::AT_ONCE;
use crate::Result;

/// Time for nginx to start in.
const PATIENCE: Duration = Duration::from_secs(20);

/// Killed when it is dropped.
struct Nginx(Child);

pub(super) fn run(is_limited: bool) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("tollgate-").tempdir()?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let file = folder.path().join("nginx.conf");
    fs::write(&file, configuration(folder.path(), port, is_limited))?;
    let mut nginx = Nginx(
        Command::new("nginx")
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?,
    );
    nginx.listens(port)?;
    println!("{port} {}", nginx.0.id());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// `limit_conn` acts before a module that makes the content, and after `return`: so the content is the GIF that nginx has in memory.
fn configuration(folder: &Path, port: u16, is_limited: bool) -> String {
    let limit = if is_limited {
        format!("limit_conn at_once {AT_ONCE};")
    } else {
        String::new()
    };
    let folder = folder.display();
    format!(
        "daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  limit_conn_zone $remote_port zone=at_once:10m;
  server {{
    listen 127.0.0.1:{port};
    location / {{ {limit} empty_gif; }}
  }}
}}
"
    )
}

impl Nginx {
    fn listens(&mut self, port: u16) -> Result<()> {
        let started_at = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = self.0.try_wait()? {
                return Err(format!("nginx ended: {status}").into());
            }
            if started_at.elapsed() > PATIENCE {
                return Err("nginx does not listen".into());
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}
