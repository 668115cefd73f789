//! Doc comments name their subject first, counted over all sources. No comment is too wide, and no page speaks of nobody.
//!
//! `cargo test -p tollgate-architecture --test words -- --nocapture` prints the counts of each crate by first word.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// First words that hide the subject. Fewer than one doc comment in twenty may begin with one of them.
const HIDE_THE_SUBJECT: &[&str] = &[
    "How", "Nobody", "So many", "The same", "What", "Whatever", "When", "Where", "Whether",
    "Which", "Who", "Whoever", "Whom", "Whose", "Why",
];

/// First words that often hide it. They are counted and printed, and no bound holds them.
const OFTEN_HIDE_IT: &[&str] = &["As", "If", "Nothing"];

/// One doc comment of this many may hide its subject.
const ONE_IN: usize = 20;

/// Crates that are still above the bound, and do not count yet. A crate leaves the list for good.
const NOT_YET: &[&str] = &[];

/// The pages of documentation, beside those in `docs`.
const PAGES: &[&str] = &[
    "BENCHMARKS.md",
    "CHANGELOG.md",
    "GUARANTEES.md",
    "README.md",
    "THREATS.md",
    "lua/README.md",
];

/// Words of which a page says better which caller, request or operator is meant.
const OF_NO_SUBJECT: &[&str] = &["anybody", "nobody", "somebody", "whoever", "whom"];

/// The columns that a comment may fill.
const WIDTH: usize = 132;

/// The folders with sources, from the root of the workspace.
const FOLDERS: &[&str] = &["crates", "examples", "fuzz", "lua", "tests"];

#[derive(Debug, Default)]
struct Count {
    all: usize,
    by_word: BTreeMap<&'static str, usize>,
}

impl Count {
    fn add(&mut self, comment: &str) {
        self.all += 1;
        let begins_with = |word: &str| {
            comment
                .strip_prefix(word)
                .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
        };
        // A question, such as the one that an example answers, names its subject by asking for it.
        if comment.ends_with('?') {
            return;
        }
        let words = HIDE_THE_SUBJECT.iter().chain(OFTEN_HIDE_IT);
        if let Some(word) = words.copied().find(|word| begins_with(word)) {
            *self.by_word.entry(word).or_default() += 1;
        }
    }

    fn add_all(&mut self, other: &Self) {
        self.all += other.all;
        for (word, times) in &other.by_word {
            *self.by_word.entry(word).or_default() += times;
        }
    }

    fn hidden(&self) -> usize {
        let count = |word| self.by_word.get(word).copied().unwrap_or_default();
        HIDE_THE_SUBJECT.iter().map(count).sum()
    }

    fn is_within_the_bound(&self) -> bool {
        self.hidden() * ONE_IN < self.all || self.hidden() == 0
    }
}

/// The first line of each doc comment in Rust.
fn doc_comments_of_rust(text: &str) -> Vec<&str> {
    let mut first_lines = Vec::new();
    let mut above = None;
    for line in text.lines() {
        let line = line.trim_start();
        let kind = ["//!", "///"]
            .into_iter()
            .find(|kind| line.starts_with(kind) && !line.starts_with("////"));
        if let Some(kind) = kind
            && above != Some(kind)
        {
            first_lines.push(line[kind.len()..].trim());
        }
        above = kind;
    }
    first_lines
}

/// The first line of each comment that stands above a function in Lua, or at the head of a file.
fn doc_comments_of_lua(text: &str) -> Vec<&str> {
    let mut first_lines = Vec::new();
    let mut first_of_run = None;
    for (number, line) in text.lines().enumerate() {
        match line.trim_start().strip_prefix("--") {
            Some(comment) if first_of_run.is_none() => {
                first_of_run = Some(comment.trim());
                if number == 0 {
                    first_lines.push(comment.trim());
                }
            }
            Some(_) => {}
            None => {
                let comment = first_of_run.take();
                let is_function = line.contains("function ") || line.contains("function(");
                if is_function && !first_lines.ends_with(comment.as_slice()) {
                    first_lines.extend(comment);
                }
            }
        }
    }
    first_lines
}

/// Every file below this folder, except built and installed ones.
fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            files_below(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// The counts of each crate, and of each folder that is no crate.
fn counts() -> BTreeMap<String, Count> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for folder in FOLDERS {
        let mut files = Vec::new();
        files_below(&root.join(folder), &mut files);
        for file in files {
            let read: fn(&str) -> Vec<&str> = match file.extension().and_then(|name| name.to_str())
            {
                Some("rs") => doc_comments_of_rust,
                Some("lua") => doc_comments_of_lua,
                _ => continue,
            };
            let inside = file.strip_prefix(&root).unwrap();
            let mut names = inside.iter().map(|name| name.to_string_lossy());
            let first = names.next().unwrap();
            let name = if first == "crates" {
                names.next().unwrap()
            } else {
                first
            };
            let count = counts.entry(name.into_owned()).or_default();
            for comment in read(&fs::read_to_string(&file).unwrap()) {
                count.add(comment);
            }
        }
    }
    counts
}

