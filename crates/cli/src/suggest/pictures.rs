//! The page about suggested limits: the frontier of rates and bursts, the distribution over callers, refusals over time, and the
//! callers that need most.

use super::Suggestion;
use crate::arguments::{Counted, SuggestArguments};
use crate::figures::{counted, grouped, moment, percent};
use crate::picture::{Axis, Chart, Labels, Marks, Page, Section, Tone, over_time, ratio};

/// Callers in the table.
const CALLERS: usize = 25;

/// The tones of the three choices.
const TONES: [Tone; 3] = [Tone::Dark, Tone::Middle, Tone::Light];

pub(super) fn page(asked: &SuggestArguments, suggestion: &Suggestion) -> Page {
    let title = format!("{}: limits to choose from", asked.log.display());
    let facts = format!(
        "{} of {}, {} to {} (UTC). The limits were to refuse {} of the {} at most.",
        counted(suggestion.requests, "request"),
        counted(suggestion.callers.len() as u64, "caller"),
        moment(suggestion.first_us),
        moment(suggestion.last_us),
        asked.refuse,
        asked.of.words()
    );
    let mut sections = vec![
        Section::Words {
            title: "The whole".to_owned(),
            lines: vec![facts],
        },
        choices(asked, suggestion),
        Section::Chart(frontier(suggestion)),
    ];
    sections.extend(distribution(suggestion).map(Section::Chart));
    if let Some(trial) = &suggestion.trial {
        let lines = suggestion.choices.iter().zip(TONES).enumerate();
        let lines = lines
            .map(|(number, (choice, tone))| (choice.point.quota(), tone, &trial.timelines[number]));
        sections.push(Section::Chart(over_time(
            "refused share over time",
            lines.collect(),
        )));
    }
    sections.extend(callers(suggestion));
    sections.push(Section::Words {
        title: "About the log".to_owned(),
        lines: super::text::doubts(asked, suggestion),
    });
    Page { title, sections }
}

fn choices(asked: &SuggestArguments, suggestion: &Suggestion) -> Section {
    let of_which = match asked.of {
        Counted::Callers => "refused of the callers that check it",
        Counted::Requests => "refused of the requests that check it",
    };
    let rows = suggestion.choices.iter().enumerate();
    let rows = rows.map(|(number, choice)| {
        let (refused, callers) = choice.point.checked;
        let requests = suggestion.trial.as_ref().map(|trial| {
            let refused = trial.refused[number];
            format!(
                "{} ({})",
                grouped(refused),
                percent(refused, suggestion.requests)
            )
        });
        vec![
            choice.point.quota(),
            format!("any {}", choice.words),
            format!("{} of {}", grouped(refused), grouped(callers)),
            requests.unwrap_or_else(|| "?".to_owned()),
        ]
    });
    Section::Table {
        title: "Three quotas to choose from".to_owned(),
        names: vec![
            "quota",
            "lets a caller do the least in",
            of_which,
            "refused requests",
        ],
        rows: rows.collect(),
        bars: Vec::new(),
    }
}

fn frontier(suggestion: &Suggestion) -> Chart {
    let points = &suggestion.frontier;
    let rate =
        |point: &super::frontier::Point| ratio(point.rate.limit * 1_000_000, point.rate.period_us);
    let line = |burst: fn(&super::frontier::Point) -> u32| {
        let line = points
            .iter()
            .map(|point| (rate(point), f64::from(burst(point))));
        Marks::Line(line.collect())
    };
    let notes = suggestion.choices.iter().map(|choice| {
        let point = &choice.point;
        (rate(point), f64::from(point.burst), point.quota())
    });
    let mut notes: Vec<_> = notes.collect();
    notes.dedup();
    let most = points
        .iter()
        .map(|point| point.distribution[4].max(point.burst));
    let rates = points.iter().map(rate);
    let (least_rate, most_rate) = (
        rates.clone().fold(f64::MAX, f64::min),
        rates.fold(0.0, f64::max),
    );
    Chart {
        title: "the frontier: for each rate the least burst".to_owned(),
        x: Axis::powers(least_rate, most_rate, "requests in a second"),
        y: Axis::powers(1.0, f64::from(most.max().unwrap_or(1)), "burst"),
        marks: vec![
            (
                "refuses no caller".to_owned(),
                Tone::Light,
                line(|point| point.distribution[4]),
            ),
            (
                "refuses as many as was asked for".to_owned(),
                Tone::Dark,
                line(|point| point.burst),
            ),
            ("choices".to_owned(), Tone::Middle, Marks::Notes(notes)),
        ],
    }
}

/// The callers that get along with a burst, at the rate of the second choice.
fn distribution(suggestion: &Suggestion) -> Option<Chart> {
    let point = &suggestion.choices.get(1)?.point;
    let mut bursts: Vec<_> = suggestion
        .callers
        .all()
        .map(|caller| caller.bursts[point.place])
        .collect();
    bursts.sort_unstable();
    let all = bursts.len() as u64;
    let most = bursts.last().copied().unwrap_or(1);
    let share = |burst| {
        let along = bursts.partition_point(|needed| *needed <= burst);
        ratio(along as u64 * 100, all)
    };
    let mut steps = bursts.clone();
    steps.dedup();
    let steps = steps
        .into_iter()
        .map(|burst| (f64::from(burst), share(burst)));
    let note = (f64::from(point.burst), share(point.burst), point.quota());
    Some(Chart {
        title: format!("distribution over callers at {}", point.rate.text()),
        x: Axis::powers(1.0, f64::from(most), "burst"),
        y: Axis::up_to(100.0, Labels::Percents, "callers that get along with it"),
        marks: vec![
            (String::new(), Tone::Dark, Marks::Line(steps.collect())),
            ("choice".to_owned(), Tone::Middle, Marks::Notes(vec![note])),
        ],
    })
}

fn callers(suggestion: &Suggestion) -> Option<Section> {
    let point = &suggestion.choices.get(1)?.point;
    let top = suggestion.callers.top(point.place, CALLERS);
    let bars = top
        .iter()
        .map(|(_, caller)| caller.bursts[point.place].into());
    let bars = bars.collect();
    let rows = top.into_iter().map(|(identity, caller)| {
        vec![
            identity.words(),
            grouped(caller.requests.into()),
            grouped(caller.bursts[point.place].into()),
        ]
    });
    Some(Section::Table {
        title: format!(
            "Callers that need the largest bursts at {}",
            point.rate.text()
        ),
        names: vec!["caller", "requests", "least burst"],
        rows: rows.collect(),
        bars,
    })
}
