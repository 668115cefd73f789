//! The reference of the configuration, `docs/configuration.md`, as text.

use std::fs;
use std::path::Path;

/// The text under a heading, up to the next one.
pub fn section(heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, section) = text
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading:?}"));
    section.split("\n#").next().unwrap().to_owned()
}

/// The rows of the table under a heading, each cell without the backticks around it.
pub fn rows(heading: &str) -> Vec<Vec<String>> {
    let section = section(heading);
    let lines = section.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let inner = line.trim_matches('|').split(" | ");
        inner
            .map(|cell| cell.trim().trim_matches('`').to_owned())
            .collect()
    };
    lines.skip(2).map(cells).collect()
}
