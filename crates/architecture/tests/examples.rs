//! Every public item that the crate `tollgate` hands on has an example that runs.
//!
//! The items are read from the sources: the names in `crates/tollgate/src/lib.rs`, and the types, traits and functions behind them.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Expr, File, ImplItem, Item, Lit, Meta, TraitItem, Type, UseTree, Visibility};

/// Methods without an example of their own, by the names of their types. Each type comes with the reason.
const EXCEPTIONS: &[(&str, &[&str], &str)] = &[(
    "Receipt",
    &["credit_to", "debit_from"],
    "a backend calls them with its states, which are tollgate-core's: tollgate hands no state on",
)];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// An item that a user can name.
#[derive(Debug, Default)]
struct Public {
    docs: String,
    /// Inherent methods of a type, or methods of a trait, each with its docs.
    methods: BTreeMap<String, String>,
    /// The docs of fields and variants.
    inner_docs: String,
    /// The files that define items of this name. More than one is ambiguous.
    defined_in: Vec<PathBuf>,
}

/// The public items of one crate by their names, wherever they stand in it.
type Items = BTreeMap<String, Public>;

fn docs(attributes: &[Attribute]) -> String {
    let mut docs = String::new();
    for attribute in attributes {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(literal) = &pair.value
            && let Lit::Str(text) = &literal.lit
        {
            docs.push_str(&text.value());
            docs.push('\n');
        }
    }
    docs
}

/// True if an attribute is `name(word)`, as `#[doc(hidden)]` and `#[cfg(test)]` are.
fn has(attributes: &[Attribute], name: &str, word: &str) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident(name) => list.tokens.to_string() == word,
        _ => false,
    })
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn name_of(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

fn read_items(file: &Path, content: Vec<Item>, items: &mut Items) {
    for item in content {
        let (name, attributes, visibility) = match &item {
            Item::Struct(item) => (&item.ident, &item.attrs, &item.vis),
            Item::Enum(item) => (&item.ident, &item.attrs, &item.vis),
            Item::Type(item) => (&item.ident, &item.attrs, &item.vis),
            Item::Fn(item) => (&item.sig.ident, &item.attrs, &item.vis),
            Item::Trait(item) => (&item.ident, &item.attrs, &item.vis),
            // `/// …` above `pub use other_crate::name`: the docs that users read stand here.
            Item::Use(item) if is_public(&item.vis) && !docs(&item.attrs).is_empty() => {
                let mut found = Vec::new();
                paths(&item.tree, &[], &mut found);
                for path in found {
                    let public = items.entry(path.last().unwrap().clone()).or_default();
                    public.defined_in.push(file.to_owned());
                    public.docs.insert_str(0, &docs(&item.attrs));
                }
                continue;
            }
            Item::Mod(module) => {
                if !has(&module.attrs, "cfg", "test")
                    && let Some((_, content)) = &module.content
                {
                    read_items(file, content.clone(), items);
                }
                continue;
            }
            Item::Impl(block) if block.trait_.is_none() => {
                let Some(name) = name_of(&block.self_ty) else {
                    continue;
                };
                let public = items.entry(name).or_default();
                public.docs.push_str(&docs(&block.attrs));
                for method in &block.items {
                    if let ImplItem::Fn(method) = method
                        && is_public(&method.vis)
                        && !has(&method.attrs, "doc", "hidden")
                        && !has(&method.attrs, "cfg", "test")
                        && !has(&method.attrs, "cfg", "loom")
                    {
                        let name = method.sig.ident.to_string();
                        public.methods.insert(name, docs(&method.attrs));
                    }
                }
                continue;
            }
            // `pin_project! { pub struct .. }`. A text that is not a list of items defines none.
            Item::Macro(item) if item.ident.is_none() => {
                if let Ok(inner) = item.mac.parse_body::<File>() {
                    read_items(file, inner.items, items);
                }
                continue;
            }
            _ => continue,
        };
        if !is_public(visibility) || has(attributes, "cfg", "test") {
            continue;
        }
        let public = items.entry(name.to_string()).or_default();
        public.defined_in.push(file.to_owned());
        public.docs.insert_str(0, &docs(attributes));
        let fields: Vec<_> = match &item {
            Item::Struct(item) => item.fields.iter().collect(),
            Item::Enum(item) => {
                for variant in &item.variants {
                    public.inner_docs.push_str(&docs(&variant.attrs));
                }
                let fields = item.variants.iter().flat_map(|variant| &variant.fields);
                fields.collect()
            }
            _ => Vec::new(),
        };
        for field in fields {
            public.inner_docs.push_str(&docs(&field.attrs));
        }
        if let Item::Trait(item) = &item {
            for method in &item.items {
                if let TraitItem::Fn(method) = method
                    && !has(&method.attrs, "doc", "hidden")
                {
                    let name = method.sig.ident.to_string();
                    public.methods.insert(name, docs(&method.attrs));
                }
            }
        }
    }
}

fn parse(file: &Path) -> File {
    let text = fs::read_to_string(file).unwrap();
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The items of a crate, by the name that code has for it: `tollgate_core`.
fn items_of(name: &str) -> Items {
    let mut items = Items::new();
    let mut folders = vec![crates().join(folder_of(name)).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                read_items(&path, parse(&path).items, &mut items);
            }
        }
    }
    items
}

