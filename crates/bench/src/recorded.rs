//! The instructions of each scenario as they were last recorded, in a file that a change is held to.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use tollgate_bench::Scenario;

use crate::Result;
use crate::callgrind::Counter;
use crate::compare::BY_PEER;

/// The scenarios that are recorded: ours.
const RECORDED: &[Scenario] = &[
    Scenario::CheckAddress,
    Scenario::CheckShortText,
    Scenario::CheckText,
    Scenario::CheckUuid,
    Scenario::CheckHeld,
    Scenario::CheckFixedWindow,
    Scenario::CheckIntervalRefill,
    Scenario::CheckCalendar,
    Scenario::CheckWarmUp,
    Scenario::CheckUpTo,
    Scenario::CheckOnce,
    Scenario::CheckReplay,
    Scenario::CheckTwo,
    Scenario::CheckEight,
    Scenario::TollgatePlain,
    Scenario::TollgateStatus,
    Scenario::TollgateFields,
    Scenario::TollgateHeaders,
    Scenario::TollgateTyped,
    Scenario::TollgateVaried,
    Scenario::TollgateDenied,
    Scenario::TollgateHeld,
    Scenario::TollgateHeldStreamed,
    Scenario::TollgateIpv6,
    Scenario::TollgatePost,
    Scenario::TollgatePostHeaders,
    Scenario::TollgateUnderPressure,
    Scenario::TollgateObserved,
    Scenario::TollgateMetered,
    Scenario::TollgateExported,
    Scenario::TollgateReplaced,
    Scenario::TollgateDeniedAlike,
    Scenario::TollgateDeniedPlain,
    Scenario::TollgateKnown,
    Scenario::TollgateKnownPlain,
    Scenario::TollgateLeased,
    Scenario::FloodKnown,
    Scenario::FloodAsked,
    Scenario::TollgateOffenders,
    Scenario::TollgateOffendersMany,
    Scenario::TollgateShare,
    Scenario::TollgateBan,
    Scenario::TollgateBanned,
    Scenario::TollgateOneRoute,
    Scenario::TollgateHundredRoutes,
];

/// The percentage above its record that a scenario may cost. An inliner moves code that a change did not touch by two or three.
const MORE: i64 = 5;

/// Counts all and writes the file.
pub(crate) fn record() -> Result<()> {
    let counter = Counter::of(RECORDED.iter().copied())?;
    let mut text = String::new();
    for scenario in RECORDED {
        let cost = counter.above_baseline(*scenario)?.instructions;
        writeln!(text, "{} {cost}", scenario.name())?;
    }
    fs::write(path(), text)?;
    println!("{} is written", path().display());
    Ok(())
}

/// Fails, naming each, if a scenario costs more than its record allows. Says how the scenarios stand to their peers.
pub(crate) fn check() -> Result<()> {
    let text = fs::read_to_string(path())?;
    let peers = BY_PEER.iter().flat_map(|floor| [floor.ours, floor.peer]);
    let counter = Counter::of(RECORDED.iter().copied().chain(peers))?;
    let cost = |scenario| -> Result<i64> { Ok(counter.above_baseline(scenario)?.instructions) };
    let mut dearer = Vec::new();
    for &scenario in RECORDED {
        let (name, cost) = (scenario.name(), cost(scenario)?);
        let recorded = recorded(&text, name)?;
        println!("{cost:>7}  {name}, recorded as {recorded}");
        if cost * 100 > recorded * (100 + MORE) {
            dearer.push(format!("{name} costs {cost}, recorded as {recorded}"));
        }
    }
    for floor in BY_PEER {
        let (ours, theirs) = (cost(floor.ours)?, cost(floor.peer)?);
        let ratio = ours as f64 / theirs as f64;
        println!(
            "{ratio:>7.2}  {} by {}, floor {}",
            floor.ours.name(),
            floor.peer.name(),
            floor.most
        );
    }
    if dearer.is_empty() {
        return Ok(());
    }
    let dearer = dearer.join("; ");
    let more = format!(
        "{dearer}: more than {MORE} % above the record. If the change is worth it, run `instructions --record` and give the reason \
         in the commit"
    );
    Err(more.into())
}

fn recorded(text: &str, name: &str) -> Result<i64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let line = lines.find(|(scenario, _)| *scenario == name);
    let (_, count) = line.ok_or_else(|| format!("{name} is not recorded"))?;
    Ok(count.parse()?)
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.txt")
}
