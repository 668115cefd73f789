//! Each promise in the documents is shown by a test, which exists.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The tests that a text names: `path/to/file.rs::name` between backticks.
fn tests_named_in(text: &str) -> Vec<(&str, &str)> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|word| {
            word.split_once(".rs::")
                .map(|_| word.split_once("::").unwrap())
        })
        .collect()
}

/// Says whether a test of this name stands in this file: the attribute, perhaps others, and the function.
fn is_there((path, name): (&str, &str)) -> bool {
    let Ok(code) = fs::read_to_string(root().join(path)) else {
        return false;
    };
    let Some((before, _)) = code.split_once(&format!("fn {name}(")) else {
        return false;
    };
    let attributes = before.rsplit("\n\n").next().unwrap();
    ["#[test]", "#[tokio::test"]
        .iter()
        .any(|attribute| attributes.contains(attribute))
}

/// The list items and table rows of a text, each with the lines that belong to it.
fn promises(text: &str) -> Vec<String> {
    let mut promises: Vec<String> = Vec::new();
    let mut rows_of_head = 0;
    for line in text.lines() {
        match line {
            _ if line.starts_with("* ") => promises.push(line.to_owned()),
            _ if line.starts_with("  ") => promises.last_mut().unwrap().push_str(line),
            _ if line.starts_with('|') => {
                rows_of_head += 1;
                if rows_of_head > 2 {
                    promises.push(line.to_owned());
                }
            }
            _ => rows_of_head = 0,
        }
    }
    promises
}

/// A document without its footnotes, and these: each label with the text of its note.
fn split_footnotes(document: &str) -> (String, BTreeMap<&str, String>) {
    let mut text = String::new();
    let mut notes = BTreeMap::new();
    let mut label_above = None;
    for line in document.lines() {
        let note = line
            .strip_prefix("[^")
            .and_then(|rest| rest.split_once("]: "));
        if let Some((label, note)) = note {
            let before = notes.insert(label, note.to_owned());
            assert!(before.is_none(), "two footnotes are called {label}");
            label_above = Some(label);
        } else if let Some(label) = label_above
            && line.starts_with("    ")
        {
            notes.get_mut(label).unwrap().push_str(line);
        } else {
            label_above = None;
            text.push_str(line);
            text.push('\n');
        }
    }
    (text, notes)
}

/// The labels of the footnotes to which a text refers.
fn footnotes_of(text: &str) -> Vec<&str> {
    let behind = text.split("[^").skip(1);
    behind.map(|rest| rest.split_once(']').unwrap().0).collect()
}

#[test]
fn every_line_of_the_guarantees_names_a_test_and_every_test_that_is_named_exists() {
    for document in ["GUARANTEES.md", "THREATS.md", "docs/trials.md"] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let named = tests_named_in(&text);
        assert!(named.len() > 20, "{document} names {} tests", named.len());
        for test in named {
            assert!(
                is_there(test),
                "{document} names {}::{}, which is not there",
                test.0,
                test.1
            );
        }
        let (text, notes) = split_footnotes(&text);
        let labels = footnotes_of(&text);
        for label in &labels {
            assert!(
                notes.contains_key(label),
                "{document}: no footnote is called {label}"
            );
        }
        for (label, note) in &notes {
            assert!(
                labels.contains(label) && !tests_named_in(note).is_empty(),
                "{document}: the footnote {label} belongs to no line, or names no test"
            );
        }
        // The page on the trials tells a story, and promises nothing.
        let promised = if document == "docs/trials.md" {
            ""
        } else {
            &text
        };
        for promise in promises(promised) {
            assert!(
                !footnotes_of(&promise).is_empty(),
                "{document}: no footnote shows: {promise}"
            );
        }
    }
}

#[test]
fn a_footnote_is_read_to_its_last_test_and_is_no_part_of_the_text() {
    let document = "* VerdictRecord.[^a]\n  More.\n\n[^a]: `a.rs::b`,\n    `a.rs::c`\n[^d]: none\n";

    let (text, notes) = split_footnotes(document);

    assert_eq!(text, "* VerdictRecord.[^a]\n  More.\n\n");
    assert_eq!(footnotes_of(&text), ["a"]);
    assert_eq!(tests_named_in(&notes["a"]), [("a.rs", "b"), ("a.rs", "c")]);
    assert!(tests_named_in(&notes["d"]).is_empty());
}

#[test]
fn a_test_that_is_not_there_is_noticed() {
    let this = "tests/tests/it/guarantees.rs";
    assert!(is_there((this, "a_test_that_is_not_there_is_noticed")));
    assert!(!is_there((this, "a_test_that_nobody_wrote")));
    assert!(!is_there((this, "promises")), "a function is no test");
    assert!(!is_there(("tests/tests/it/none.rs", "a_test")));
}

#[test]
fn every_crate_forbids_unsafe_code() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(workspace.contains("unsafe_code = \"forbid\""));
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let manifest = fs::read_to_string(entry.unwrap().path().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{manifest}");
    }
}
