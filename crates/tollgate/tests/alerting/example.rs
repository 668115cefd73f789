//! `examples/operated.rs`, built and started as an operator does.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use tempfile::TempDir;

use crate::http::send;

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
    /// Builds it. The whole workspace, with all features, has the dependencies of this test's own build.
    pub(crate) fn build() -> Self {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--workspace", "--all-features", "--locked"])
            .args(["--example=operated", "--message-format=json"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stderr(Stdio::inherit());
        let built = cargo.output().unwrap();
        assert!(built.status.success(), "the example is not built");
        let messages = String::from_utf8(built.stdout).unwrap();
        let program = messages.lines().find_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).unwrap();
            let is_ours = message["target"]["name"] == "operated";
            let program = message["executable"].as_str().filter(|_| is_ours)?;
            Some(PathBuf::from(program))
        });
        Self(program.expect("cargo names the program"))
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
