//! The program, and what it is asked.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

/// A machine that builds beside the test takes its time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const RULES: &str = "
[[policies]]
name = 'api'
quotas = '10/h'
on_demand = true

[[envoy]]
domain = 'shop'
descriptor = [{ key = 'account' }]
policy = 'api'
";

pub(crate) const FORWARD_AUTH: &str = "
client_address = { x-forwarded-for = { hops = 1 } }
[forward_auth]
gateway = 'nginx'
[[policies]]
name = 'pages'
quotas = '10/h'
";

/// Writes the file of a gateway into this folder.
pub(crate) fn file(folder: &Path, text: &str) -> String {
    let file = folder.join("gateway.toml");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

pub(crate) fn program(arguments: &[&str]) -> Child {
    program_with(arguments, None)
}

/// The program with this token of the admin in its environment.
pub(crate) fn program_with(arguments: &[&str], token: Option<&str>) -> Child {
    let token = token.map(|token| ("TOLLGATE_ADMIN_TOKEN", token));
    command(env!("CARGO_BIN_EXE_tollgate"))
        .arg("serve")
        .args(arguments)
        .envs(token)
        .spawn()
        .unwrap()
}

/// A command whose errors are read, with nothing of ours in its environment.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_remove("RUST_LOG")
        .env_remove("NOTIFY_SOCKET")
        .env_remove("TOLLGATE_ADMIN_TOKEN")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// The status with which it ends, and what it says.
pub(crate) fn outcome(arguments: &[&str]) -> (Option<i32>, String) {
    outcome_with(arguments, None)
}

pub(crate) fn outcome_with(arguments: &[&str], token: Option<&str>) -> (Option<i32>, String) {
    let mut program = program_with(arguments, token);
    let mut said = String::new();
    program
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    (program.wait().unwrap().code(), said)
}

/// The log of a program.
pub(crate) struct Told {
    lines: Lines<BufReader<ChildStderr>>,
    said: Vec<String>,
}

impl Told {
    pub(crate) fn by(program: &mut Child) -> Self {
        let log = BufReader::new(program.stderr.take().unwrap());
        Self {
            lines: log.lines(),
            said: Vec::new(),
        }
    }

    /// The next line that has these words.
    pub(crate) fn line(&mut self, words: &str) -> String {
        loop {
            let line = self.lines.next().map(Result::unwrap);
            let line = line.unwrap_or_else(|| panic!("no line has {words:?}: {:#?}", self.said));
            self.said.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
    }

    /// The address in the next line of text that has these words.
    pub(crate) fn address<A: std::str::FromStr>(&mut self, words: &str) -> A {
        let line = self.line(&format!("{words} address="));
        let (_, address) = line.rsplit_once("address=").unwrap();
        address.parse().ok().unwrap()
    }

    /// All lines, once the program has ended.
    pub(crate) fn all(mut self) -> Vec<String> {
        self.said.extend(self.lines.map(Result::unwrap));
        self.said
    }
}

/// Sends a signal to a process of the test.
#[cfg(unix)]
pub(crate) fn signal(process: &Child, name: &str) {
    let id = process.id().to_string();
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &id])
        .status();
    assert!(sent.unwrap().success());
}
