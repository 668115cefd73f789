//! The log of the program.

use crate::serve::program::{FORWARD_AUTH, RULES, Told, command, file};

/// The lines until gateways may ask.
fn log(arguments: &[&str], filter: Option<&str>) -> String {
    let mut program = command(env!("CARGO_BIN_EXE_tollgate"))
        .arg("serve")
        .args(arguments)
        .args(["--listen", "127.0.0.1:0"])
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .envs(filter.map(|filter| ("RUST_LOG", filter)))
        .spawn()
        .unwrap();
    let mut told = Told::by(&mut program);
    told.line("Envoy may ask");
    program.kill().unwrap();
    program.wait().unwrap();
    told.all().join("\n")
}

#[test]
fn a_log_that_is_no_terminal_has_no_colours() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), RULES);
    for form in ["text", "json"] {
        let lines = log(&[&file, "--log", form], None);
        assert!(!lines.contains('\u{1b}'), "{lines:?}");
    }
}

#[test]
fn a_filter_that_makes_no_sense_is_told_and_the_log_is_as_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), RULES);
    let words = "RUST_LOG makes no sense, and does not count";
    for (filter, is_told) in [
        (Some("info,tollgate=loudly"), true),
        (Some("info=info=info"), true),
        (Some("tollgate_cli=debug,info"), false),
        (Some(""), false),
        (None, false),
    ] {
        let lines = log(&[&file], filter);
        assert_eq!(lines.contains(words), is_told, "{filter:?}: {lines}");
    }
}

#[test]
fn rules_for_envoy_are_told_where_there_are_some() {
    let folder = tempfile::tempdir().unwrap();
    let words = "rules for Envoy take effect";
    let with_rules = file(folder.path(), RULES);
    assert!(log(&[&with_rules], None).contains(&format!("{words} rules=1")));
    let without = file(folder.path(), FORWARD_AUTH);
    let lines = log(&[&without, "--forward-auth", "127.0.0.1:0"], None);
    assert!(!lines.contains(words), "{lines}");
}
