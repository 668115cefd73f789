//! A new algorithm is a line in each list, and no list can do without it.
//!
//! `Unit` is matched without a wildcard, so that the compiler names each list that lacks a line. Two things would undo that, and
//! are found here: a wildcard beside several kinds, and a list over `Algorithm`, which other crates than core cannot match without
//! one. A question about one kind is not a list.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ExprMatch, File, Item, ItemMod, Macro, Meta, Pat};
use tollgate_architecture::files::{crates, sources};

/// The crates that a new algorithm concerns.
const CRATES: &[&str] = &[
    "core", "memory", "redis", "limiter", "http", "grpc", "macros", "cli",
];

/// Files outside of core that may name an algorithm, with the reason.
const NAMES_AN_ALGORITHM: &[(&str, &str)] = &[(
    "limiter/src/limiter/decision_log.rs",
    "a warning about what is owed to a bucket of another quota, which only GCRA remembers",
)];

fn has_cfg_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

/// Where the modules of a file are that are built for tests alone: the path of each without `.rs`.
fn test_modules(file: &Path, content: &File) -> Vec<PathBuf> {
    let folder = match file.file_stem().unwrap().to_str() {
        Some("lib" | "main" | "mod") => file.parent().unwrap().to_owned(),
        _ => file.with_extension(""),
    };
    let modules = content.items.iter().filter_map(|item| match item {
        Item::Mod(module) if has_cfg_test(&module.attrs) => Some(module.ident.to_string()),
        _ => None,
    });
    modules.map(|module| folder.join(module)).collect()
}

/// The files of a crate that are built for users, by their path below `crates`.
fn product(name: &str) -> Vec<(String, File)> {
    let parsed = sources(name).unwrap().into_iter().map(|file| {
        let content = syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap();
        (file, content)
    });
    let parsed: Vec<_> = parsed.collect();
    let tests = parsed
        .iter()
        .flat_map(|(file, content)| test_modules(file, content));
    let tests: Vec<_> = tests.collect();
    let is_of_tests = |file: &Path| {
        let without_extension = file.with_extension("");
        tests
            .iter()
            .any(|module| without_extension.starts_with(module))
    };
    let product = parsed.into_iter().filter(|(file, _)| !is_of_tests(file));
    let named = product.map(|(file, content)| {
        let below = file.strip_prefix(crates()).unwrap();
        (below.to_str().unwrap().to_owned(), content)
    });
    named.collect()
}

/// The kinds of quotas: the variants of `Unit`, and the one that `Algorithm` calls by another name.
fn kinds() -> BTreeSet<String> {
    let unit = fs::read_to_string(crates().join("core/src/algorithm/unit.rs")).unwrap();
    let items = syn::parse_file(&unit).unwrap().items;
    let variants = items.into_iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == "Unit" => Some(item.variants),
        _ => None,
    });
    let names = variants
        .unwrap()
        .into_iter()
        .map(|variant| variant.ident.to_string());
    names.chain(["Concurrent".to_owned()]).collect()
}

/// The matches of a file that have a wildcard beside several kinds, and its mentions of an algorithm, each with its line.
struct Lists<'a> {
    kinds: &'a BTreeSet<String>,
    open: Vec<usize>,
    algorithms: Vec<usize>,
}

impl<'a> Lists<'a> {
    fn of(kinds: &'a BTreeSet<String>, content: &File) -> Self {
        let mut lists = Self {
            kinds,
            open: Vec::new(),
            algorithms: Vec::new(),
        };
        lists.visit_file(content);
        lists
    }

    /// Adds the kinds that a pattern names. True if it matches whatever comes.
    fn read(&self, pattern: &Pat, named: &mut BTreeSet<String>) -> bool {
        let path = match pattern {
            Pat::Wild(_) => return true,
            Pat::Or(any) => {
                // Each is read, also behind one that matches everything.
                let read = any.cases.iter().map(|case| self.read(case, named));
                return read.fold(false, |open, case| open | case);
            }
            Pat::Ident(bound) => match &bound.subpat {
                Some((_, inner)) => return self.read(inner, named),
                None => return true,
            },
            Pat::Paren(inner) => return self.read(&inner.pat, named),
            Pat::Reference(inner) => return self.read(&inner.pat, named),
            Pat::Path(pattern) => &pattern.path,
            Pat::TupleStruct(pattern) => &pattern.path,
            Pat::Struct(pattern) => &pattern.path,
            _ => return false,
        };
        let name = path.segments.last().unwrap().ident.to_string();
        if path.segments.len() > 1 && self.kinds.contains(&name) {
            named.insert(name);
        }
        false
    }

