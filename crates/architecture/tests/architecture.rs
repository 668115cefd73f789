//! The crates of Tollgate have no circles among their modules, and depend on each other in one order.
//!
//! `ARCHITECTURE=tollgate cargo test -p tollgate-architecture` holds another crate as well: the name is that of a folder in
//! `crates`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::{env, fs};

use tollgate_architecture::{House, Pair, Sources, Whole, order};

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
    "scale",
    "server",
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

/// Modules and their children that are one thing, by the folder of their crate.
const WHOLES: &[(&str, Whole<'_>)] = &[
    (
        "bench",
        Whole {
            module: "scenario",
            parts: &["axum_governor", "checks", "known", "leased"],
            reason: "the scenarios of a contender or of one subject are served by the steps that all scenarios share",
        },
    ),
    (
        "cli",
        Whole {
            module: "doctor",
            parts: &["checks", "topology"],
            reason: "the checks make findings, and the doctor asks one after the other",
        },
    ),
    (
        "cli",
        Whole {
            module: "explain",
            parts: &["json", "text"],
            reason: "the account, its text, and the same for programs",
        },
    ),
    (
        "cli",
        Whole {
            module: "log",
            parts: &["combined"],
            reason: "the format that is read unless another is recognised, and the words that all formats share",
        },
    ),
    (
        "cli",
        Whole {
            module: "picture",
            parts: &["page"],
            reason: "the charts and the page on which they stand",
        },
    ),
    (
        "cli",
        Whole {
            module: "simulate",
            parts: &["json", "pictures", "text"],
            reason: "the simulation and the forms of its report",
        },
    ),
    (
        "cli",
        Whole {
            module: "suggest",
            parts: &["json", "pictures", "text"],
            reason: "the suggestion and the forms of its report",
        },
    ),
    (
        "core",
        Whole {
            module: "algorithm",
            parts: &[
                "calendar_window",
                "fixed_window",
                "gcra",
                "held",
                "interval_refill",
                "once",
                "penalty",
                "rolling_window",
                "sliding_log",
                "sliding_window",
                "state",
            ],
            reason: "the trait of the rules, and the list of those that implement it",
        },
    ),
    (
        "core",
        Whole {
            module: "algorithm::gcra",
            parts: &["credits", "notes", "parts", "queue", "warming"],
            reason: "one rule: each child holds a part of its state, and counts in its units",
        },
    ),
    (
        "core",
        Whole {
            module: "engine",
            parts: &["bans", "ids"],
            reason: "one decision: the steps for bans and ids call the general one, which sends charges with a ban or an id to them",
        },
    ),
    (
        "core",
        Whole {
            module: "key",
            parts: &["repr"],
            reason: "the key and its bytes in memory",
        },
    ),
    (
        "core",
        Whole {
            module: "quota",
            parts: &["waits"],
            reason: "the quota's waits are methods of the quota",
        },
    ),
    (
        "core",
        Whole {
            module: "quota::text",
            parts: &["nearest"],
            reason: "a suggestion is a text that the grammar reads again",
        },
    ),
    (
        "fire",
        Whole {
            module: "campaign",
            parts: &["report"],
            reason: "the campaign and the report about it",
        },
    ),
    (
        "fire",
        Whole {
            module: "checker",
            parts: &[
                "answers",
                "attempts",
                "banned",
                "course",
                "leased",
                "lines",
                "once",
                "share",
                "through_envoy",
            ],
            reason: "one checker, whose rules share its tolerances",
        },
    ),
    (
        "fire",
        Whole {
            module: "checker::banned",
            parts: &["budget", "record"],
            reason: "the findings about bans and the records from which they follow",
        },
    ),
    (
        "fire",
        Whole {
            module: "client",
            parts: &[
                "knocking",
                "operating",
                "ordering",
                "replacing",
                "restarting",
                "spending",
            ],
            reason: "one client, a file for each of its trades",
        },
    ),
    (
        "fire",
        Whole {
            module: "stage",
            parts: &["fleet", "network"],
            reason: "one stage, a file for each part of its set",
        },
    ),
    (
        "http",
        Whole {
            module: "answer::fields",
            parts: &["draft_07", "draft_11"],
            reason: "the forms of the header fields, and what they share",
        },
    ),
    (
        "limiter",
        Whole {
            module: "client",
            parts: &["walk"],
            reason: "the trusted proxies and the walk back through them",
        },
    ),
    (
        "limiter",
        Whole {
            module: "key",
            parts: &["client_ip", "later"],
            reason: "the trait of extractors, and the two that the trait's own type names: the default, and those that answer later",
        },
    ),
    (
        "limiter",
        Whole {
            module: "limiter",
            parts: &[
                "admission",
                "builder",
                "check",
                "entry",
                "line",
                "places",
                "switches",
            ],
            reason: "the limiter's methods in files by topic: they see its fields, which no other module does",
        },
    ),
    (
        "limiter",
        Whole {
            module: "limiter::admission",
            parts: &["pending"],
            reason: "an admission is either ruled or pending, and a pending one ends as a ruling",
        },
    ),
    (
        "limiter",
        Whole {
            module: "policy",
            parts: &[
                "answer_cache",
                "ban",
                "classes",
                "conditions",
                "cost",
                "exemptions",
                "grpc",
                "label",
                "limit",
                "lists",
                "lookup",
                "messages",
                "once",
                "outcome",
                "switch",
                "tiers",
            ],
            reason: "the policy's settings in files by topic, each with the type and the builder's methods for it",
        },
    ),
    (
        "limiter",
        Whole {
            module: "policy::tiers",
            parts: &["states"],
            reason: "tiers and the states that tell them apart",
        },
    ),
    (
        "redis",
        Whole {
            module: "cluster",
            parts: &["forward"],
            reason: "the cluster, and the jobs that it sends on to another node",
        },
    ),
    (
        "redis",
        Whole {
            module: "dispatch",
            parts: &["batch", "lane", "reconnect", "traffic"],
            reason: "the dispatch and the tasks that it starts: each works on its queue",
        },
    ),
    (
        "redis",
        Whole {
            module: "name",
            parts: &["identity", "read"],
            reason: "names of keys: written in one file, read in another, by the same grammar",
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
    let wholes: Vec<_> = (WHOLES.iter())
        .filter(|(of, _)| *of == name)
        .map(|(_, whole)| *whole)
        .collect();
    assert!(wholes.iter().all(|whole| !whole.reason.is_empty()));
    house.violations(&pairs, &wholes)
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

#[test]
fn core_and_the_limiter_depend_on_crates_from_outside_for_a_reason_alone() {
    for folder in ["core", "limiter"] {
        let path = crates().join(folder).join("Cargo.toml");
        let manifest: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
        assert_eq!(order::foreign_violations(&manifest), [""; 0]);
    }
}

fn sources(files: &[(&str, &str)]) -> Sources {
    files
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

fn violations_of(files: &[(&str, &str)]) -> Vec<String> {
    House::read(&sources(files)).unwrap().violations(&[], &[])
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
fn a_parent_and_its_child_go_in_no_circle_whether_others_can_name_the_child_or_not() {
    for child in ["mod", "pub(crate) mod"] {
        let violations = violations_of(&[
            ("lib.rs", "mod limiter;\n"),
            (
                "limiter.rs",
                &format!("{child} ledger;\nuse ledger::Ledger;\npub struct Limiter(Ledger);\n"),
            ),
            (
                "limiter/ledger.rs",
                "use super::Limiter;\npub struct Ledger(Option<Box<Limiter>>);\n",
            ),
        ]);
        assert_eq!(
            violations,
            ["a circle of imports: limiter -> limiter::ledger -> limiter\
              \n    limiter.rs:2 names ledger::Ledger\
              \n    limiter/ledger.rs:1 names super::Limiter"],
            "{child}"
        );
    }
}

#[test]
fn a_parent_does_not_need_what_it_only_hands_on_and_a_child_not_what_its_parent_has_from_elsewhere()
{
    let house = |parent: &str| {
        violations_of(&[
            ("lib.rs", "mod limiter;\n"),
            ("limiter.rs", parent),
            (
                "limiter/ledger.rs",
                "use super::{Arc, Limiter, Plan};\npub struct Ledger(Limiter, Plan, Arc<()>);\n",
            ),
            ("limiter/plan.rs", "pub struct Plan;\n"),
        ])
    };
    let names =
        "mod ledger;\nmod plan;\nuse std::sync::Arc;\nuse plan::Plan;\npub use ledger::Ledger;\n";

    assert_eq!(house(&format!("{names}pub struct Limiter;\n")), [""; 0]);
    let ledger_in_use = house(&format!("{names}pub struct Limiter(Option<Ledger>);\n"));
    assert_eq!(ledger_in_use.len(), 1, "{ledger_in_use:?}");
}

#[test]
fn a_glob_import_counts_as_one_of_each_name_that_is_used() {
    let violations = |ledger: &str| {
        violations_of(&[
            ("lib.rs", "mod limiter;\n"),
            (
                "limiter.rs",
                "mod ledger;\nmod line;\nuse line::Line;\npub use ledger::Ledger;\npub struct Limiter(Line);\n",
            ),
            ("limiter/ledger.rs", ledger),
            (
                "limiter/line.rs",
                "use super::ledger::Ledger;\npub struct Line(Ledger);\n",
            ),
        ])
    };
    let between = "limiter::ledger -> limiter::line -> limiter::ledger";

    let with_name = violations("use super::*;\npub struct Ledger(Option<Box<Line>>);\n");
    assert!(
        with_name.iter().any(|one| one.contains(between)),
        "{with_name:?}"
    );
    let without = violations("use super::*;\npub struct Ledger(Option<Box<Limiter>>);\n");
    assert_eq!(without.len(), 1, "{without:?}");
    assert!(!without[0].contains(between), "{without:?}");
}

#[test]
fn a_name_is_followed_through_a_glob_reexport() {
    let violations = violations_of(&[
        ("lib.rs", "mod a;\nmod b;\npub use b::*;\n"),
        ("a.rs", "use crate::B;\npub struct A(Option<Box<B>>);\n"),
        ("b.rs", "use crate::a::A;\npub struct B(A);\n"),
    ]);

    assert_eq!(
        violations,
        ["a circle of imports: a -> b -> a\
          \n    a.rs:1 names crate::B\
          \n    b.rs:1 names crate::a::A"]
    );
}

#[test]
fn a_glob_import_of_the_parent_closes_a_circle_and_one_of_the_root_runs_upward() {
    let of_parent = violations_of(&[
        ("lib.rs", "mod cluster;\n"),
        (
            "cluster.rs",
            "mod learn;\nuse learn::*;\npub struct Cluster(Map);\n",
        ),
        (
            "cluster/learn.rs",
            "use super::*;\npub struct Map(Option<Box<Cluster>>);\n",
        ),
    ]);
    let of_root = violations_of(&[
        ("lib.rs", "mod a;\npub struct Top;\n"),
        ("a.rs", "use crate::*;\npub struct A(Top);\n"),
    ]);

    assert_eq!(of_parent.len(), 1, "{of_parent:?}");
    assert!(
        of_parent[0].contains("cluster -> cluster::learn -> cluster"),
        "{of_parent:?}"
    );
    assert_eq!(
        of_root,
        [
            "a.rs:1 imports crate::*, which the root of the crate defines: an import that runs upward"
        ]
    );
}

#[test]
fn parts_of_a_whole_are_allowed_for_as_long_as_they_are_parts_and_form_no_circle_by_themselves() {
    let house = |line: &str, limiter: &str| {
        let files = [
            ("lib.rs", "mod limiter;\n"),
            ("limiter.rs", limiter),
            ("limiter/line.rs", line),
            (
                "limiter/places.rs",
                "use super::Limiter;\nuse super::line::Line;\npub struct Places(Limiter, Line);\n",
            ),
        ];
        let whole = [Whole {
            module: "limiter",
            parts: &["line", "places"],
            reason: "they are one thing",
        }];
        House::read(&sources(&files))
            .unwrap()
            .violations(&[], &whole)
    };
    let limiter = "mod line;\nmod places;\nuse line::Line;\nuse places::Places;\npub struct Limiter(Line, Places);\n";
    let line = "use super::Limiter;\npub struct Line(Limiter);\n";

    assert_eq!(house(line, limiter), [""; 0]);
    assert_eq!(
        house("pub struct Line;\n", limiter),
        ["line stands in the list of parts of limiter, and is in no circle with it"]
    );
    let among_parts = house(
        "use super::places::Places;\npub struct Line(Places);\n",
        limiter,
    );
    assert_eq!(among_parts.len(), 1, "{among_parts:?}");
    assert!(
        among_parts[0].contains("limiter::line -> limiter::places -> limiter::line"),
        "{among_parts:?}"
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

    assert_eq!(one_thing.violations(&pair, &[]), [""; 0]);
    assert_eq!(
        no_more.violations(&pair, &[]),
        ["a and b stand in the list of pairs, and do not import each other"]
    );
}
