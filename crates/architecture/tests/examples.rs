//! Every public item that the crate `tollgate` hands on has an example that runs, and examples name no other crate.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[allow(
    dead_code,
    unreachable_pub,
    reason = "every file of tests has it for itself"
)]
mod surface;

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};
use surface::{
    Items, crates, docs, folder_of, is_constant, items_of, linked_name, links, parse, renames,
    sources, surface,
};
use syn::{AttrStyle, Attribute, Item};

/// Methods without an example of their own, by the names of their types. Each type comes with the reason.
const EXCEPTIONS: &[(&str, &[&str], &str)] = &[(
    "Receipt",
    &["credit_to", "debit_from"],
    "a backend calls them with its states, which are tollgate-core's: tollgate hands no state on",
)];

/// Files whose module docs may name their own crate, each with the reason.
const MODULES_FOR_BACKENDS: &[(&str, &str)] = &[(
    "core/src/lib.rs",
    "it shows how a backend decides, by names that tollgate does not hand on",
)];

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

/// True if an example names a crate that users do not: they name `tollgate` alone.
fn names_another_crate(docs: &str) -> bool {
    let tokens = examples(docs).into_iter().flat_map(|code| tokens(&code));
    tokens
        .into_iter()
        .any(|token| matches!(token, TokenTree::Ident(name) if name.to_string().starts_with("tollgate_")))
}

/// The docs that stand inside of a module (`//!`), and inside of the modules that it contains.
fn docs_of_modules(attributes: &[Attribute], items: &[Item]) -> Vec<String> {
    let is_inner = |attribute: &&Attribute| matches!(attribute.style, AttrStyle::Inner(_));
    let inner: Vec<_> = attributes.iter().filter(is_inner).cloned().collect();
    let mut found = vec![docs(&inner)];
    for item in items {
        if let Item::Mod(module) = item
            && let Some((_, items)) = &module.content
        {
            found.extend(docs_of_modules(&module.attrs, items));
        }
    }
    found
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
        let fixed = [&public.docs, &public.inner_docs].into_iter();
        let mut own_docs = fixed.chain(public.methods.values());
        if own_docs.any(|docs| names_another_crate(docs)) {
            foreign.push(path.clone());
        }
    }

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
fn examples_in_the_docs_of_modules_name_only_the_crate_tollgate() {
    let surface = surface();
    let behind: BTreeSet<_> = surface.iter().map(|(name, _, _)| folder_of(name)).collect();
    assert!(behind.len() > 4, "{behind:?}");
    let (mut read, mut foreign) = (0, BTreeSet::new());
    for folder in behind.into_iter().chain(["tollgate"]) {
        for path in sources(folder).unwrap() {
            let file = parse(&path);
            let of_modules = docs_of_modules(&file.attrs, &file.items);
            read += of_modules
                .iter()
                .map(|docs| examples(docs).len())
                .sum::<usize>();
            if of_modules.iter().any(|docs| names_another_crate(docs)) {
                let inside = path.strip_prefix(crates()).unwrap();
                foreign.insert(inside.display().to_string());
            }
        }
    }

    assert!(read > 5, "{read} examples were found");
    let excepted: BTreeSet<_> = (MODULES_FOR_BACKENDS.iter())
        .map(|(path, _)| (*path).to_owned())
        .collect();
    assert_eq!(
        foreign, excepted,
        "examples name a crate that users do not, or an exception is needed no more"
    );
}

#[test]
fn an_example_that_names_another_crate_is_found_in_the_docs_of_a_module() {
    let named = |text: &str| {
        let file = syn::parse_file(text).unwrap();
        let of_modules = docs_of_modules(&file.attrs, &file.items);
        of_modules.iter().any(|docs| names_another_crate(docs))
    };

    assert!(named(
        "//! Text.\n//!\n//! ```\n//! use tollgate_core::Key;\n//! ```\n"
    ));
    assert!(
        named("//! ```\n//! # use tollgate_core::Key;\n//! ```\n"),
        "a hidden line is code"
    );
    assert!(named(
        "mod inside {\n//! ```\n//! tollgate_memory::Stats;\n//! ```\n}\n"
    ));
    assert!(!named(
        "//! `tollgate_core` keeps it.\n//!\n//! ```\n//! use tollgate::Key;\n//! ```\n"
    ));
    assert!(!named(
        "//! ```\n//! // As tollgate_core has it.\n//! ```\n"
    ));
    assert!(
        !named("/// ```\n/// use tollgate_core::Key;\n/// ```\nmod outside {}\n"),
        "the docs above an item belong to the item"
    );
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
