//! The module's names and its reader of replies, held to the vectors that the Rust client writes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

const VECTORS: &str = include_str!("../../../../../lua/vectors.json");

/// The folder of the module.
pub(crate) const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua/nginx/?.lua");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/nginx/vectors.lua");

#[test]
fn the_module_names_identities_and_reads_replies_as_the_vectors_say() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let (mut asked, mut expected) = (String::new(), String::new());
    let identities = vectors["identities"].as_array().unwrap();
    for identity in identities {
        writeln!(asked, "{}", identity["source"].as_str().unwrap()).unwrap();
        writeln!(expected, "{}", identity["text"].as_str().unwrap()).unwrap();
    }
    let calls = vectors["calls"].as_array().unwrap();
    for call in calls {
        let reply = call["reply"].as_str().unwrap();
        let charges = call["charges"].as_array().unwrap().len();
        writeln!(asked, "{charges} {reply}").unwrap();
        // The first two numbers are the server's time.
        let (_, told) = reply.split_once(' ').unwrap().1.split_once(' ').unwrap();
        writeln!(expected, "{told}").unwrap();
    }
    assert!(identities.len() > 10 && calls.len() > 30);

    let program = Command::new("luajit")
        .arg(PROGRAM)
        .env("LUA_PATH", MODULE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut program = program.expect("luajit is missing: tests/install.sh installs it");
    let mut input = program.stdin.take().unwrap();
    input.write_all(asked.as_bytes()).unwrap();
    drop(input);
    let output = program.wait_with_output().unwrap();

    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}
