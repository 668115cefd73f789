//! The page about a replay: requests and refusals over time, the distribution over callers, and the callers and paths of most
//! refusals.

use super::Simulation;
use super::rows::{CallerRow, CostRow, PathRow, PlaceRow, PolicyRow};
use super::tally::Tally;
use super::tiers::TierRow;
use crate::arguments::SimulateArguments;
use crate::figures::{counted, duration, grouped, millionths, moment, percent};
use crate::picture::{Axis, Chart, Labels, Marks, Page, Section, Tone, over_time, place};

/// Spans over time.
const COLUMNS: usize = 120;

/// Rows of each table.
const ROWS: usize = 25;

pub(super) fn page(asked: &SimulateArguments, simulation: &Simulation) -> Page {
    let Simulation { tally, names, .. } = simulation;
    let title = format!("{} by {}", asked.log.display(), asked.limits.display());
    let mut facts = vec![
        format!(
            "{} of {}, {} to {} (UTC).",
            counted(tally.requests, "request"),
            counted(tally.callers() as u64, "address"),
            moment(tally.first_us),
            moment(tally.last_us)
        ),
        format!(
            "Refused: {} ({}) of {}.",
            counted(tally.refused, "request"),
            percent(tally.refused, tally.requests),
            counted(tally.refused_callers() as u64, "caller")
        ),
    ];
    if let (Some((theirs, _, difference)), Some(path)) = (&simulation.against, &asked.against) {
        facts.push(format!(
            "{} refuses {} requests ({}). {} pass by it and are refused now, {} are refused by it and pass now.",
            path.display(),
            grouped(theirs.refused),
            percent(theirs.refused, theirs.requests),
            grouped(difference.newly_refused),
            grouped(difference.no_longer_refused)
        ));
    }
    let words = |title: &str, lines| Section::Words {
        title: title.to_owned(),
        lines,
    };
    let mut sections = vec![words("The whole", facts)];
    sections.push(Section::Chart(shares(simulation)));
    sections.push(Section::Chart(requests(tally)));
    if tally.refused > 0 {
        sections.push(Section::Chart(distribution(tally)));
    }
    sections.push(policies(tally, names));
    sections.extend(rare(tally, names));
    if tally.refused > 0 {
        sections.extend([callers(tally, names), routes(tally, names)]);
    }
    sections.push(words("About the log", super::text::doubts(simulation)));
    Page { title, sections }
}

fn shares(simulation: &Simulation) -> Chart {
    let name = |name: &str| name.to_owned();
    let mut lines = Vec::new();
    if let Some((theirs, _, _)) = &simulation.against {
        lines.push((name("the other file"), Tone::Light, &theirs.timeline));
        lines.push((name("these limits"), Tone::Dark, &simulation.tally.timeline));
    } else {
        lines.push((String::new(), Tone::Dark, &simulation.tally.timeline));
    }
    over_time("refused share over time", lines)
}

fn requests(tally: &Tally) -> Chart {
    let (start_us, width_us, spans) = tally.timeline.columns(COLUMNS);
    let columns = |height: fn(&crate::timeline::Span) -> u64| {
        let spans = spans.iter().enumerate().map(|(number, span)| {
            let from_us = start_us + number as u64 * width_us;
            (
                place(from_us),
                place(from_us + width_us),
                place(height(span)),
            )
        });
        Marks::Columns(spans.collect())
    };
    let most = spans.iter().map(|span| span.requests).max().unwrap_or(1);
    let end_us = start_us + spans.len() as u64 * width_us;
    Chart {
        title: "requests over time".to_owned(),
        x: Axis::between(
            place(start_us),
            place(end_us),
            Labels::Moments,
            "time (UTC)",
        ),
        y: Axis::up_to(
            place(most),
            Labels::Numbers,
            format!("requests in {}", duration(width_us)),
        ),
        marks: vec![
            ("all".to_owned(), Tone::Light, columns(|span| span.requests)),
            (
                "refused".to_owned(),
                Tone::Dark,
                columns(|span| span.refused),
            ),
        ],
    }
}

/// The refusals of each refused caller, most first: a few callers with most of them are a few to talk to.
fn distribution(tally: &Tally) -> Chart {
    let refusals = tally.refusals();
    let most = refusals.first().copied().unwrap_or(1);
    let all = place(refusals.len() as u64);
    let points = refusals.iter().zip(1_u64..);
    let points = points.map(|(refused, rank)| (place(rank), place(*refused)));
    Chart {
        title: "distribution over callers".to_owned(),
        x: Axis::powers(1.0, all, "refused callers, the most refused first"),
        y: Axis::powers(1.0, place(most), "refused requests of a caller"),
        marks: vec![(String::new(), Tone::Dark, Marks::Line(points.collect()))],
    }
}

fn policies(tally: &Tally, names: &[String]) -> Section {
    let rows = PolicyRow::all(tally, names);
    Section::Table {
        title: "Policies".to_owned(),
        names: PolicyRow::NAMES.into(),
        bars: (rows.iter().map(|row| millionths(row.refused, row.covered))).collect(),
        rows: rows.iter().map(|row| row.cells().into()).collect(),
    }
}

/// The tables of what only some limits have.
fn rare(tally: &Tally, names: &[String]) -> impl Iterator<Item = Section> {
    let (tiers, costs) = (
        TierRow::all(&tally.tiers, names),
        CostRow::all(tally, names),
    );
    let places = PlaceRow::all(tally, names);
    let tables = [
        Section::Table {
            title: "Tiers".to_owned(),
            names: TierRow::NAMES.into(),
            bars: (tiers.iter().map(|row| millionths(row.refused, row.covered))).collect(),
            rows: tiers.iter().map(|row| row.cells().into()).collect(),
        },
        Section::Table {
            title: "Costs".to_owned(),
            names: CostRow::NAMES.into(),
            bars: (costs
                .iter()
                .map(|row| millionths(row.refused_units, row.units)))
            .collect(),
            rows: costs.iter().map(|row| row.cells().into()).collect(),
        },
        Section::Table {
            title: "Requests under way, refused or not".to_owned(),
            names: PlaceRow::NAMES.into(),
            bars: places.iter().map(|row| row.most_of_one).collect(),
            rows: places.iter().map(|row| row.cells().into()).collect(),
        },
    ];
    let has_rows =
        |table: &Section| matches!(table, Section::Table { rows, .. } if !rows.is_empty());
    tables.into_iter().filter(has_rows)
}

fn callers(tally: &Tally, names: &[String]) -> Section {
    let rows = CallerRow::top(tally, names, ROWS);
    Section::Table {
        title: "Callers that are refused most".to_owned(),
        names: CallerRow::NAMES.into(),
        bars: rows.iter().map(|row| row.refused).collect(),
        rows: rows.iter().map(|row| row.cells().into()).collect(),
    }
}

fn routes(tally: &Tally, names: &[String]) -> Section {
    let rows = PathRow::top(tally, names, ROWS);
    Section::Table {
        title: "Paths that are refused most".to_owned(),
        names: PathRow::NAMES.into(),
        bars: rows.iter().map(|row| row.refused).collect(),
        rows: rows.iter().map(|row| row.cells().into()).collect(),
    }
}
