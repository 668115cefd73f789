//! The crates of Tollgate have no circles among their modules, and depend on each other in one order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod circles;
mod order;

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of all crates, each with its name.
fn crates() -> Vec<(String, PathBuf)> {
    let all = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    let folders = all.map(|entry| entry.unwrap());
    let named = folders.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named.collect()
}
