//! Doc comments name their subject first, counted over all sources. No comment is too wide. Pages, all comments and the texts of
//! the crates say which caller they mean, and "is not a name" where a name is invalid.
//!
//! `cargo test -p tollgate-architecture --test words -- --nocapture` prints the counts of each crate by first word.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// First words that hide the subject. Fewer than one doc comment in twenty may begin with one of them.
const HIDE_THE_SUBJECT: &[&str] = &[
    "How", "Nobody", "So many", "The same", "What", "Whatever", "When", "Where", "Whether",
    "Which", "Who", "Whoever", "Whom", "Whose", "Why",
];

/// First words that often hide it. Fewer than one doc comment in forty may begin with one of them.
const OFTEN_HIDE_IT: &[&str] = &["As", "None", "Nothing", "Of", "With", "Without"];

/// One doc comment of this many may hide its subject, and one of twice as many may begin with a word that often hides it.
const ONE_IN: usize = 20;

/// The pages of documentation, beside those in `docs`.
const PAGES: &[&str] = &[
    "BENCHMARKS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
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

/// The persons that a sentence may call `who`. A caller is a program.
const PERSONS: &[&str] = &[
    "attacker",
    "attackers",
    "operator",
    "operators",
    "reader",
    "readers",
    "users",
];

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

    fn beginning_with(&self, words: &[&str]) -> usize {
        let count = |word| self.by_word.get(word).copied().unwrap_or_default();
        words.iter().map(count).sum()
    }

    fn hidden(&self) -> usize {
        self.beginning_with(HIDE_THE_SUBJECT)
    }

    fn often_hidden(&self) -> usize {
        self.beginning_with(OFTEN_HIDE_IT)
    }

    fn is_within_the_bounds(&self) -> bool {
        let is_few = |count: usize, one_in: usize| count * one_in < self.all || count == 0;
        is_few(self.hidden(), ONE_IN) && is_few(self.often_hidden(), 2 * ONE_IN)
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

/// The counts of each crate, and of each folder that is not a crate.
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
    for (name, count) in &counts {
        let (all, by_word) = (count.all, &count.by_word);
        println!("{name}: {} of {all} {by_word:?}", count.hidden());
        of_workspace.add_all(count);
    }
    let (all, by_word) = (of_workspace.all, &of_workspace.by_word);
    println!("in all: {} of {all} {by_word:?}", of_workspace.hidden());

    assert!(all > 1_000, "{all} were found");
    let too_many = counts.iter().filter(|(_, it)| !it.is_within_the_bounds());
    let too_many: Vec<_> = too_many.collect();
    assert!(
        too_many.is_empty(),
        "one doc comment in {ONE_IN} begins with one of {HIDE_THE_SUBJECT:?}, or one in {} with one of {OFTEN_HIDE_IT:?}: \
         {too_many:#?}",
        2 * ONE_IN
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

/// The words of a text that hide its subject: `nobody`, `those who`, and `is no name` for an invalid name. Names in backticks do
/// not count, and neither does a placeholder.
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
                "who" => words.len() > 1 && before.is_none_or(|it| !PERSONS.contains(&it)),
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

/// The comments of a file, a paragraph each, also those behind code. Examples are code.
fn comments_of(text: &str, mark: &str) -> Vec<String> {
    let behind_code = format!(" {mark} ");
    let mut comments = vec![String::new()];
    let mut is_example = false;
    for line in text.lines() {
        let alone = line.trim_start().strip_prefix(mark);
        let trailing = line.split_once(&behind_code);
        let trailing = trailing.filter(|(code, _)| code.matches('"').count() % 2 == 0);
        let comment = alone.or_else(|| trailing.map(|(_, comment)| comment));
        let words = comment
            .unwrap_or_default()
            .trim_start_matches(['/', '!'])
            .trim();
        let is_fence = words.starts_with("```");
        is_example = alone.is_some() && is_example != is_fence;
        if alone.is_none() || words.is_empty() || is_fence {
            comments.push(String::new());
        }
        if let Some(paragraph) = comments.last_mut()
            && !is_example
            && !is_fence
        {
            paragraph.push_str(words);
            paragraph.push(' ');
        }
    }
    comments
}

#[test]
fn no_comment_hides_its_subject() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in FOLDERS {
        files_below(&root.join(folder), &mut files);
    }

    let (mut read, mut hiding) = (0, Vec::new());
    for file in files {
        let mark = match file.extension().and_then(|name| name.to_str()) {
            Some("rs") => "//",
            Some("lua") => "--",
            _ => continue,
        };
        read += 1;
        for comment in comments_of(&fs::read_to_string(&file).unwrap(), mark) {
            let found = hiding_words(&comment).into_iter();
            hiding.extend(found.map(|words| format!("{}: {words}", file.display())));
        }
    }
    assert!(read > 500, "{read} files were read");
    assert!(
        hiding.is_empty(),
        "say which caller, or that it is not a name: {hiding:#?}"
    );
}

/// The texts of several words in a file. A text of a single word is data, and the lines of doc comments are comments.
fn texts_in(tokens: TokenStream, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) if !is_doc(&group) => texts_in(group.stream(), found),
            TokenTree::Literal(literal) => {
                let text = text_of(&literal.to_string());
                found.extend(text.filter(|text| text.trim().contains(' ')));
            }
            _ => {}
        }
    }
}

/// True for the tokens of a doc comment: `doc = "…"`.
fn is_doc(group: &Group) -> bool {
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket
        && first.is_some_and(|first| matches!(first, TokenTree::Ident(name) if name == "doc"))
}

/// The inside of a literal, if it is a text. A line that is continued goes on where the next one begins.
fn text_of(literal: &str) -> Option<String> {
    let inside = literal.trim_start_matches(['r', '#']).trim_end_matches('#');
    let inside = inside.strip_prefix('"')?.strip_suffix('"')?;
    let lines = inside.split("\\\n").map(str::trim_start);
    Some(lines.collect())
}

#[test]
fn no_text_of_a_crate_hides_its_subject() {
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
        let mut texts = Vec::new();
        let code = fs::read_to_string(&file).unwrap();
        texts_in(TokenStream::from_str(&code).unwrap(), &mut texts);
        for text in texts {
            let found = hiding_words(&text).into_iter();
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
                fn f() {\n    let a = \"whoever\"; //\twhoever\n    g(\"a text that is \\\n       no quota\");\n}\
                \n/// There is no `nobody`, it is no longer there. Is it? No caller knows.\nstruct S;\
                \n/// An operator who is one.\n#[error(\"no caller: {0} is none\")]\nstruct T; //\x20who asks\n";

    let mut texts = Vec::new();
    texts_in(TokenStream::from_str(code).unwrap(), &mut texts);
    let in_texts: Vec<_> = texts.iter().flat_map(|it| hiding_words(it)).collect();
    let comments = comments_of(code, "//");
    let in_comments: Vec<_> = comments.iter().flat_map(|it| hiding_words(it)).collect();

    assert_eq!(in_texts, ["a text that is no quota", "is none"]);
    assert_eq!(in_comments, ["and nobody asks", "who asks"]);
    let lua = comments_of(
        "local a = 1 -- no key\n-- Who asks, and who\n-- waits.\n",
        "--",
    );
    assert_eq!(lua.iter().flat_map(|it| hiding_words(it)).count(), 2);
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
    assert!(!count.is_within_the_bounds());
}
