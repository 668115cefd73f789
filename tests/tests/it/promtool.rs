//! The rules for alerts, tried by Prometheus' own tool on a clock of its own.

use std::process::Command;

const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operating");

/// The rules are tried by Prometheus itself, which `tests/install.sh` installs.
#[test]
fn each_alert_fires_and_resolves_by_the_rules_of_prometheus() {
    let mut promtool = Command::new("promtool");
    let promtool = promtool.args(["test", "rules", "alerts_test.yml"]);
    let tested = promtool.current_dir(PAGES).output();
    let tested = tested.expect("promtool is missing: tests/install.sh installs it");
    let said = String::from_utf8_lossy(&tested.stdout) + String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{said}");
}
