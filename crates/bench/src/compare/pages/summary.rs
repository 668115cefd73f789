//! The short table in the README, between two marks.

use std::fs;
use std::path::Path;

use tollgate_bench::Scenario;

use super::super::figures::{Table, figure, thousands};
use super::super::report::{Report, Served};
use crate::Result;

const BEGIN: &str = "<!-- what follows is written by the benchmarks -->\n";
const END: &str = "<!-- until here -->\n";

pub(super) fn write(report: &Report, readme: &Path) -> Result<()> {
    let text = fs::read_to_string(readme)?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) =
        parts.ok_or("README.md does not say where the table of the benchmarks stands")?;
    let written = format!("{before}{BEGIN}{}{END}{after}", summary(report));
    Ok(fs::write(readme, written)?)
}

fn summary(report: &Report) -> String {
    let mut table = Table::new(&["", "Tollgate", "instead"]);
    let layers = [
        (Scenario::CheckAddress, "instructions of a check in memory"),
        (
            Scenario::TollgateHeaders,
            "instructions of the layer, allowed, with headers, readable by handlers",
        ),
        (
            Scenario::TollgateDenied,
            "instructions of the layer, denied",
        ),
    ];
    for (scenario, what) in layers {
        let row = report
            .layers
            .iter()
            .find(|row| row.scenario == scenario.name());
        let both = row.and_then(|row| Some((row.by.first()?, row.by.get(1)?)));
        if let Some((ours, theirs)) = both
            && let Some((cost, instead)) = ours.instructions.zip(theirs.instructions)
        {
            table.row(&[
                what.to_owned(),
                thousands(cost as f64),
                format!("{} ({})", thousands(instead as f64), theirs.who),
            ]);
        }
    }
    for point in report
        .redis
        .iter()
        .filter(|point| [64, 256].contains(&point.in_flight))
    {
        if let [ours, theirs, ..] = &*point.by {
            let hot = if point.callers == 1 {
                ", one hot key"
            } else {
                ""
            };
            table.row(&[
                format!(
                    "decisions per second on Redis, {} in flight{hot}",
                    point.in_flight
                ),
                thousands(ours.per_second),
                format!("{} ({})", thousands(theirs.per_second), theirs.who),
            ]);
        }
    }
    for (who, peer) in [
        ("Tollgate, memory", "tower_governor"),
        ("Tollgate, Redis", "tower-rate-limit-redis"),
    ] {
        let find = |who: &str| report.http.iter().find(|served| served.who == who);
        if let (Some(ours), Some(theirs)) = (find(who), find(peer)) {
            let by_bare = |served: &Served| figure(served.rate_by_bare);
            let place = if who.ends_with("Redis") {
                "on Redis"
            } else {
                "in memory"
            };
            table.row(&[
                format!(
                    "requests per second of axum, as a share of those without a limiter, {place}"
                ),
                by_bare(ours),
                format!("{} ({peer})", by_bare(theirs)),
            ]);
        }
    }
    table.finish()
}
