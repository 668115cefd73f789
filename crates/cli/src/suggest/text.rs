//! The report of `suggest`, for people.

use super::Suggestion;
use super::callers::Half;
use crate::arguments::{Counted, Identify, SuggestArguments};
use crate::figures::{counted, duration, grouped, millionths, moment, percent, sparkline, table};

/// Fewer callers say little about others.
const FEW: usize = 200;

/// Columns of a picture over time.
const COLUMNS: usize = 40;

/// Callers in the table.
const CALLERS: usize = 10;

pub(super) fn report(asked: &SuggestArguments, suggestion: &Suggestion) -> String {
    let key = match &asked.key {
        Identify::Ip => "by address".to_owned(),
        Identify::User => "by user".to_owned(),
        Identify::Header(name) => format!("by the header {name}"),
    };
    let mut lines = vec![format!("{}, {key}", asked.log.display())];
    lines.push(format!(
        "  {} of {}, {} to {} (UTC)",
        counted(suggestion.requests, "request"),
        counted(suggestion.callers.len() as u64, "caller"),
        moment(suggestion.first_us),
        moment(suggestion.last_us)
    ));
    lines.push(format!(
        "  found: limits that refuse {} of the {} at most",
        asked.refuse,
        asked.of.words()
    ));
    choices(asked, suggestion, &mut lines);
    frontier(asked, suggestion, &mut lines);
    distribution(suggestion, &mut lines);
    callers(suggestion, &mut lines);
    lines.push("\nabout the log".to_owned());
    let doubts = doubts(asked, suggestion).into_iter();
    lines.extend(doubts.map(|doubt| format!("  {doubt}")));
    lines.join("\n") + "\n"
}

fn choices(asked: &SuggestArguments, suggestion: &Suggestion, lines: &mut Vec<String>) {
    let choices = &suggestion.choices;
    // One quota may be the best in several respects.
    let is_first = |place: usize| {
        let quota = choices[place].point.quota();
        choices[..place]
            .iter()
            .all(|before| before.point.quota() != quota)
    };
    let different: Vec<_> = (0..choices.len())
        .filter(|place| is_first(*place))
        .collect();
    lines.push(match different.len() {
        1 => "\none quota is the best in each respect".to_owned(),
        2 => "\ntwo quotas to choose from".to_owned(),
        _ => "\nthree quotas to choose from".to_owned(),
    });
    for place in different {
        let point = &choices[place].point;
        let alike = choices
            .iter()
            .filter(|it| it.point.quota() == point.quota());
        let times: Vec<_> = alike.map(|it| it.words).collect();
        let most = |time_us| {
            grouped(u64::try_from(point.rate.most_in(point.burst, time_us)).unwrap_or(u64::MAX))
        };
        lines.push(format!("  quotas = \"{}\"", point.quota()));
        lines.push(format!(
            "    lets a caller do the least in any {}: {} in a second, {} in a minute, {} in an hour",
            times.join(" and in any "),
            most(1_000_000),
            most(60_000_000),
            most(3_600_000_000)
        ));
        let (found, of_found) = point.found;
        let (checked, of_checked) = point.checked;
        let of_which = match asked.of {
            Counted::Callers => "callers from which it was found",
            Counted::Requests => "requests of the callers from which it was found",
        };
        lines.push(format!(
            "    refuses {} of {} {of_which}, and {} of the {} others ({})",
            grouped(found),
            grouped(of_found),
            grouped(checked),
            grouped(of_checked),
            percent(checked, of_checked)
        ));
        if let Some(trial) = &suggestion.trial {
            let refused = trial.refused[place];
            lines.push(format!(
                "    refuses {} requests ({})",
                grouped(refused),
                percent(refused, suggestion.requests)
            ));
            if refused > 0 {
                let (_, width_us, spans) = trial.timelines[place].columns(COLUMNS);
                let shares = spans.iter();
                let shares = shares.map(|span| millionths(span.refused, span.requests));
                let shares: Vec<_> = shares.collect();
                lines.push(format!(
                    "    refused share over time, {} a column: {}",
                    duration(width_us),
                    sparkline(&shares)
                ));
            }
        }
        if suggestion.reading.has_whole_seconds && asked.of == Counted::Callers {
            let (least, most) = point.between;
            lines.push(format!(
                "    if parts of seconds were known, it would refuse {} callers at least, and {} at most: those that need more than {}",
                grouped(least),
                grouped(most),
                point.least_burst_in_doubt()
            ));
        }
    }
}

