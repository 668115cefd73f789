//! `BENCHMARKS.md`, written from what was measured and never by hand.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use tollgate_bench::Scenario;

use crate::Result;
use crate::callgrind::above_baseline;

/// What is compared: a line of the table, ours, and what one would use instead.
const ROWS: &[(&str, Scenario, Option<Scenario>)] = &[
    (
        "one check in memory, address",
        Scenario::CheckAddress,
        Some(Scenario::GovernorCheckAddress),
    ),
    (
        "one check in memory, text of 31 bytes",
        Scenario::CheckText,
        Some(Scenario::GovernorCheckText),
    ),
    (
        "layer, allowed, no headers",
        Scenario::TollgatePlain,
        Some(Scenario::GovernorPlain),
    ),
    (
        "the same, readable by handlers",
        Scenario::TollgateStatus,
        None,
    ),
    (
        "layer, allowed, with headers",
        Scenario::TollgateFields,
        Some(Scenario::GovernorHeaders),
    ),
    (
        "the same, readable by handlers",
        Scenario::TollgateHeaders,
        Some(Scenario::GovernorHeaders),
    ),
    (
        "the same, on a response that has headers",
        Scenario::TollgateTyped,
        Some(Scenario::GovernorTyped),
    ),
    (
        "the same, no two callers with the same left",
        Scenario::TollgateVaried,
        Some(Scenario::GovernorHeaders),
    ),
    (
        "layer, denied",
        Scenario::TollgateDenied,
        Some(Scenario::GovernorDenied),
    ),
    (
        "one policy with a route, no headers",
        Scenario::TollgateOneRoute,
        None,
    ),
    (
        "a hundred policies with a route each, no headers",
        Scenario::TollgateHundredRoutes,
        None,
    ),
];

const METHOD: &str = "\
# Benchmarks

Written by `cargo run --release -p tollgate-bench -- report`; to be rerun, not believed.

Instructions per request above the same request without a limiter, counted by valgrind's callgrind: unlike times they are the
same on a busy machine. One request is built for each round, a thousand client addresses take turns, and a service without a
router answers 200 at once. Release profile, no link-time optimisation. Both sides run in one process of their own, with the
peer's default key, and with as much budget as never runs out (denied: as little as one request spends).

What the figures do not say: tower_governor tells handlers nothing, has one quota and one key for all requests, and knows no
routes; a check of governor's answers yes or no, and one of Tollgate's also what is left and until when. The row with callers
that all differ is what header values cost that were not written before.
";

pub(crate) fn write() -> Result<()> {
    let mut text = METHOD.to_owned();
    writeln!(
        text,
        "\n{}, tower_governor {}, governor {}.\n",
        rustc()?,
        version("tower_governor")?,
        version("governor")?
    )?;
    text.push_str(
        "| what | Tollgate | tower_governor or governor | ratio |\n| --- | ---: | ---: | ---: |\n",
    );
    for (what, ours, theirs) in ROWS {
        let cost = above_baseline(*ours)?;
        let (peer, ratio) = match theirs {
            None => ("–".to_owned(), "–".to_owned()),
            Some(theirs) => {
                let theirs = above_baseline(*theirs)?;
                (theirs.to_string(), hundredths(cost, theirs))
            }
        };
        println!("{cost:>7} {peer:>7}  {what}");
        writeln!(text, "| {what} | {cost} | {peer} | {ratio} |")?;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../BENCHMARKS.md");
    fs::write(path, text)?;
    Ok(())
}

fn hundredths(of: i64, to: i64) -> String {
    let hundredths = of * 100 / to.max(1);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn rustc() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// As the lock file has it.
fn version(name: &str) -> Result<String> {
    let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock"))?;
    let package = format!("name = \"{name}\"\nversion = \"");
    let found = lock
        .split_once(&package)
        .and_then(|(_, rest)| rest.split_once('"'));
    Ok(found.ok_or("not in the lock file")?.0.to_owned())
}
