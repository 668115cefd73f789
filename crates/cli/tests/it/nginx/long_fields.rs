//! A caller's long field keeps no worker of nginx busy, for which all its other requests would wait.

use std::process::Command;

use crate::nginx::vectors::MODULE;

const PROGRAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/it/nginx/long_fields.lua"
);

#[test]
fn a_field_of_four_times_the_length_takes_hardly_more_than_four_times_as_long() {
    let program = Command::new("luajit")
        .arg(PROGRAM)
        .env("LUA_PATH", MODULE)
        .output();
    let output = program.expect("luajit is missing: tests/install.sh installs it");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{:?}", output.stderr);
    assert_eq!(said.lines().count(), 7, "{said}");
    for line in said.lines() {
        let (_, times) = line.split_once('\t').unwrap();
        // Sixteen, if each place of the text is begun at again.
        assert!(times.parse::<f64>().unwrap() < 9.0, "{line}");
    }
}
