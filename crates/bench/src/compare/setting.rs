//! The machine and the versions of a run.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::report::Setting;
use crate::Result;

/// The packages whose versions matter.
const CRATES: [&str; 7] = [
    "axum",
    "tower",
    "governor",
    "tower_governor",
    "axum-governor",
    "redis",
    "tower-rate-limit-redis",
];

pub(super) fn setting() -> Result<Setting> {
    let mut versions = vec![said("rustc", &["--version"])];
    versions.push(said(&tollgate_testkit::server_binary(), &["--version"]));
    versions.push(said("nginx", &["-v"]));
    let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock"))?;
    versions.extend(CRATES.iter().filter_map(|name| version(&lock, name)));
    Ok(Setting {
        processor: processor(),
        cores: thread::available_parallelism().map_or(1, usize::from),
        system: said("uname", &["-sr"]),
        versions: versions
            .into_iter()
            .filter(|version| !version.is_empty())
            .collect(),
    })
}

/// The version in the lock file; of several the newest, which stands last.
fn version(lock: &str, name: &str) -> Option<String> {
    let package = format!("name = \"{name}\"\nversion = \"");
    let (_, rest) = lock.rsplit_once(&package)?;
    Some(format!("{name} {}", rest.split_once('"')?.0))
}

/// The first words of a tool's version; `None` if the tool is missing.
fn said(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).output();
    // nginx says it on the other output.
    let output = output.map(|output| [output.stdout, output.stderr].concat());
    let output = output.unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let words: Vec<_> = text.split_whitespace().take(3).collect();
    words.join(" ")
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or_else(
        || std::env::consts::ARCH.to_owned(),
        |(_, name)| name.trim().to_owned(),
    )
}