    fn read_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.read_tokens(group.stream()),
                TokenTree::Ident(ident) if ident == "Algorithm" => {
                    let next = tokens.get(index + 1);
                    if matches!(next, Some(TokenTree::Punct(sign)) if sign.as_char() == ':') {
                        self.algorithms.push(ident.span().start().line);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Visit<'_> for Lists<'_> {
    fn visit_item_mod(&mut self, module: &ItemMod) {
        if !has_cfg_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_expr_match(&mut self, list: &ExprMatch) {
        let mut named = BTreeSet::new();
        let mut is_open = false;
        for arm in &list.arms {
            is_open |= self.read(&arm.pat, &mut named);
        }
        if is_open && named.len() > 1 {
            self.open.push(list.match_token.span.start().line);
        }
        visit::visit_expr_match(self, list);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let mut before_the_last = path.segments.iter().rev().skip(1);
        if let Some(segment) = before_the_last.find(|segment| segment.ident == "Algorithm") {
            self.algorithms.push(segment.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    /// `matches!` and its like.
    fn visit_macro(&mut self, call: &Macro) {
        self.read_tokens(call.tokens.clone());
    }
}

#[test]
fn no_list_of_kinds_has_a_wildcard() {
    let kinds = kinds();
    let mut open = Vec::new();
    for (file, content) in CRATES.iter().flat_map(|name| product(name)) {
        let lines = Lists::of(&kinds, &content).open;
        open.extend(
            lines
                .into_iter()
                .map(|line| format!("crates/{file}:{line}")),
        );
    }

    assert!(
        open.is_empty(),
        "a new algorithm gets the wildcard's answer, and the compiler says nothing:\n{}",
        open.join("\n")
    );
}

#[test]
fn no_other_crate_than_core_names_an_algorithm() {
    let kinds = kinds();
    let mut names = Vec::new();
    let mut used = BTreeSet::new();
    for name in CRATES.iter().filter(|name| **name != "core") {
        for (file, content) in product(name) {
            let lines = Lists::of(&kinds, &content).algorithms;
            if NAMES_AN_ALGORITHM
                .iter()
                .any(|(excepted, _)| *excepted == file)
            {
                used.extend((!lines.is_empty()).then_some(file));
            } else {
                names.extend(
                    lines
                        .into_iter()
                        .map(|line| format!("crates/{file}:{line}")),
                );
            }
        }
    }

    assert!(
        names.is_empty(),
        "match `quota.unit()`, which needs no wildcard, and not `quota.algorithm()`:\n{}",
        names.join("\n")
    );
    for (file, reason) in NAMES_AN_ALGORITHM {
        assert!(!reason.is_empty());
        assert!(
            used.contains(*file),
            "{file} is an exception that nothing needs"
        );
    }
}

#[test]
fn a_list_names_several_kinds_and_a_question_names_one() {
    let kinds = kinds();
    assert!(kinds.contains("SlidingLog") && kinds.contains("Held"));
    let read = |code: &str| {
        let content = syn::parse_str(&format!("fn f() {{ {code} }}")).unwrap();
        let lists = Lists::of(&kinds, &content);
        (lists.open.len(), lists.algorithms.len())
    };

    assert_eq!(
        read("match u { Unit::Gcra | Unit::Ban => 1, _ => 2 }"),
        (1, 0)
    );
    assert_eq!(
        read("match r { Self::Gcra(_) => 1, Rule::Held(_) => 2, other => 3 }"),
        (1, 0)
    );
    assert_eq!(
        read("match u { Unit::Gcra if x => 1, Unit::Ban => 2, u @ _ => 3 }"),
        (1, 0)
    );
    assert_eq!(read("match u { Unit::Ban => true, _ => false }"), (0, 0));
    assert_eq!(read("match u { Unit::Gcra => 1, Unit::Held => 2 }"), (0, 0));
    assert_eq!(read("matches!(q.algorithm(), Algorithm::Gcra)"), (0, 1));
    assert_eq!(
        read("q.algorithm() == crate::Algorithm::SlidingLog"),
        (0, 1)
    );
    assert_eq!(read("q.try_using(q.algorithm())"), (0, 0));
}
