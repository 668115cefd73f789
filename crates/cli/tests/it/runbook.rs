//! The commands and lines of `docs/operating/runbook.md`, tried with the program.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::fs;
use std::path::Path;

use crate::support::program::tollgate;

const RUNBOOK: &str = include_str!("../../../../docs/operating/runbook.md");

/// The texts between backticks, each on one line, outside of fenced blocks.
fn spans() -> Vec<String> {
    let paragraphs = RUNBOOK.split("```").step_by(2);
    let spans = paragraphs.flat_map(|text| text.split('`').skip(1).step_by(2));
    let words = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    words.collect()
}

/// The options in a text.
fn options(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|word| word.starts_with("--"))
}

#[test]
fn each_verb_and_option_of_the_runbook_is_one_of_the_program() {
    let spans = spans();
    let commands = spans.iter().filter_map(|span| {
        let of_program = span.strip_prefix("tollgate ");
        // An option by itself is one that `tollgate serve` is started with.
        let of_server = || span.starts_with("--").then(|| format!("serve {span}"));
        of_program.map(str::to_owned).or_else(of_server)
    });
    let commands: Vec<_> = commands.collect();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        let verb = command.split(' ').next().unwrap();
        let help = tollgate(Path::new("."), &[verb, "--help"]);
        let words = help.words();
        for option in options(&command) {
            let mut known = words.split([' ', ',', '\n']);
            assert!(known.any(|word| word == option), "tollgate {command}");
        }
    }
}

#[test]
fn each_line_of_the_configuration_in_the_runbook_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = RUNBOOK.split("```toml\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap().to_owned());
    let is_line = |span: &String| {
        let key = span.split_once(" = ").map(|(key, _)| key);
        key.is_some_and(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
    };
    let lines = spans().into_iter().filter(is_line);
    let lines =
        lines.map(|line| format!("[[policies]]\nname = \"api\"\nquotas = \"10/s\"\n{line}\n"));
    let texts: Vec<_> = blocks.chain(lines).collect();
    assert!(texts.len() > 5, "{texts:?}");
    for text in texts {
        fs::write(folder.path().join("limits.toml"), &text).unwrap();
        let ran = tollgate(folder.path(), &["check", "limits.toml"]);
        assert_eq!(ran.code, Some(0), "{text}: {ran:?}");
    }
}
