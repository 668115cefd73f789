//! Doc comments name their subject first, counted over all sources. No comment is too wide. Pages, doc comments and texts of the
//! crates say which caller they mean, and "is not a name" where a name is invalid.
//!
//! `cargo test -p tollgate-architecture --test words -- --nocapture` prints the counts of each crate by first word.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

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

/// Words in whose place a sentence names the caller, the request or the operator.
const OF_NO_SUBJECT: &[&str] = &[
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "nobody",
    "somebody",
    "someone",
    "whoever",
    "whom",
];

/// Words after which "who" names no subject, or stands for a program.
const BEFORE_WHO: &[&str] = &["caller", "callers", "one", "those"];

/// Words after "is no" that compare: "is no longer" says something else than "is not a".
const COMPARING: &[&str] = &[
    "better", "cheaper", "earlier", "faster", "fewer", "further", "greater", "higher", "larger",
    "later", "less", "longer", "lower", "more", "nearer", "newer", "older", "quicker", "shorter",
    "slower", "smaller", "wider", "worse",
];

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

/// The words of a text that hide its subject: "nobody", "those who", and "is no name" for an invalid name. Names in backticks do
/// not count.
fn hiding_words(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let prose = text.split('`').step_by(2);
    let parts_of_sentences = prose.flat_map(|prose| {
        prose.split(|letter: char| {
            !letter.is_alphanumeric() && !letter.is_whitespace() && letter != '-'
        })
    });
    let mut found = Vec::new();
    for part in parts_of_sentences {
        let words: Vec<&str> = part.split_whitespace().collect();
        for (place, word) in words.iter().enumerate() {
            let before = place.checked_sub(1).map(|place| words[place]);
            let mut behind = words[place + 1..].iter().copied();
            let is_hiding = match *word {
                "are" | "is" | "was" | "were" => match (behind.next(), behind.next()) {
                    _ if before == Some("there") => false,
                    (Some("none"), _) => true,
                    (Some("no"), next) => next.is_some_and(|next| !COMPARING.contains(&next)),
                    _ => false,
                },
                "who" => before.is_some_and(|before| BEFORE_WHO.contains(&before)),
                word => OF_NO_SUBJECT.contains(&word),
            };
            if is_hiding {
                let around = place.saturating_sub(3)..words.len().min(place + 4);
                found.push(words[around].join(" "));
            }
        }
    }
    found
}

#[test]
fn no_page_hides_its_subject() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> = PAGES.iter().map(|page| root.join(page)).collect();
    files_below(&root.join("docs"), &mut pages);
    pages.retain(|page| page.extension().is_some_and(|name| name == "md"));
    assert!(pages.len() > 10, "{} were found", pages.len());

    let mut hiding = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let found = hiding_words(&text).into_iter();
        hiding.extend(found.map(|words| format!("{}: {words}", page.display())));
    }
    assert!(hiding.is_empty(), "say which caller: {hiding:#?}");
}

/// The paragraphs of the doc comments of a file, and its texts of several words. A text of a single word is data.
fn sentences_of(tokens: TokenStream, found: &mut Vec<String>) {
    let mut paragraph = Vec::new();
    let mut is_code = false;
    for token in tokens {
        match &token {
            TokenTree::Punct(punct) if matches!(punct.as_char(), '#' | '!') => continue,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                if let Some(line) = doc_line(group.stream()) {
                    let line = line.trim();
                    is_code ^= line.starts_with("```");
                    if line.is_empty() || is_code {
                        found.push(paragraph.join(" "));
                        paragraph.clear();
                    } else if !line.starts_with("```") {
                        paragraph.push(line.to_owned());
                    }
                    continue;
                }
                sentences_of(group.stream(), found);
            }
            TokenTree::Group(group) => sentences_of(group.stream(), found),
            TokenTree::Literal(literal) => {
                let text = text_of(&literal.to_string());
                found.extend(text.filter(|text| text.trim().contains(' ')));
            }
            _ => {}
        }
        found.push(paragraph.join(" "));
        paragraph.clear();
        is_code = false;
    }
    found.push(paragraph.join(" "));
}

/// The line of a doc comment, if these are the tokens of one: `doc = "…"`.
fn doc_line(attribute: TokenStream) -> Option<String> {
    let tokens: Vec<TokenTree> = attribute.into_iter().collect();
    match &tokens[..] {
        [TokenTree::Ident(name), _, TokenTree::Literal(line)] if name == "doc" => {
            text_of(&line.to_string())
        }
        _ => None,
    }
}

/// The inside of a literal, if it is a text. A line that is continued goes on where the next one begins.
fn text_of(literal: &str) -> Option<String> {
    let inside = literal.trim_start_matches(['r', '#']).trim_end_matches('#');
    let inside = inside.strip_prefix('"')?.strip_suffix('"')?;
    let lines = inside.split("\\\n").map(str::trim_start);
    Some(lines.collect())
}

#[test]
fn no_doc_comment_and_no_text_of_a_crate_hides_its_subject() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let sources = entry.unwrap().path().join("src");
        if sources.is_dir() {
            files_below(&sources, &mut files);
        }
    }
    files.retain(|file| file.extension().is_some_and(|name| name == "rs"));
    assert!(files.len() > 200, "{} were found", files.len());

    let mut hiding = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut sentences = Vec::new();
        sentences_of(TokenStream::from_str(&text).unwrap(), &mut sentences);
        for sentence in sentences {
            let found = hiding_words(&sentence).into_iter();
            hiding.extend(found.map(|words| format!("{}: {words}", file.display())));
        }
    }
    assert!(
        hiding.is_empty(),
        "say which caller, or that it is not a name: {hiding:#?}"
    );
}

#[test]
fn words_that_hide_a_subject_are_found_in_comments_and_texts_and_nowhere_else() {
    let code = "/// No caller waits, and\n/// nobody asks.\n///\n/// ```\n/// f(\"somebody is here\");\n/// ```\n\
                fn f() {\n    let a = \"whoever\"; // whoever\n    g(\"a text that is \\\n       no quota\");\n}\n\
                /// There is no `nobody`, it is no longer there. Is it? No caller knows.\nstruct S;\n\
                /// A caller who is one.\n#[error(\"no caller: {0} is none\")]\nstruct T;\n";
    let mut sentences = Vec::new();
    sentences_of(TokenStream::from_str(code).unwrap(), &mut sentences);

    let found: Vec<String> = sentences.iter().flat_map(|it| hiding_words(it)).collect();

    assert_eq!(
        found,
        [
            "and nobody asks",
            "a text that is no quota",
            "is none",
            "a caller who is one"
        ]
    );
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
