//! The Python programs in `tests/clients`, which run in the environment that `tests/install.sh` makes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

/// The output of a client that is told to call this server.
pub(crate) async fn run(client: &str, server: &str) -> serde_json::Value {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = tests.join(".venv/bin/python");
    assert!(
        python.exists(),
        "{} is missing: tests/install.sh makes it, with the clients that these tests run",
        python.display()
    );
    let output = Command::new(python)
        .arg(tests.join("clients").join(client))
        .arg(server)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), output);
    let output = output.await.unwrap().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{client}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}
