//! The plots of `docs/scale.md`.

use crate::chart::{Axis, Curve, Scale, draw};
use crate::runs::Row;

/// The name of a plot's file, and its text.
pub type Picture = (&'static str, String);

const fn axis(label: &'static str, scale: Scale, from: f64, to: f64) -> Axis {
    Axis {
        label,
        scale,
        from,
        to,
    }
}

/// The curves of a table, in the order of its rows.
fn curves(rows: &[Row], measured: &[Row], table: &str, y: impl Fn(&Row) -> f64) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows.iter().filter(|row| row.table == table) {
        if !curves.iter().any(|curve| curve.name == row.line) {
            let of = |rows: &[Row]| {
                let own = rows
                    .iter()
                    .filter(|it| it.table == table && it.line == row.line);
                own.map(|it| (it.x, y(it))).collect()
            };
            curves.push(Curve {
                name: row.line.clone(),
                points: of(rows),
                measured: of(measured),
            });
        }
    }
    curves
}

/// Draws all plots.
#[must_use]
pub fn all(rows: &[Row], measured: &[Row]) -> Vec<Picture> {
    let of = |table, y: fn(&Row) -> f64| curves(rows, measured, table, y);
    let company = draw(
        "Calls of a script for each decision, one caller within its limit, 4 processes",
        [
            axis(
                "requests of the caller to each process, a second",
                Scale::Log,
                1.0,
                30_000.0,
            ),
            axis("calls for each decision", Scale::Log, 0.00003, 30.0),
        ],
        &of("company", |row| row.calls_per_decision),
    );
    let mut by_processes = of("processes", |row| row.calls);
    by_processes.extend(
        of("processes above the limit", |row| row.calls)
            .into_iter()
            .map(|curve| Curve {
                name: format!("{}, twice its limit", curve.name),
                ..curve
            }),
    );
    let processes = draw(
        "Calls a second, one caller with 10,000 requests a second",
        [
            axis("processes", Scale::Log, 1.0, 1_000.0),
            axis("calls a second", Scale::Log, 1.0, 1e7),
        ],
        &by_processes,
    );
    let bound = draw(
        "The most that passed in any interval of length ℓ, above burst + rate × ℓ",
        [
            axis("processes", Scale::Log, 1.0, 1_000.0),
            axis(
                "in units of rate × τ: the bound is 1",
                Scale::Linear,
                0.0,
                1.25,
            ),
        ],
        &of("bound", |row| row.excess),
    );
    let nodes = draw(
        "The busiest of the cluster's nodes, a million decisions a second, 100 processes",
        [
            axis("nodes", Scale::Log, 1.0, 100.0),
            axis("busy part of its time", Scale::Linear, 0.0, 1.5),
        ],
        &of("nodes", |row| row.hottest),
    );
    let cut = rows
        .iter()
        .filter(|row| row.table == "cut")
        .map(|row| Curve {
            name: row.line.clone(),
            points: (row.failed_by_time.iter().enumerate())
                .map(|(tenth, failed)| (tenth as f64 / 10.0, *failed))
                .collect(),
            measured: Vec::new(),
        });
    let cut = draw(
        "Requests without a decision in a region that is cut off from 3 s to 6 s",
        [
            axis("seconds", Scale::Linear, 0.0, 10.0),
            axis("part of the region's requests", Scale::Linear, 0.0, 1.5),
        ],
        &cut.collect::<Vec<_>>(),
    );
    vec![
        ("company.svg", company),
        ("processes.svg", processes),
        ("bound.svg", bound),
        ("nodes.svg", nodes),
        ("cut.svg", cut),
    ]
}