fn frontier(asked: &SuggestArguments, suggestion: &Suggestion, lines: &mut Vec<String>) {
    let of = asked.of.words();
    lines.push(format!(
        "\nfor each rate the least burst that refuses no more {of}"
    ));
    let refused = format!("refused {of}");
    let rows = suggestion.frontier.iter().map(|point| {
        let refused = point.found.0 + point.checked.0;
        [
            point.rate.text(),
            grouped(point.burst.into()),
            grouped(refused),
            percent(point.checked.0, point.checked.1),
        ]
    });
    let names = ["rate", "burst", &refused, "share of the half that checks"];
    table(names, rows.collect(), lines);
}

fn distribution(suggestion: &Suggestion, lines: &mut Vec<String>) {
    lines.push("\nthe burst that so many callers get along with".to_owned());
    let rows = suggestion.frontier.iter().map(|point| {
        let [half, nine, ninety_nine, many, all] =
            point.distribution.map(|burst| grouped(burst.into()));
        [point.rate.text(), half, nine, ninety_nine, many, all]
    });
    let names = [
        "rate",
        "half",
        "9 of 10",
        "99 of 100",
        "999 of 1,000",
        "all",
    ];
    table(names, rows.collect(), lines);
}

fn callers(suggestion: &Suggestion, lines: &mut Vec<String>) {
    let Some(choice) = suggestion.choices.get(1) else {
        return;
    };
    let place = choice.point.place;
    let rate = choice.point.rate.text();
    lines.push(format!("\ncallers that need the largest bursts at {rate}"));
    let rows = suggestion
        .callers
        .top(place, CALLERS)
        .into_iter()
        .map(|(identity, caller)| {
            let programs = suggestion
                .trial
                .as_ref()
                .map(|trial| trial.programs(identity));
            [
                identity.words(),
                grouped(caller.requests.into()),
                grouped(caller.bursts[place].into()),
                programs.unwrap_or_else(|| "?".to_owned()),
            ]
        });
    table(
        ["caller", "requests", "least burst", "programs"],
        rows.collect(),
        lines,
    );
}

/// The facts that the log cannot tell.
pub(super) fn doubts(asked: &SuggestArguments, suggestion: &Suggestion) -> Vec<String> {
    let reading = &suggestion.reading;
    let mut doubts = Vec::new();
    let of_found = match asked.of {
        Counted::Callers => suggestion.callers.len().div_ceil(2) as u64,
        Counted::Requests => suggestion.callers.requests(Half::Found),
    };
    let may_be_refused = asked.refuse.of(of_found);
    let mut say = |words: String| doubts.push(words);
    if suggestion.callers.len() < FEW {
        say(
            "There are few callers: what these need says little about what others will need."
                .to_owned(),
        );
    }
    if may_be_refused == 0 {
        say(format!(
            "{} of {of_found} {} is less than one, so the limits were to refuse none of that half.",
            asked.refuse,
            asked.of.words()
        ));
    }
    if reading.has_whole_seconds {
        say("Times are whole seconds: requests of one second count as one burst. True bursts differ from these by up to what the rate lets pass in a second.".to_owned());
    }
    if suggestion.trial.is_none() {
        say(
            "The log came from a pipe and was read once: requests and programs were not counted."
                .to_owned(),
        );
    }
    if suggestion.trial.is_some() {
        say("Programs are counted in the requests that one of these quotas refuses; ? is a caller with none of them.".to_owned());
    }
    if suggestion.unidentified > 0 {
        say(format!(
            "Requests without such an identity, which do not count: {}.",
            grouped(suggestion.unidentified)
        ));
    }
    if let Some(words) = &suggestion.other_case {
        say(format!("{}.", words.replacen("methods", "Methods", 1)));
    }
    if suggestion.without_cost > 0 {
        say(format!(
            "Requests without a cost, which count as one unit: {}.",
            grouped(suggestion.without_cost)
        ));
    }
    if reading.refused_then > 0 {
        say(format!(
            "Requests with the status 429: {}. A limit acts already, so callers may want more than the log shows.",
            grouped(reading.refused_then)
        ));
    }
    if reading.garbled > 0 {
        say(format!(
            "Lines that cannot be read, and do not count: {} ({}).",
            grouped(reading.garbled),
            percent(reading.garbled, reading.lines)
        ));
    }
    say("Servers that write a line when a request has ended, as nginx does, show the ends of requests and not their beginnings.".to_owned());
    say("A refused caller may try again: such retries are not in the log.".to_owned());
    say(
        "Many people may share an address: a caller with many programs is likely to be such."
            .to_owned(),
    );
    doubts
}