#[test]
fn fewer_than_one_doc_comment_in_twenty_hides_its_subject() {
    let counts = counts();
    let mut of_workspace = Count::default();
    let mut held = Count::default();
    let mut above_the_bound = Vec::new();
    for (name, count) in &counts {
        let all = count.all;
        println!("{name}: {} of {all} {:?}", count.hidden(), count.by_word);
        of_workspace.add_all(count);
        if NOT_YET.contains(&name.as_str()) {
            continue;
        }
        held.add_all(count);
        if !count.is_within_the_bound() {
            above_the_bound.push(format!("{name}: {} of {all}", count.hidden()));
        }
    }
    println!(
        "in all: {} of {} {:?}",
        of_workspace.hidden(),
        of_workspace.all,
        of_workspace.by_word
    );

    assert!(of_workspace.all > 1_000, "{} were found", of_workspace.all);
    assert!(
        above_the_bound.is_empty() && held.is_within_the_bound(),
        "one doc comment in twenty, or more, begins with one of {HIDE_THE_SUBJECT:?}: {above_the_bound:#?}"
    );
}

/// The lines of comments that are wider than they may be. Tables, links and code cannot be wrapped.
fn wide_comments(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_code = false;
            return false;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        is_code ^= comment.starts_with("```");
        let is_one_piece = is_code || comment.starts_with(['|', '[']) || !comment.contains(' ');
        line.chars().count() > WIDTH && !is_one_piece
    });
    lines.collect()
}

#[test]
fn no_comment_is_wider_than_it_may_be() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut wide = Vec::new();
    for folder in FOLDERS {
        let mut files = Vec::new();
        files_below(&root.join(folder), &mut files);
        files.retain(|file| file.extension().is_some_and(|name| name == "rs"));
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let lines = wide_comments(&text).into_iter();
            wide.extend(lines.map(|line| format!("{}: {line}", file.display())));
        }
    }

    assert!(wide.is_empty(), "wider than {WIDTH} columns: {wide:#?}");
    let long = "word ".repeat(30);
    assert_eq!(
        wide_comments(&format!("/// {long}\n/// | {long}|\nlet a = 1; // {long}")).len(),
        1
    );
}

#[test]
fn no_page_hides_its_subject() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> = PAGES.iter().map(|page| root.join(page)).collect();
    files_below(&root.join("docs"), &mut pages);
    pages.retain(|page| page.extension().is_some_and(|name| name == "md"));
    assert!(pages.len() > 10, "{} were found", pages.len());

    for page in pages {
        let text = fs::read_to_string(&page).unwrap().to_lowercase();
        // Names of tests stand between backticks.
        let mut words = text
            .split('`')
            .step_by(2)
            .flat_map(|prose| prose.split(|letter: char| !letter.is_alphabetic()));
        let hiding = words.find(|word| OF_NO_SUBJECT.contains(word));
        assert_eq!(
            hiding,
            None,
            "{}: say which caller or request",
            page.display()
        );
    }
}

#[test]
fn the_first_line_of_each_doc_comment_is_read() {
    let rust = "//! A crate.\n//! More.\n\n/// A type.\n///\n/// More.\nstruct A {\n    /// What it is.\n    b: u8, // no doc\n}\n\
                //// none\nconst C: &str = \"/// none\";\n";
    let lua = "-- The file.\n-- More.\n\nlocal a = 1\n-- no function\nlocal b = 2\n\n-- The rule.\n-- More.\nlocal function f() end\n";

    assert_eq!(
        doc_comments_of_rust(rust),
        ["A crate.", "A type.", "What it is."]
    );
    assert_eq!(doc_comments_of_lua(lua), ["The file.", "The rule."]);
}

#[test]
fn a_first_word_counts_as_a_word_alone() {
    let mut count = Count::default();
    for comment in [
        "What it is.",
        "Whatsoever.",
        "The same as that.",
        "The sameness.",
        "How do I limit a route?",
        "A key.",
    ] {
        count.add(comment);
    }

    assert_eq!(count.all, 6);
    assert_eq!(count.hidden(), 2);
    assert!(!count.is_within_the_bound());
}
