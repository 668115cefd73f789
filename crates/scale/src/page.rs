//! The tables of `docs/scale.md`, from the figures.

use std::fmt::Write as _;

use crate::runs::{self, Row};

/// The tables, each as it stands on the page.
#[must_use]
pub fn tables(rows: &[Row], measured: &[Row]) -> Vec<String> {
    vec![choice(rows), regions(rows), beside(rows, measured)]
}

fn of<'a>(rows: &'a [Row], table: &'a str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.table == table)
}

fn choice(rows: &[Row]) -> String {
    let mut table = "| decisions a second | processes | nodes, tags | terms | calls a second | busiest node | requests that wait | 99 of 100 wait at most |\n\
                     | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    let all = runs::all();
    for row in of(rows, "choice") {
        let run = all.iter().find(|run| run.is_of(row));
        let Some(run) = run else {
            continue;
        };
        let settings = &run.settings;
        let tags = if settings.nodes == 1 {
            "1".to_owned()
        } else {
            format!("{}, {}", settings.nodes, settings.partitions)
        };
        let _infallible = writeln!(
            table,
            "| {} | {} | {tags} | {} | {} | {} | {} | {} |",
            thousands(row.x),
            thousands(settings.processes.into()),
            row.line,
            thousands(row.calls),
            percent(row.hottest),
            percent(row.waiting),
            millis(row.longest_wait_us),
        );
    }
    table
}

fn regions(rows: &[Row]) -> String {
    let mut table = "| five regions | requests that wait for another region | median of those that wait | calls for each decision | without a decision while cut off |\n\
                     | --- | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for row in of(rows, "regions").filter(|row| row.x > 4.0) {
        let cut = of(rows, "cut").find(|cut| cut.line == row.line);
        // The cut lasts from tenth 30 to tenth 60.
        let during = cut.and_then(|cut| cut.failed_by_time.get(30..58));
        let failed = during.map_or(0.0, |tenths| {
            tenths.iter().sum::<f64>() / tenths.len() as f64
        });
        let _infallible = writeln!(
            table,
            "| {} | {} | {} | {:.2} | {} |",
            row.line,
            percent(row.far),
            millis(row.median_wait_us),
            row.calls_per_decision,
            percent(failed),
        );
    }
    table
}

/// The points that are measured beside those that are simulated.
fn beside(rows: &[Row], measured: &[Row]) -> String {
    let mut table = "| point | terms | calls a second, simulated | measured | above burst + rate × ℓ, of rate × τ, simulated | measured |\n\
                     | --- | --- | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for point in measured {
        let simulated = of(rows, &point.table)
            .find(|row| row.line == point.line && row.x.total_cmp(&point.x).is_eq());
        let Some(row) = simulated else {
            continue;
        };
        let words = match point.table.as_str() {
            "company" => format!("{} a second to each of 4 processes", thousands(point.x)),
            "processes" if point.x > 1.0 => format!("10,000 a second to {} processes", point.x),
            "processes" => "10,000 a second to one process".to_owned(),
            "bound" => format!("pulses to {} processes", point.x),
            _ => "10,000 a second, twice its limit".to_owned(),
        };
        let _infallible = writeln!(
            table,
            "| {words} | {} | {} | {} | {:.2} | {:.2} |",
            point.line,
            thousands(row.calls),
            thousands(point.calls),
            row.excess,
            point.excess,
        );
    }
    table
}

fn percent(part: f64) -> String {
    let hundredths = part * 100.0;
    if hundredths > 0.0 && hundredths < 10.0 {
        format!("{hundredths:.1} %")
    } else {
        format!("{hundredths:.0} %")
    }
}

fn millis(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1e3)
}

/// A whole number with commas.
fn thousands(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
