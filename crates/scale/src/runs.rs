//! The runs of `docs/scale.md`, and their figures.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::Lease;

use crate::excess::excess;
use crate::fleet::simulate;
use crate::load::{Load, Pulses};
use crate::outcome::{Outcome, Span};
use crate::settings::{Settings, Shape};

/// A run with its place in a table or a plot.
#[derive(Clone, Debug)]
pub struct Run {
    /// The table.
    pub table: &'static str,
    /// The line of the table, or the curve of the plot.
    pub line: String,
    /// The place on the line.
    pub x: f64,
    /// The fleet.
    pub settings: Settings,
}

/// The figures of a run, or of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The table.
    pub table: String,
    /// The line of the table, or the curve of the plot.
    pub line: String,
    /// The place on the line.
    pub x: f64,
    /// Requests a second.
    pub requests: f64,
    /// Calls of scripts at all servers, a second.
    pub calls: f64,
    /// Calls for each decision.
    pub calls_per_decision: f64,
    /// The part of the requests that waits for a server.
    pub waiting: f64,
    /// The part that waits for a server in another region.
    pub far: f64,
    /// The part without a decision in time.
    pub failed: f64,
    /// The part of what callers could have had that was denied.
    pub under_use: f64,
    /// The greatest excess over `burst + rate × ℓ`, in units of `rate × τ`; without leases, τ is 100 ms here.
    pub excess: f64,
    /// Half of those that wait do so for no longer.
    pub median_wait_us: u64,
    /// 99 of a hundred that wait do so for no longer.
    pub longest_wait_us: u64,
    /// The busy part of the busiest server's time.
    pub hottest: f64,
    /// The servers that had anything to do.
    pub nodes_in_use: u32,
    /// The part without a decision, by tenths of a second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_by_time: Vec<f64>,
}

/// The terms of the runs with leases.
pub(crate) const TAU: Lease = Lease::up_to(1_000_000);

/// The terms of the runs with longer leases.
pub(crate) const LONG: Lease = TAU.within(Duration::from_secs(1));

/// The callers of the runs with many: a million, of which the first has a tenth of all requests.
const CALLERS: u32 = 1_000_000;
const POWER: f64 = 1.05;

impl Run {
    /// Says whether these are its figures.
    #[must_use]
    pub fn is_of(&self, row: &Row) -> bool {
        let is_at = self.x.total_cmp(&row.x).is_eq();
        self.table == row.table && self.line == row.line && is_at
    }

    /// Runs it.
    #[must_use]
    pub fn figures(&self) -> Row {
        let settings = &self.settings;
        let outcome = simulate(settings);
        let seconds = settings.run_us as f64 / 1e6;
        let part = |of: u64| rounded(of as f64 / outcome.requests.max(1) as f64);
        Row {
            table: self.table.to_owned(),
            line: self.line.clone(),
            x: self.x,
            requests: rounded(outcome.requests as f64 / seconds),
            calls: rounded(outcome.calls as f64 / seconds),
            calls_per_decision: rounded(outcome.calls_per_decision()),
            waiting: rounded(outcome.waiting()),
            far: part(outcome.far),
            failed: part(outcome.failed),
            under_use: rounded(outcome.under_use()),
            excess: rounded(greatest_excess(settings, &outcome)),
            median_wait_us: outcome.median_wait_us,
            longest_wait_us: outcome.longest_wait_us,
            hottest: rounded(outcome.hottest),
            nodes_in_use: outcome.nodes_in_use,
            failed_by_time: outcome.spans.iter().map(failed).collect(),
        }
    }
}

/// Four digits that count: more would be the seed's.
pub(crate) fn rounded(figure: f64) -> f64 {
    if figure == 0.0 {
        return 0.0;
    }
    let digits = 3.0 - figure.abs().log10().floor();
    let scale = 10_f64.powf(digits);
    (figure * scale).round() / scale
}

fn failed(span: &Span) -> f64 {
    rounded(span.failed as f64 / span.all.max(1) as f64)
}

fn greatest_excess(settings: &Settings, outcome: &Outcome) -> f64 {
    let time = settings.lease.unwrap_or(TAU).time().as_secs_f64();
    let excesses = outcome.tracked.iter().map(|tracked| {
        excess(&tracked.quota, &tracked.passes, 0) / (tracked.quota.limit() as f64 * time)
    });
    excesses.fold(f64::MIN, f64::max).max(0.0)
}

/// All runs, in the order of the tables.
#[must_use]
pub fn all() -> Vec<Run> {
    let tables = [
        company(),
        processes(),
        bound(),
        nodes(),
        regions(),
        cut(),
        faults(),
        choice(),
    ];
    tables.into_iter().flatten().collect()
}

/// The lines with and without leases.
fn with_and_without(table: &'static str, x: f64, settings: &Settings) -> Vec<Run> {
    [
        ("no lease", None),
        ("leases of 100 ms", Some(TAU)),
        ("leases of 1 s", Some(LONG)),
    ]
    .map(|(line, lease)| Run {
        table,
        line: line.to_owned(),
        x,
        settings: Settings {
            lease,
            warm_up_us: lease.map_or(500_000, |it| 5 * it.time().as_micros() as u64),
            ..settings.clone()
        },
    })
    .into()
}

/// One caller within its limit, by its requests a second to each of four processes.
fn company() -> Vec<Run> {
    let rates = [
        1.0, 3.0, 10.0, 13.0, 20.0, 30.0, 50.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4,
    ];
    let runs = rates.map(|rate| {
        let run_us = if rate < 300.0 { 40_000_000 } else { 4_000_000 };
        let settings = Settings {
            run_us,
            ..Settings::of(Load::of_one(4.0 * rate))
        };
        with_and_without("company", rate, &settings)
    });
    runs.into_iter().flatten().collect()
}

