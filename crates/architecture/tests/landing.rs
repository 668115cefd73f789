//! The landing page of the crate `tollgate` leads on, and each of its links arrives.

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

use std::collections::BTreeMap;

use surface::{Items, crates, docs, handed_on, items_of, links, parse, surface};

/// The headings that a reader looks for, each with an item or a page that it must lead to.
const SIGNPOSTS: &[(&str, &str)] = &[
    ("Testing", "ManualClock"),
    ("Configuration", "config"),
    ("Configuration", "docs/configuration.md"),
    ("Fleets", "RedisBackend"),
    ("Fleets", "docs/redis.md"),
    ("Where to go from here", "docs/backends.md"),
    ("gRPC", "MessageLimitLayer"),
    ("Other frameworks", "AnyBodyLayer"),
    ("Failure", "OnFailure"),
];

/// Where the pages of the repository are read.
const PAGES: &str = "https://github.com/tollgate-rs/tollgate/blob/main/";

fn page() -> String {
    docs(&parse(&crates().join("tollgate/src/lib.rs")).attrs)
}

/// The addresses that names in brackets stand for: `[reference]: https://..`.
fn addresses(page: &str) -> BTreeMap<&str, &str> {
    let lines = page
        .lines()
        .filter_map(|line| line.trim().strip_prefix('['));
    lines.filter_map(|line| line.split_once("]: ")).collect()
}

/// The pages that a part of the text leads to, by the names in their brackets: `[text][name]`.
fn named(text: &str) -> Vec<&str> {
    let behind = text.split("][").skip(1);
    behind
        .map(|behind| behind.split(']').next().unwrap())
        .collect()
}

/// The names of modules and items that users can write, with the methods of each.
struct Names(BTreeMap<String, Vec<String>>);

impl Names {
    fn read() -> Self {
        let mut crates_read: BTreeMap<String, Items> = BTreeMap::new();
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (crate_name, module, name) in surface() {
            let items = crates_read.entry(crate_name.clone());
            let items = items.or_insert_with(|| items_of(&crate_name));
            let methods = items.get(&name).map(|item| item.methods.keys().cloned());
            let methods = methods.into_iter().flatten().collect();
            if let Some(module) = module.strip_suffix("::") {
                names
                    .entry(module.to_owned())
                    .or_default()
                    .push(name.clone());
            }
            names.insert(format!("{module}{name}"), methods);
        }
        for path in handed_on(&crates().join("tollgate/src/lib.rs")) {
            names.entry(path.last().unwrap().clone()).or_default();
        }
        Self(names)
    }

    /// True if a link to this item arrives: `Policy::route`, `config::watch`, `rate_limit`.
    fn has(&self, target: &str) -> bool {
        let within = |(of, name): (&str, &str)| {
            self.0
                .get(of)
                .is_some_and(|names| names.iter().any(|known| known == name))
        };
        self.0.contains_key(target) || target.rsplit_once("::").is_some_and(within)
    }
}

#[test]
fn each_link_of_the_landing_page_arrives() {
    let page = page();
    let (names, addresses) = (Names::read(), addresses(&page));
    let mut dead = Vec::new();
    let targets = links(&page);
    assert!(targets.len() > 50, "{targets:?}");
    for target in targets {
        if !names.has(&target) {
            dead.push(target);
        }
    }
    for name in named(&page) {
        if !addresses.contains_key(name) {
            dead.push(format!("[{name}] has no address"));
        }
    }
    for address in addresses.values() {
        let file = address
            .strip_prefix(PAGES)
            .map(|page| page.split('#').next().unwrap());
        if !file.is_some_and(|file| crates().join("..").join(file).is_file()) {
            dead.push((*address).to_owned());
        }
    }

    assert!(
        dead.is_empty(),
        "the landing page links what is not there: {dead:?}"
    );
}

#[test]
fn the_landing_page_leads_to_what_a_reader_looks_for() {
    let page = page();
    let addresses = addresses(&page);
    for (heading, target) in SIGNPOSTS {
        let title = format!("\n # {heading}\n");
        let (_, section) = page
            .split_once(&title)
            .unwrap_or_else(|| panic!("no heading {heading}"));
        let section = section.split("\n # ").next().unwrap();
        let pages = named(section)
            .into_iter()
            .filter_map(|name| addresses.get(name));
        let mut pages = pages.filter_map(|address| address.strip_prefix(PAGES));
        let leads =
            links(section).iter().any(|link| link == target) || pages.any(|page| page == *target);
        assert!(leads, "{heading} does not lead to {target}");
    }
}
