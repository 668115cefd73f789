//! No crate has a circle among its modules.

use tollgate_architecture::{House, Sources};

use crate::crates;

/// Modules that are one thing in several files, by the folder of their crate. A name that begins with `::` is that of a child.
const WHOLES: &str = "
bench: scenario ::axum_governor ::checks ::known ::leased
    -- the scenarios of a contender or of one subject are served by the steps that all scenarios share
cli: doctor ::checks ::topology
    -- the checks make findings, and the doctor asks one after the other
cli: explain ::json ::text
    -- the account, its text, and the same for programs
cli: log ::combined
    -- the format that is read unless another is recognised, and the words that all formats share
cli: picture ::page
    -- the charts and the page on which they stand
cli: simulate ::json ::pictures ::text
    -- the simulation and the forms of its report
cli: suggest ::json ::pictures ::text
    -- the suggestion and the forms of its report
core: algorithm ::calendar_window ::fixed_window ::gcra ::held ::interval_refill ::once ::penalty ::rolling_window
    ::sliding_log ::sliding_window ::state
    -- the trait of the rules, and the list of those that implement it
core: algorithm::gcra ::credits ::notes ::parts ::queue ::warming
    -- one rule: each child holds a part of its state, and counts in its units
core: key ::repr
    -- the key and its bytes in memory
core: quota ::waits
    -- the quota's waits are methods of the quota
core: quota::text ::nearest
    -- a suggestion is a text that the grammar reads again
fire: campaign ::report
    -- the campaign and the report about it
fire: checker ::answers ::attempts ::banned ::course ::leased ::lines ::once ::share ::through_envoy
    -- one checker, whose rules share its tolerances
fire: checker::banned ::budget ::record
    -- the findings about bans and the records from which they follow
fire: client ::knocking ::operating ::ordering ::replacing ::restarting ::spending
    -- one client, a file for each of its trades
fire: stage ::fleet ::network
    -- one stage, a file for each part of its set
http: answer::fields ::draft_07 ::draft_11
    -- the forms of the header fields, and what they share
limiter: client ::walk
    -- the trusted proxies and the walk back through them
limiter: key ::client_ip ::later
    -- the trait of extractors, and the two that the trait's own type names: the default, and those that answer later
limiter: limiter ::admission ::builder ::check ::entry ::line ::places ::switches
    -- the limiter's methods in files by topic: they see its fields, which no other module does
limiter: limiter::admission ::pending
    -- an admission is either ruled or pending, and a pending one ends as a ruling
limiter: policy ::answer_cache ::ban ::classes ::conditions ::cost ::exemptions ::grpc ::label ::limit ::lists ::lookup
    ::messages ::once ::outcome ::switch ::tiers
    -- the policy's settings in files by topic, each with the type and the builder's methods for it
limiter: policy::tiers ::states
    -- tiers and the states that tell them apart
memory: backend builder
    -- the builder makes the backend, and `MemoryBackend::builder` is where one begins
redis: backend config
    -- the builder makes the backend, and `RedisBackend::builder` is where one begins
redis: cluster ::forward
    -- the cluster, and the jobs that it sends on to another node
redis: dispatch ::batch ::lane ::reconnect ::traffic
    -- the dispatch and the tasks that it starts: each works on its queue
redis: name ::identity ::read
    -- names of keys: written in one file, read in another, by the same grammar
";

/// The wholes of a crate: full names, the module itself first.
fn wholes_of(name: &str) -> Vec<Vec<String>> {
    let entries = WHOLES.replace("\n    ", " ");
    let of_crate = entries.lines().filter_map(|entry| {
        let (modules, reason) = entry.split_once(" -- ")?;
        assert!(!reason.is_empty());
        modules.strip_prefix(name)?.strip_prefix(": ")
    });
    let whole = |modules: &str| {
        let module = modules.split(' ').next().unwrap_or_default();
        let full = modules.replace(" ::", &format!(" {module}::"));
        full.split(' ').map(str::to_owned).collect()
    };
    of_crate.map(whole).collect()
}

