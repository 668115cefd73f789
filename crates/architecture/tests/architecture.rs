//! The crates of Tollgate have no circles among their modules, and depend on each other in one order.
//!
//! `ARCHITECTURE=tollgate cargo test -p tollgate-architecture` holds another crate as well: the name is that of a folder in
//! `crates`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::{env, fs};

use tollgate_architecture::{House, Pair, Sources, order};

/// Crates without circles, by their folders. A crate stays in the list.
const HELD: &[&str] = &[
    "architecture",
    "bench",
    "cli",
    "conformance",
    "core",
    "fire",
    "fuzz",
    "grpc",
    "http",
    "limiter",
    "macros",
    "memory",
    "redis",
    "testkit",
    "tollgate",
];

/// Pairs of modules that are one thing, by the folder of their crate.
const PAIRS: &[(&str, Pair<'_>)] = &[
    (
        "memory",
        Pair {
            modules: ["backend", "builder"],
            reason: "the builder makes the backend, and `MemoryBackend::builder` is where one begins",
        },
    ),
    (
        "redis",
        Pair {
            modules: ["backend", "config"],
            reason: "the builder makes the backend, and `RedisBackend::builder` is where one begins",
        },
    ),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn violations(name: &str) -> Vec<String> {
    let house = House::open(&crates().join(name).join("src")).unwrap();
    let pairs: Vec<_> = (PAIRS.iter())
        .filter(|(of, _)| *of == name)
        .map(|(_, pair)| *pair)
        .collect();
    assert!(pairs.iter().all(|pair| !pair.reason.is_empty()));
    house.violations(&pairs)
}

#[test]
fn no_crate_has_a_circle_among_its_modules_or_an_import_that_runs_upward() {
    let asked = env::var("ARCHITECTURE").unwrap_or_default();
    let asked = asked.split(',').filter(|name| !name.is_empty());

    let mut report = String::new();
    for name in HELD.iter().copied().chain(asked) {
        for violation in violations(name) {
            report.push_str(&format!("\ncrates/{name}: {violation}\n"));
        }
    }

    assert!(report.is_empty(), "{report}");
}

#[test]
fn crates_that_ship_depend_in_one_order() {
    let mut seen = 0;
    let mut report = String::new();
    for folder in fs::read_dir(crates()).unwrap() {
        let Ok(text) = fs::read_to_string(folder.unwrap().path().join("Cargo.toml")) else {
            continue;
        };
        let manifest: toml::Table = text.parse().unwrap();
        seen += usize::from(order::ships(&manifest));
        for violation in order::violations(&manifest) {
            report.push_str(&format!("\n{violation}"));
        }
    }

    assert!(report.is_empty(), "{report}");
    assert!(seen >= 5, "{seen} crates were found that ship");
}

fn sources(files: &[(&str, &str)]) -> Sources {
    files
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

fn violations_of(files: &[(&str, &str)]) -> Vec<String> {
    House::read(&sources(files)).unwrap().violations(&[])
}

#[test]
fn a_circle_through_a_reexport_at_the_root_is_named_with_its_lines() {
    // given a queue that names a job through the root's re-export, and a job that names the queue as its parent does
    let violations = violations_of(&[
        ("lib.rs", "mod job;\nmod queue;\npub use job::Job;\n"),
        (
            "queue.rs",
            "//! A queue.\n\nuse crate::Job;\n\npub struct Queue(Vec<Job>);\n",
        ),
        ("job/mod.rs", "mod route;\npub use self::route::Job;\n"),
        (
            "job/route.rs",
            "pub struct Job {\n    at: Option<Box<crate::queue::Queue>>,\n}\n",
        ),
    ]);

    assert_eq!(
        violations,
        ["a circle of imports: job -> queue -> job\
          \n    job/route.rs:2 names crate::queue::Queue\
          \n    queue.rs:3 names crate::Job"]
    );
}

#[test]
fn a_circle_is_seen_in_groups_renamings_macros_and_paths_without_an_import() {
    for (case, use_of_b) in [
        ("a group", "use crate::{b::{self, B}};"),
        ("another name", "use crate::b::B as Other;"),
        ("a path in code", "fn f() { crate::b::g() }"),
        ("a macro's arguments", "fn f() { assert!(crate::b::g()); }"),
        ("an import within a function", "fn f() { use super::b::B; }"),
        ("a bound", "impl<T: From<super::b::B>> X for T {}"),
        ("a macro that is exported", "fn f() { crate::said!(); }"),
    ] {
        let b = "#[macro_export]\nmacro_rules! said { () => {} }\npub struct B(crate::a::A);";
        let violations = violations_of(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", use_of_b),
            ("b.rs", b),
        ]);
        assert_eq!(violations.len(), 1, "{case}: {violations:?}");
        assert!(
            violations[0].contains("a -> b -> a"),
            "{case}: {violations:?}"
        );
    }
}

#[test]
fn tests_comments_texts_and_what_other_crates_define_are_no_imports() {
    let violations = violations_of(&[
        ("lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod c;\n"),
        (
            "a.rs",
            "// crate::b::B\n/* use crate::b; */\nconst S: &str = \"crate::b::B\";\nuse std::b::B;\n\
             #[cfg(test)]\nuse crate::b::B;\n\
             #[cfg(test)]\nmod tests { use crate::b::B; }\n\
             impl A { #[cfg(test)] fn f<X, Y>() -> X { crate::b::g() } }\n",
        ),
        ("b.rs", "use crate::a::A;\n"),
    ]);

    assert_eq!(violations, [""; 0]);
}

#[test]
fn a_parent_is_one_room_with_a_private_child_and_not_with_one_that_others_can_name() {
    let house = |child: &str| {
        violations_of(&[
            ("lib.rs", "mod cluster;\n"),
            (
                "cluster.rs",
                &format!("{child} learn;\nuse learn::Map;\npub struct Cluster(Map);\n"),
            ),
            ("cluster/learn.rs", "use super::Cluster;\npub struct Map;\n"),
        ])
    };

    assert_eq!(house("mod"), [""; 0]);
    let [sentence] = &house("pub(crate) mod")[..] else {
        panic!("one circle");
    };
    assert!(
        sentence.contains("cluster -> cluster::learn -> cluster"),
        "{sentence}"
    );
}

#[test]
fn siblings_within_a_folder_go_in_no_circle_either() {
    let violations = violations_of(&[
        ("lib.rs", "mod dispatch;\n"),
        ("dispatch.rs", "mod lane;\nmod pace;\npub use lane::Lane;\n"),
        (
            "dispatch/lane.rs",
            "use super::pace::Pace;\npub struct Lane(Pace);\n",
        ),
        (
            "dispatch/pace.rs",
            "use crate::dispatch::Lane;\npub struct Pace;\n",
        ),
    ]);

    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(
        violations[0].contains("dispatch::lane -> dispatch::pace -> dispatch::lane"),
        "{violations:?}"
    );
}

#[test]
fn an_import_of_what_the_root_defines_runs_upward() {
    // given a root that defines one name, and re-exports one of another crate
    let violations = violations_of(&[
        (
            "lib.rs",
            "mod a;\npub use a::A;\npub use other::Key;\npub struct Top;\n",
        ),
        ("a.rs", "use crate::Top;\nuse crate::Key;\npub struct A;\n"),
    ]);

    assert_eq!(
        violations,
        [
            "a.rs:1 imports crate::Top, which the root of the crate defines: an import that runs upward"
        ]
    );
}

#[test]
fn a_pair_is_allowed_for_as_long_as_it_is_one() {
    let files = |a: &'static str| {
        sources(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", a),
            ("b.rs", "use crate::a::A;\npub struct B;\n"),
        ])
    };
    let pair = [Pair {
        modules: ["a", "b"],
        reason: "they are one thing",
    }];

    let one_thing = House::read(&files("use crate::b::B;\npub struct A;\n")).unwrap();
    let no_more = House::read(&files("pub struct A;\n")).unwrap();

    assert_eq!(one_thing.violations(&pair), [""; 0]);
    assert_eq!(
        no_more.violations(&pair),
        ["a and b stand in the list of pairs, and do not import each other"]
    );
}