fn folder_of(crate_name: &str) -> &str {
    crate_name.strip_prefix("tollgate_").unwrap()
}

/// The paths that a `use` hands on.
fn paths(tree: &UseTree, before: &[String], found: &mut Vec<Vec<String>>) {
    let joined = |name: String| before.iter().cloned().chain([name]).collect::<Vec<_>>();
    match tree {
        UseTree::Path(path) => paths(&path.tree, &joined(path.ident.to_string()), found),
        UseTree::Name(name) => found.push(joined(name.ident.to_string())),
        // The item has the documentation under either name.
        UseTree::Rename(name) => found.push(joined(name.ident.to_string())),
        UseTree::Group(group) => {
            for tree in &group.items {
                paths(tree, before, found);
            }
        }
        UseTree::Glob(_) => panic!("a glob hides the names that {before:?} hands on"),
    }
}

/// The names that a file hands on or defines in public, each with the crate or module it is taken from.
fn handed_on(file: &Path) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for item in parse(file).items {
        match item {
            Item::Use(item) if is_public(&item.vis) && !has(&item.attrs, "doc", "hidden") => {
                paths(&item.tree, &[], &mut found);
            }
            Item::Struct(item) if is_public(&item.vis) => found.push(vec![item.ident.to_string()]),
            Item::Enum(item) if is_public(&item.vis) => found.push(vec![item.ident.to_string()]),
            Item::Trait(item) if is_public(&item.vis) => found.push(vec![item.ident.to_string()]),
            Item::Type(item) if is_public(&item.vis) => found.push(vec![item.ident.to_string()]),
            Item::Fn(item) if is_public(&item.vis) => found.push(vec![item.sig.ident.to_string()]),
            Item::Const(item) if is_public(&item.vis) => found.push(vec![item.ident.to_string()]),
            _ => {}
        }
    }
    found
}

/// The names under which users find an item that a `use` renames.
fn renames(tree: &UseTree, found: &mut BTreeMap<String, String>) {
    match tree {
        UseTree::Path(path) => renames(&path.tree, found),
        UseTree::Rename(name) => {
            found.insert(name.ident.to_string(), name.rename.to_string());
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                renames(tree, found);
            }
        }
        UseTree::Name(_) | UseTree::Glob(_) => {}
    }
}

/// The names that a user can write: the crate that defines it, the words before its name, and its name.
fn surface() -> Vec<(String, String, String)> {
    let mut surface = Vec::new();
    for path in handed_on(&crates().join("tollgate/src/lib.rs")) {
        let [crate_name, name] = &path[..] else {
            // The struct that carries the README's examples.
            assert_eq!(path, ["ReadmeExamples"]);
            continue;
        };
        let module = crates()
            .join(folder_of(crate_name))
            .join(format!("src/{name}.rs"));
        if name.starts_with(char::is_lowercase) && module.exists() {
            for inner in handed_on(&module) {
                let inner = inner.last().unwrap().clone();
                surface.push((crate_name.clone(), format!("{name}::"), inner));
            }
        } else {
            surface.push((crate_name.clone(), String::new(), name.clone()));
        }
    }
    surface
}

/// True if an item needs no example: a constant says all by its value.
fn is_constant(name: &str) -> bool {
    !name.contains(char::is_lowercase)
}