/// One caller with ten thousand requests a second, by the number of processes to which they come.
fn processes() -> Vec<Run> {
    let mut runs = Vec::new();
    for processes in [1, 2, 4, 10, 30, 100, 300, 1_000] {
        let settings = Settings {
            processes,
            run_us: 5_000_000,
            ..Settings::of(Load::of_one(10_000.0))
        };
        runs.extend(with_and_without("processes", processes.into(), &settings));
        let above = Settings {
            load: Load::of_one(10_000.0).using(2.0),
            ..settings
        };
        let mut above = with_and_without("processes above the limit", processes.into(), &above);
        above.truncate(2);
        runs.extend(above);
    }
    runs
}

/// The load that tries the bound of these terms: a short pulse, in which blocks are leased, and before they end a long one that
/// spends all there is, by when the budget has refilled.
pub(crate) fn pulses(lease: Option<Lease>) -> Load {
    let lease_us = lease.unwrap_or(TAU).time().as_micros() as u64;
    Load::of_one(40_000.0).using(20.0).in_pulses(Pulses {
        short_us: lease_us * 3 / 100,
        long_us: 100_000,
        gap_us: lease_us * 85 / 100,
        cycle_us: 2_500_000,
    })
}

fn bound() -> Vec<Run> {
    let mut runs = Vec::new();
    for processes in [1, 2, 4, 10, 30, 100, 300, 1_000] {
        let settings = Settings {
            processes,
            run_us: 25_000_000,
            ..Settings::of(pulses(None))
        };
        let mut pulsed = with_and_without("bound", processes.into(), &settings);
        for run in &mut pulsed {
            run.settings.load = pulses(run.settings.lease);
        }
        runs.extend(pulsed);
    }
    runs
}

/// A million requests a second for a million callers, by the number of servers.
fn nodes() -> Vec<Run> {
    let load = Load::zipf(1e6, CALLERS, POWER);
    let mut runs = Vec::new();
    for nodes in [3, 6, 10, 16, 32, 64, 100] {
        for partitions in [64, 1_024] {
            for (words, lease) in [("no lease", None), ("leases of 100 ms", Some(TAU))] {
                runs.push(Run {
                    table: "nodes",
                    line: format!("{words}, {partitions} tags"),
                    x: nodes.into(),
                    settings: Settings {
                        processes: 100,
                        nodes,
                        partitions,
                        lease,
                        run_us: 500_000,
                        ..Settings::of(load.clone())
                    },
                });
            }
        }
    }
    runs
}

/// The fleets of several regions.
fn shapes() -> [(&'static str, Shape, Option<Lease>); 4] {
    [
        ("one home, no lease", Shape::Home, None),
        ("one home, leases of 1 s", Shape::Home, Some(LONG)),
        ("split, leases of 100 ms", Shape::Split, Some(TAU)),
        (
            "leases of leases (not built)",
            Shape::Nested { within_ms: 1_000 },
            Some(TAU),
        ),
    ]
}

fn of_regions(regions: u32, shape: Shape, lease: Option<Lease>) -> Settings {
    Settings {
        processes: 20,
        nodes: 3,
        regions,
        shape,
        lease,
        deadline_us: 250_000,
        warm_up_us: 5_000_000,
        run_us: 2_000_000,
        tracked: 16,
        ..Settings::of(Load::zipf(20_000.0, CALLERS, POWER))
    }
}

fn regions() -> Vec<Run> {
    let of = |regions: u32| {
        shapes().map(|(line, shape, lease)| Run {
            table: "regions",
            line: line.to_owned(),
            x: regions.into(),
            settings: of_regions(regions, shape, lease),
        })
    };
    [1, 2, 5].into_iter().flat_map(of).collect()
}

/// The last of five regions is cut off for four seconds.
fn cut() -> Vec<Run> {
    let runs = shapes().map(|(line, shape, lease)| Run {
        table: "cut",
        line: line.to_owned(),
        x: 5.0,
        settings: Settings {
            warm_up_us: 2_000_000,
            run_us: 6_000_000,
            cut_us: Some((3_000_000, 6_000_000)),
            ..of_regions(5, shape, lease)
        },
    });
    runs.into()
}

/// A caller that asks for more than it may have, at processes that crash.
fn faults() -> Vec<Run> {
    let mut runs = Vec::new();
    for (x, crash_every_us) in [(0.0, None), (1.0, Some(1_000_000)), (5.0, Some(200_000))] {
        let settings = Settings {
            processes: 20,
            crash_every_us,
            run_us: 10_000_000,
            ..Settings::of(Load::of_one(20_000.0).using(1.25))
        };
        runs.extend(with_and_without("crashes a second", x, &settings));
    }
    runs
}

/// The fleets for a thousand, a hundred thousand and ten million decisions a second.
fn choice() -> Vec<Run> {
    let mut runs = Vec::new();
    for (rate, processes, nodes, partitions, run_us) in [
        (1e3, 4, 1, 64, 10_000_000),
        (1e5, 20, 3, 64, 2_000_000),
        (1e7, 1_000, 100, 1_024, 250_000),
    ] {
        let settings = Settings {
            processes,
            nodes,
            partitions,
            run_us,
            ..Settings::of(Load::zipf(rate, CALLERS, POWER))
        };
        let mut of_rate = with_and_without("choice", rate, &settings);
        if rate > 1e6 {
            of_rate.truncate(2);
        }
        for run in &mut of_rate {
            run.settings.warm_up_us = run.settings.warm_up_us.min(1_000_000) * 3 / 5;
        }
        runs.extend(of_rate);
    }
    runs
}
