//! The public items that the crate `tollgate` hands on, read from the sources: the names in `crates/tollgate/src/lib.rs`, and the
//! types, traits and functions behind them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub use tollgate_architecture::files::{crates, sources};

use syn::{Attribute, Expr, File, ImplItem, Item, Lit, Meta, TraitItem, Type, UseTree, Visibility};

/// An item that a user can name.
#[derive(Debug, Default)]
pub struct Public {
    pub docs: String,
    /// Inherent methods of a type, or methods of a trait, each with its docs.
    pub methods: BTreeMap<String, String>,
    /// The docs of fields and variants.
    pub inner_docs: String,
    /// The files that define items of this name. More than one is ambiguous.
    pub defined_in: Vec<PathBuf>,
}

/// The public items of one crate by their names, wherever they stand in it.
pub type Items = BTreeMap<String, Public>;

pub fn docs(attributes: &[Attribute]) -> String {
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
pub fn has(attributes: &[Attribute], name: &str, word: &str) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident(name) => list.tokens.to_string() == word,
        _ => false,
    })
}

pub fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

pub fn name_of(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

pub fn read_items(file: &Path, content: Vec<Item>, items: &mut Items) {
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

pub fn parse(file: &Path) -> File {
    let text = fs::read_to_string(file).unwrap();
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The items of a crate, by the name that code has for it: `tollgate_core`.
pub fn items_of(name: &str) -> Items {
    let mut items = Items::new();
    for path in sources(folder_of(name)).unwrap() {
        read_items(&path, parse(&path).items, &mut items);
    }
    items
}

pub fn folder_of(crate_name: &str) -> &str {
    crate_name.strip_prefix("tollgate_").unwrap()
}

/// The paths that a `use` hands on.
pub fn paths(tree: &UseTree, before: &[String], found: &mut Vec<Vec<String>>) {
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
pub fn handed_on(file: &Path) -> Vec<Vec<String>> {
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
pub fn renames(tree: &UseTree, found: &mut BTreeMap<String, String>) {
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
pub fn surface() -> Vec<(String, String, String)> {
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
pub fn is_constant(name: &str) -> bool {
    !name.contains(char::is_lowercase)
}

/// The targets of links to items in a text, outside of code blocks.
pub fn links(docs: &str) -> Vec<String> {
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
pub fn linked_name(target: &str) -> Option<&str> {
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
