//! The report of `suggest`, for programs.

use serde_json::{Value, json};

use super::Suggestion;
use super::frontier::Point;
use crate::arguments::{Counted, SuggestArguments};

/// Callers in the report.
const CALLERS: usize = 100;

pub(super) fn report(asked: &SuggestArguments, suggestion: &Suggestion) -> String {
    let reading = &suggestion.reading;
    let choices = suggestion
        .choices
        .iter()
        .enumerate()
        .map(|(place, choice)| {
            let mut value = point(&choice.point, asked.of);
            value["least_in"] = json!(choice.words);
            value["least_in_us"] = json!(choice.time_us);
            value["refused_requests"] =
                json!(suggestion.trial.as_ref().map(|trial| trial.refused[place]));
            value
        });
    let place = suggestion
        .choices
        .get(1)
        .map_or(0, |choice| choice.point.place);
    let callers = suggestion
        .callers
        .top(place, CALLERS)
        .into_iter()
        .map(|(identity, caller)| {
            json!({
                "caller": identity.words(),
                "requests": caller.requests,
                "least_burst": caller.bursts[place],
            })
        });
    let report = json!({
        "log": asked.log.display().to_string(),
        "requests": suggestion.requests,
        "callers": suggestion.callers.len(),
        "unidentified": suggestion.unidentified,
        "without_cost": suggestion.without_cost,
        "first_us": suggestion.first_us,
        "last_us": suggestion.last_us,
        "garbled": reading.garbled,
        "whole_seconds": reading.has_whole_seconds,
        "status_429": reading.refused_then,
        "choices": choices.collect::<Vec<_>>(),
        "frontier": suggestion.frontier.iter().map(|it| point(it, asked.of)).collect::<Vec<_>>(),
        "top_callers": callers.collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

fn point(point: &Point, of: Counted) -> Value {
    let part = |(refused, all): (u64, u64)| json!({ "refused": refused, of.words(): all });
    let [half, nine, ninety_nine, many, all] = point.distribution;
    json!({
        "quota": point.quota(),
        "rate": point.rate.text(),
        "burst": point.burst,
        "found": part(point.found),
        "checked": part(point.checked),
        "refused_if_parts_of_seconds_were_known": [point.between.0, point.between.1],
        "bursts": { "50%": half, "90%": nine, "99%": ninety_nine, "99.9%": many, "100%": all },
    })
}
