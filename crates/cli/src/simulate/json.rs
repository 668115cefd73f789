//! The report of a replay, for programs.

use serde_json::{Value, json};

use super::Simulation;
use super::rows::{CallerRow, ChangedRow, CostRow, PathRow, PlaceRow, PolicyRow};
use super::tally::Tally;
use super::tiers::TierRow;
use crate::arguments::SimulateArguments;

/// Spans of time in the report.
const SPANS: usize = 1_000;

/// Callers and routes in the report.
const ROWS: usize = 100;

pub(super) fn report(asked: &SimulateArguments, simulation: &Simulation) -> String {
    let Simulation {
        reading,
        tally,
        names,
        left_out,
        against,
    } = simulation;
    let garbled = reading
        .samples
        .iter()
        .map(|(number, reason, text)| json!({ "line": number, "reason": reason, "text": text }));
    let mut report = json!({
        "log": asked.log.display().to_string(),
        "limits": asked.limits.display().to_string(),
        "format": reading.format.map(crate::log::Format::name),
        "lines": reading.lines,
        "garbled": { "lines": reading.garbled, "samples": garbled.collect::<Vec<_>>() },
        "without_request": reading.without_request,
        "unroutable": tally.unroutable,
        "without_cost": tally.without_cost,
        "sorted": reading.sorted,
        "whole_seconds": reading.has_whole_seconds,
        "status_429": reading.refused_then,
        "left_out": left_out,
        "replay": replay(tally, names),
    });
    if let (Some((theirs, their_names, difference)), Some(path)) = (against, &asked.against) {
        report["against"] = json!({
            "limits": path.display().to_string(),
            "newly_refused": difference.newly_refused,
            "no_longer_refused": difference.no_longer_refused,
            "callers": ChangedRow::top(difference, ROWS),
            "replay": replay(theirs, their_names),
        });
    }
    format!("{report:#}\n")
}

fn replay(tally: &Tally, names: &[String]) -> Value {
    let (start_us, width_us, spans) = tally.timeline.columns(SPANS);
    let spans = spans
        .iter()
        .map(|span| json!([span.requests, span.refused]));
    let samples = tally
        .samples
        .iter()
        .map(|(number, line)| json!({ "line": number, "text": line }));
    json!({
        "requests": tally.requests,
        "refused": tally.refused,
        "addresses": tally.callers(),
        "refused_callers": tally.refused_callers(),
        "first_us": tally.first_us,
        "last_us": tally.last_us,
        "policies": PolicyRow::all(tally, names),
        "tiers": TierRow::all(&tally.tiers, names),
        "costs": CostRow::all(tally, names),
        "under_way": PlaceRow::all(tally, names),
        "over_time": { "start_us": start_us, "width_us": width_us, "requests_and_refused": spans.collect::<Vec<_>>() },
        "callers": CallerRow::top(tally, names, ROWS),
        "paths": PathRow::top(tally, names, ROWS),
        "samples": samples.collect::<Vec<_>>(),
    })
}