/// The targets of links to items in a text, outside of code blocks.
fn links(docs: &str) -> Vec<String> {
    let mut text = String::new();
    let mut is_code = false;
    for line in docs.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            text.push_str(line);
            text.push('\n');
        }
    }
    let mut links = Vec::new();
    for (at, _) in text.match_indices(']') {
        let (before, behind) = (&text[..at], &text[at + 1..]);
        if let Some(target) = behind.strip_prefix('(') {
            let target = target.split(')').next().unwrap();
            if target.contains("::") && !target.contains('/') {
                links.push(target.to_owned());
            }
        } else if let Some(name) = before.strip_suffix('`')
            && let Some((head, name)) = name.rsplit_once('`')
            && head.ends_with('[')
        {
            links.push(name.to_owned());
        }
    }
    links
}

/// The name of ours that a link begins with, or nothing for `Self` and for names of other crates.
fn linked_name(target: &str) -> Option<&str> {
    let target = target.strip_prefix("macro@").unwrap_or(target);
    if target.starts_with("std::") {
        return None;
    }
    let is_module = |word: &str| {
        word.starts_with("tollgate_")
            || ["crate", "super", "key", "config", "proto"].contains(&word)
    };
    let name = target.split("::").find(|word| !is_module(word))?;
    (name != "Self").then_some(name.trim_end_matches("()"))
}

/// The code blocks of a text that rustdoc compiles and that compile.
fn examples(docs: &str) -> Vec<String> {
    let mut examples = Vec::new();
    let mut block: Option<(bool, String)> = None;
    for line in docs.lines() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            block = match block {
                None => {
                    let compiles = (info.split(','))
                        .all(|word| ["", "rust", "no_run", "should_panic"].contains(&word.trim()));
                    Some((compiles, String::new()))
                }
                Some((compiles, code)) => {
                    if compiles {
                        examples.push(code);
                    }
                    None
                }
            };
        } else if let Some((_, code)) = &mut block {
            code.push_str(line);
            code.push('\n');
        }
    }
    examples
}

/// The tokens of an example, with those of its hidden lines. Comments are not among them, and a text is one token.
fn tokens(code: &str) -> Vec<TokenTree> {
    fn flatten(tokens: TokenStream, flat: &mut Vec<TokenTree>) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => flatten(group.stream(), flat),
                token => flat.push(token),
            }
        }
    }
    let visible = |line: &str| match line.trim_start() {
        "#" => String::new(),
        hidden => hidden.strip_prefix("# ").unwrap_or(line).to_owned(),
    };
    let lines: Vec<_> = code.lines().map(visible).collect();
    let text = lines.join("\n");
    let tokens = TokenStream::from_str(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    let mut flat = Vec::new();
    flatten(tokens, &mut flat);
    flat
}

/// True if code calls a method of this name, names it by a path, or implements it.
fn shows(code: &str, method: &str) -> bool {
    let tokens = tokens(code);
    let mut pairs = tokens.iter().zip(tokens.iter().skip(1));
    pairs.any(|(before, token)| {
        let leads = match before {
            TokenTree::Punct(sign) => ['.', ':'].contains(&sign.as_char()),
            TokenTree::Ident(word) => word == "fn",
            _ => false,
        };
        leads && matches!(token, TokenTree::Ident(name) if name == method)
    })
}

/// True if code names an item.
fn names(code: &str, item: &str) -> bool {
    let tokens = tokens(code);
    let mut idents = tokens.iter().filter_map(|token| match token {
        TokenTree::Ident(ident) => Some(ident),
        _ => None,
    });
    idents.any(|ident| ident == item)
}

