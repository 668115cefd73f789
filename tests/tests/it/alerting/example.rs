//! `examples/operated.rs`, built and started as an operator does.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use tempfile::TempDir;

use crate::alerting::http::send;

const LIMITS: &str = r#"
[[policies]]
name = "api"
quotas = "1000000/s"
routes = ["/"]

[[policies]]
name = "strict"
quotas = "1/h"
key = { header = "x-strict" }
on_missing = "pass"
routes = ["/"]
"#;

/// The program of the example.
pub(crate) struct Program(PathBuf);

impl Program {
    /// Finds it beside this test, where cargo has put it when it built the workspace. A test that called cargo would build while
    /// other tests run.
    pub(crate) fn find() -> Self {
        let test = env::current_exe().unwrap();
        let built = test.parent().and_then(Path::parent).unwrap();
        let program = built.join("examples/operated");
        assert!(
            is_current(&program),
            "{} is missing, or older than its sources: run `cargo build -p examples --example operated`",
            program.display()
        );
        Self(program)
    }

    /// Starts it with its limits in a file, in memory or on this Redis.
    pub(crate) fn start(&self, redis: Option<&str>) -> Operated {
        let folder = tempfile::tempdir().unwrap();
        let limits = folder.path().join("limits.toml");
        fs::write(&limits, LIMITS).unwrap();
        let mut command = Command::new(&self.0);
        command
            .env("ADDR", "127.0.0.1:0")
            .env("LIMITS", limits)
            .env_remove("REDIS_URL")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        if let Some(url) = redis {
            command.env("REDIS_URL", url);
        }
        let mut process = command.spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "it has ended");
            let address = line.strip_prefix("listening on http://");
            if let Some((address, _)) = address.and_then(|rest| rest.split_once(';')) {
                break address.parse().unwrap();
            }
        };
        // It goes on to log, and would wait for a reader.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Operated {
            address,
            process,
            folder,
        }
    }
}

/// True if a program is at least as new as each source that cargo lists beside it.
fn is_current(program: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let Ok(listed) = fs::read_to_string(program.with_extension("d")) else {
        return false;
    };
    let built = changed(program);
    let mut sources = listed.split_whitespace().skip(1).map(Path::new);
    built.is_some() && sources.all(|source| changed(source) <= built)
}

/// The example, as it runs.
pub(crate) struct Operated {
    pub(crate) address: SocketAddr,
    process: Child,
    folder: TempDir,
}

impl Operated {
    /// Writes limits that are wrong, or those that it began with.
    pub(crate) fn write_limits(&self, are_wrong: bool) {
        let limits = match are_wrong {
            true => LIMITS.replace("1/h", "1/hourly"),
            false => LIMITS.to_owned(),
        };
        fs::write(self.folder.path().join("limits.toml"), limits).unwrap();
    }

    /// Turns a switch of the policy `api`.
    pub(crate) fn switch(&self, to: &str) {
        let request = format!("POST /switch/api/{to}");
        let said = send(self.address, &request, "content-length: 0").unwrap();
        assert!(said.starts_with("api is "), "{said}");
    }
}

impl Drop for Operated {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.process.kill();
        let _ended = self.process.wait();
    }
}