#[test]
fn no_crate_has_a_circle_among_its_modules_or_an_import_that_runs_upward() {
    let mut report = String::new();
    for (name, folder) in crates() {
        let house = House::open(&folder.join("src")).unwrap();
        for violation in house.violations(&wholes_of(&name)) {
            report += &format!("\ncrates/{name}: {violation}\n");
        }
    }
    assert!(report.is_empty(), "{report}");
}

fn violations_with(whole: &[&str], files: &[(&str, &str)]) -> Vec<String> {
    let files = files
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    let whole = whole.iter().map(|module| (*module).to_owned()).collect();
    let house = House::read(&files.collect::<Sources>()).unwrap();
    house.violations(&[whole])
}

fn violations_of(files: &[(&str, &str)]) -> Vec<String> {
    violations_with(&[], files)
}

#[test]
fn a_circle_through_a_reexport_at_the_root_is_named_with_its_lines() {
    let violations = violations_of(&[
        ("lib.rs", "mod job;\nmod queue;\npub use job::Job;\n"),
        (
            "queue.rs",
            "//! A queue.\n\nuse crate::Job;\n\npub struct Queue(Vec<Job>);\n",
        ),
        ("job/mod.rs", "mod route;\npub use self::route::Job;\n"),
        (
            "job/route.rs",
            "pub struct Job {\n    at: Box<crate::queue::Queue>,\n}\n",
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
        (
            "behind what is captured",
            "impl A { fn f() -> impl X + use<> {} fn g() { crate::b::g() } }",
        ),
    ] {
        let violations = violations_of(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", use_of_b),
            ("b.rs", "pub struct B(crate::a::A);"),
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
fn a_parent_and_its_child_go_in_no_circle_but_it_does_not_need_what_it_only_hands_on() {
    let house = |parent: &str| {
        violations_of(&[
            ("lib.rs", "mod limiter;\n"),
            ("limiter.rs", &format!("mod ledger;\n{parent}\n")),
            (
                "limiter/ledger.rs",
                "use super::Limiter;\npub struct Ledger(Limiter);\n",
            ),
        ])
    };

    assert_eq!(
        house("pub use ledger::Ledger;\npub struct Limiter;"),
        [""; 0]
    );
    assert_eq!(
        house("use ledger::Ledger;\npub struct Limiter(Ledger);"),
        ["a circle of imports: limiter -> limiter::ledger -> limiter\
          \n    limiter.rs:2 names ledger::Ledger\
          \n    limiter/ledger.rs:1 names super::Limiter"]
    );
}

#[test]
fn parts_of_a_whole_are_allowed_for_as_long_as_they_are_parts_and_form_no_circle_by_themselves() {
    let house = |line: &str| {
        violations_with(
            &["limiter", "limiter::line", "limiter::places"],
            &[
                ("lib.rs", "mod limiter;\n"),
                (
                    "limiter.rs",
                    "mod line;\nmod places;\nstruct Limiter(line::Line, places::Places);\n",
                ),
                ("limiter/line.rs", line),
                (
                    "limiter/places.rs",
                    "struct Places(super::Limiter, super::line::Line);\n",
                ),
            ],
        )
    };

    assert_eq!(house("struct Line(super::Limiter);\n"), [""; 0]);
    assert_eq!(
        house("struct Line;\n"),
        ["limiter::line is listed as a part of limiter, and is in no circle with it"]
    );
    let among_parts = house("struct Line(super::places::Places);\n");
    assert_eq!(among_parts.len(), 1, "{among_parts:?}");
    assert!(among_parts[0].contains("limiter::line -> limiter::places -> limiter::line"));
}

#[test]
fn an_import_of_what_the_root_defines_runs_upward_and_one_of_everything_is_none() {
    let violations = violations_of(&[
        (
            "lib.rs",
            "mod a;\npub use a::A;\npub use other::Key;\npub struct Top;\n",
        ),
        (
            "a.rs",
            "use crate::{Key, Top};\nuse crate::*;\npub struct A;\n",
        ),
    ]);

    assert_eq!(
        violations,
        [
            "a.rs:1 imports crate::Top, which the root of the crate defines: an import that runs upward",
            "a.rs:2 imports crate::*: name what it takes"
        ]
    );
}
