//! The report of a replay, for people.

use super::Simulation;
use super::rows::{CallerRow, ChangedRow, CostRow, PathRow, PlaceRow, PolicyRow};
use super::tally::Tally;
use super::tiers::TierRow;
use crate::arguments::SimulateArguments;
use crate::figures::{
    counted, duration, grouped, millionths, moment, percent, shown, sparkline, table,
};

/// Columns of the picture over time.
const COLUMNS: usize = 60;

/// Rows of each table.
const ROWS: usize = 10;

/// The report.
pub(super) fn report(asked: &SimulateArguments, simulation: &Simulation) -> String {
    let Simulation {
        tally,
        names,
        left_out,
        against,
        ..
    } = simulation;
    let mut lines = vec![format!(
        "{} by {}",
        asked.log.display(),
        asked.limits.display()
    )];
    lines.push(format!(
        "  {} of {}, {} to {} (UTC)",
        counted(tally.requests, "request"),
        counted(tally.callers() as u64, "address"),
        moment(tally.first_us),
        moment(tally.last_us)
    ));
    let twice = match tally.refusing_policies() {
        0 | 1 => "",
        _ => ", each counted once by every policy that refuses it",
    };
    lines.push(format!(
        "  refused: {} ({}); refused callers: {}{twice}",
        counted(tally.refused, "request"),
        percent(tally.refused, tally.requests),
        grouped(tally.refused_callers() as u64)
    ));
    lines.push("\npolicies".to_owned());
    let rows = PolicyRow::all(tally, names);
    let rows = rows.iter().map(PolicyRow::cells).collect();
    table(PolicyRow::NAMES, rows, &mut lines);
    if !left_out.is_empty() {
        lines.push(format!("  takes no part: {}", left_out.join(", ")));
    }
    let rows = TierRow::all(&tally.tiers, names);
    if !rows.is_empty() {
        lines.push("\ntiers".to_owned());
        let rows = rows.iter().map(TierRow::cells).collect();
        table(TierRow::NAMES, rows, &mut lines);
    }
    let rows = CostRow::all(tally, names);
    if !rows.is_empty() {
        lines.push("\ncosts".to_owned());
        let rows = rows.iter().map(CostRow::cells).collect();
        table(CostRow::NAMES, rows, &mut lines);
    }
    let rows = PlaceRow::all(tally, names);
    if !rows.is_empty() {
        lines.push("\nrequests under way, refused or not".to_owned());
        let rows = rows.iter().map(PlaceRow::cells).collect();
        table(PlaceRow::NAMES, rows, &mut lines);
    }
    if tally.refused > 0 {
        over_time(tally, &mut lines);
        lines.push("\ncallers that are refused most".to_owned());
        let rows = CallerRow::top(tally, names, ROWS);
        let rows = rows.iter().map(CallerRow::cells).collect();
        table(CallerRow::NAMES, rows, &mut lines);
        lines.push("\npaths that are refused most".to_owned());
        let rows = PathRow::top(tally, names, ROWS);
        let rows = rows.iter().map(PathRow::cells).collect();
        table(PathRow::NAMES, rows, &mut lines);
        lines.push("\nthe first lines that are refused".to_owned());
        let samples = tally.samples.iter();
        lines.extend(samples.map(|(number, line)| format!("  {number}: {}", shown(line))));
    }
    if let (Some((theirs, _, difference)), Some(path)) = (against, &asked.against) {
        lines.push(format!("\nagainst {}", path.display()));
        lines.push(format!(
            "  it refuses {} requests ({}); {} pass by it and are refused now, {} are refused by it and pass now",
            grouped(theirs.refused),
            percent(theirs.refused, theirs.requests),
            grouped(difference.newly_refused),
            grouped(difference.no_longer_refused)
        ));
        let rows = ChangedRow::top(difference, ROWS);
        let rows = rows.iter().map(ChangedRow::cells).collect();
        table(ChangedRow::NAMES, rows, &mut lines);
    }
    let doubts = doubts(simulation);
    if !doubts.is_empty() {
        lines.push("\nabout the log".to_owned());
        lines.extend(doubts.into_iter().map(|doubt| format!("  {doubt}")));
    }
    lines.join("\n") + "\n"
}

fn over_time(tally: &Tally, lines: &mut Vec<String>) {
    let (start_us, width_us, spans) = tally.timeline.columns(COLUMNS);
    let shares = spans
        .iter()
        .map(|span| millionths(span.refused, span.requests));
    let shares: Vec<_> = shares.collect();
    let Some(highest) = (0..spans.len()).max_by_key(|place| (shares[*place], spans.len() - place))
    else {
        return;
    };
    let span = spans[highest];
    let at_us = start_us + highest as u64 * width_us;
    lines.push(format!(
        "\nrefused share over time, {} a column",
        duration(width_us)
    ));
    lines.push(format!("  {}", sparkline(&shares)));
    lines.push(format!(
        "  highest from {}: {} of {} requests ({})",
        moment(at_us),
        grouped(span.refused),
        grouped(span.requests),
        percent(span.refused, span.requests)
    ));
}

/// The facts that the log cannot tell, as far as they matter here.
pub(super) fn doubts(simulation: &Simulation) -> Vec<String> {
    let Simulation {
        reading,
        tally,
        names,
        ..
    } = simulation;
    let mut doubts = Vec::new();
    for row in PolicyRow::all(tally, names) {
        if row.without_identity > 0 && row.without_identity == row.covered {
            doubts.push(format!(
                "The log has no identity for policy {}: what the policy does with its callers cannot be told. Log the part of a request that its key reads.",
                row.policy
            ));
        }
    }
    if reading.has_whole_seconds {
        doubts.push(
            "Times are whole seconds: requests of one second count as one burst, so that small bursts are refused rather too often."
                .to_owned(),
        );
    }
    if reading.refused_then > 0 {
        doubts.push(format!(
            "Requests with the status 429: {}. A limit refused them then, and their callers came later than they would have.",
            grouped(reading.refused_then)
        ));
    }
    if tally.refused > 0 {
        doubts.push("A refused caller may try again: such retries are not in the log.".to_owned());
        let mut top = CallerRow::top(tally, names, ROWS).into_iter();
        if top.any(|caller| caller.has_many) {
            doubts.push(
                "A caller with many programs is likely to be many people behind one address."
                    .to_owned(),
            );
        }
    }
    if reading.without_request > 0 {
        doubts.push(format!(
            "Lines that tell of no request, and do not count: {}.",
            grouped(reading.without_request)
        ));
    }
    if tally.unroutable > 0 {
        doubts.push(format!(
            "Requests with a target that no server routes: {}. No policy decided them.",
            grouped(tally.unroutable)
        ));
    }
    if tally.without_cost > 0 {
        doubts.push(format!(
            "Requests without a cost, of which one unit is charged: {}.",
            grouped(tally.without_cost)
        ));
    }
    if reading.sorted > 0 {
        doubts.push(format!(
            "Lines that were late, and were sorted in: {}.",
            grouped(reading.sorted)
        ));
    }
    if reading.garbled > 0 {
        doubts.push(format!(
            "Lines that cannot be read, and do not count: {} ({}).",
            grouped(reading.garbled),
            percent(reading.garbled, reading.lines)
        ));
        let samples = reading.samples.iter();
        doubts.extend(
            samples.map(|(number, reason, text)| {
                format!("  line {number}: {reason}: {}", shown(text))
            }),
        );
    }
    doubts
}
