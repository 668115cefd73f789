//! A gateway in Lua, written from `lua/README.md` alone, is held to the vectors that the Rust client writes.

use std::fs;
use std::process::Command;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lua/vectors.json");

/// The program knows nothing but the page on the scripts.
#[test]
fn a_gateway_written_from_the_page_alone_names_charges_and_reads_as_the_vectors_say() {
    let program = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/lua_gateway/gateway.lua"
    );
    let run = Command::new("luajit").arg(program).arg(FILE).output();
    let output = run.expect("luajit is missing: tests/install.sh installs it (Debian: luajit2)");
    let (told, faults) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{told}{faults}");
    let text = fs::read_to_string(FILE).expect("the vectors");
    let counted = ["\"source\"", "\"prefix\"", "\"guards\"", "\"reply\""];
    let [identities, names, charges, calls] = counted.map(|field| text.matches(field).count());
    assert_eq!(
        told.trim(),
        format!("{identities} identities, {names} names, {charges} charges, {calls} calls")
    );
    assert!(identities > 10 && names > 40 && charges > 10 && calls > 30);
}