#[test]
fn every_public_item_of_the_crate_tollgate_has_an_example() {
    let mut crates: BTreeMap<String, Items> = BTreeMap::new();
    let mut without = Vec::new();
    let mut foreign = Vec::new();
    let mut used = Vec::new();
    let mut seen = 0;
    let mut renamed = BTreeMap::new();
    for item in parse(&self::crates().join("tollgate/src/lib.rs")).items {
        if let Item::Use(item) = item {
            renames(&item.tree, &mut renamed);
        }
    }
    for (crate_name, module, name) in surface() {
        if is_constant(&name) {
            continue;
        }
        let items = (crates.entry(crate_name.clone())).or_insert_with(|| items_of(&crate_name));
        let public = (items.get(&name)).unwrap_or_else(|| panic!("{crate_name} has no {name}"));
        assert_eq!(
            public.defined_in.len(),
            1,
            "{name} is defined in {:?}",
            public.defined_in
        );
        let of_type = examples(&public.docs);
        let excepted = EXCEPTIONS.iter().find(|(of, _, _)| *of == name);
        seen += 1 + public.methods.len();
        let path = format!("tollgate::{module}{name}");
        // A value that a function gives need not be named by its type, but then something is done with it.
        let uses = |code: &String| {
            let mut own = [Some(&name), renamed.get(&name)].into_iter().flatten();
            let mut methods = public.methods.keys();
            own.any(|name| names(code, name)) || methods.any(|method| shows(code, method))
        };
        if !of_type.iter().any(uses) {
            without.push(path.clone());
        }
        for (method, docs) in &public.methods {
            let own = examples(docs);
            if own.iter().chain(&of_type).any(|code| shows(code, method)) {
                continue;
            }
            match excepted {
                Some((_, methods, _)) if methods.contains(&method.as_str()) => {
                    used.push((name.clone(), method.clone()));
                }
                _ => without.push(format!("{path}::{method}")),
            }
        }
        let own_docs = [&public.docs].into_iter().chain(public.methods.values());
        for code in own_docs.flat_map(|docs| examples(docs)) {
            if code.contains("tollgate_") {
                foreign.push(path.clone());
            }
        }
    }

    foreign.dedup();
    assert!(
        foreign.is_empty() && without.is_empty(),
        "examples name a crate that users do not: {foreign:?}\n{} of {seen} public items have no example:\n{}",
        without.len(),
        without.join("\n")
    );
    for (name, methods, reason) in EXCEPTIONS {
        assert!(!reason.is_empty());
        for method in *methods {
            assert!(
                used.iter().any(|(of, used)| of == name && used == method),
                "{name}::{method} is an exception that nothing needs"
            );
        }
    }
}

#[test]
fn an_example_is_a_block_that_compiles_and_shows_the_method_by_its_name() {
    let docs = "Text.\n\n```toml\na = 1\n```\n\n```\nkey.bytes();\n```\n\n```compile_fail\nkey.not();\n```\n";

    let [code] = &examples(docs)[..] else {
        panic!("one block");
    };

    assert!(shows(code, "bytes"));
    assert!(!shows(code, "byte"), "a part of a name is another name");
    assert!(!shows(code, "key"), "a variable is not a method");
    assert!(!shows(
        "// key.bytes()\nlet name = \"Key::bytes\";",
        "bytes"
    ));
    assert!(
        shows("# key.bytes();\n#\nlet a = 1;", "bytes"),
        "a hidden line is code"
    );
    assert!(names("let key: Key = text.into();", "Key"));
    assert!(!names("// A `Key`.\nlet key = Keys::of(\"Key\");", "Key"));
    assert!(shows("fn extract(&self)", "extract"));
    assert!(shows("Key::bytes(b\"a\")", "bytes"));
}

#[test]
fn every_link_in_the_docs_of_the_crate_tollgate_leads_to_an_item_of_it() {
    let surface = surface();
    let names: BTreeSet<_> = surface.iter().map(|(_, _, name)| name.as_str()).collect();
    let mut crates: BTreeMap<&str, Items> = BTreeMap::new();
    let mut dead = BTreeSet::new();
    for (crate_name, module, name) in &surface {
        let items = crates
            .entry(crate_name)
            .or_insert_with(|| items_of(crate_name));
        let Some(public) = items.get(name) else {
            continue;
        };
        let texts = [&public.docs, &public.inner_docs].into_iter();
        for target in texts
            .chain(public.methods.values())
            .flat_map(|docs| links(docs))
        {
            if let Some(linked) = linked_name(&target)
                && !names.contains(linked)
            {
                dead.insert(format!("tollgate::{module}{name} links {target}"));
            }
        }
    }

    let dead: Vec<_> = dead.into_iter().collect();
    assert!(dead.is_empty(), "dead brackets:\n{}", dead.join("\n"));
}

#[test]
fn a_link_is_found_by_its_target_or_by_its_own_words() {
    let docs = "See [`Key`], [`State`](crate::State), [debit](crate::Backend::debit) and [a page](https://x/y).\n\n```\na[`B`]\n```\n";

    let links = links(docs);

    assert_eq!(links, ["Key", "crate::State", "crate::Backend::debit"]);
    assert_eq!(
        linked_name("crate::key::KeyMissing::ambiguous"),
        Some("KeyMissing")
    );
    assert_eq!(linked_name("Self::place"), None);
}
