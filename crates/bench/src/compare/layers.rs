//! In the process: the instructions, allocations and time that each limiter takes for a request.

use std::iter;

use tollgate_bench::Scenario;

use super::part;
use super::report::{Cost, OURS, Row};
use crate::Result;
use crate::callgrind::Counter;
use crate::measure::{median, nanos};

/// One comparison: the line of a table, ours, and the alternatives.
const ROWS: &[(&str, Scenario, &[Peer])] = &[
    (
        "one check in memory, address",
        Scenario::CheckAddress,
        &[("governor", Scenario::GovernorCheckAddress)],
    ),
    (
        "one check in memory, text of 8 bytes",
        Scenario::CheckShortText,
        &[("governor", Scenario::GovernorCheckShortText)],
    ),
    (
        "one check in memory, text of 31 bytes",
        Scenario::CheckText,
        &[("governor", Scenario::GovernorCheckText)],
    ),
    (
        "one check in memory, a UUID as text",
        Scenario::CheckUuid,
        &[("governor", Scenario::GovernorCheckUuid)],
    ),
    (
        "one place taken and given back in memory, address",
        Scenario::CheckHeld,
        &[("the check of a quota, address", Scenario::CheckAddress)],
    ),
    (
        "one check of a refill in intervals in memory, address",
        Scenario::CheckIntervalRefill,
        &[(
            "the check of a fixed window, address",
            Scenario::CheckFixedWindow,
        )],
    ),
    (
        "one check of a day of a calendar in memory, address",
        Scenario::CheckCalendar,
        &[(
            "the check of a fixed window, address",
            Scenario::CheckFixedWindow,
        )],
    ),
    (
        "layer, allowed, no headers",
        Scenario::TollgatePlain,
        &[("tower_governor", Scenario::GovernorPlain)],
    ),
    (
        "the same, readable by handlers",
        Scenario::TollgateStatus,
        &[],
    ),
    (
        "layer, allowed, with headers",
        Scenario::TollgateFields,
        &[
            ("tower_governor", Scenario::GovernorHeaders),
            ("axum-governor", Scenario::AxumGovernor),
        ],
    ),
    (
        "the same, readable by handlers",
        Scenario::TollgateHeaders,
        &[
            ("tower_governor", Scenario::GovernorHeaders),
            ("axum-governor", Scenario::AxumGovernor),
        ],
    ),
    (
        "the same, on a response that has headers",
        Scenario::TollgateTyped,
        &[
            ("tower_governor", Scenario::GovernorTyped),
            ("axum-governor", Scenario::AxumGovernorTyped),
        ],
    ),
    (
        "the same, no two callers with the same left",
        Scenario::TollgateVaried,
        &[("tower_governor", Scenario::GovernorHeaders)],
    ),
    (
        "layer, denied",
        Scenario::TollgateDenied,
        &[
            ("tower_governor", Scenario::GovernorDenied),
            ("axum-governor", Scenario::AxumGovernorDenied),
        ],
    ),
    (
        "so many at once, no headers, a body that has ended",
        Scenario::TollgateHeld,
        &[("tower's `ConcurrencyLimit`", Scenario::ConcurrencyLimit)],
    ),
    (
        "the same, a body that is sent",
        Scenario::TollgateHeldStreamed,
        &[(
            "tower's `ConcurrencyLimit`",
            Scenario::ConcurrencyLimitStreamed,
        )],
    ),
    (
        "with classes that pressure could refuse, no headers",
        Scenario::TollgateUnderPressure,
        &[("without them", Scenario::TollgatePlain)],
    ),
    (
        "with an observer that counts, no headers",
        Scenario::TollgateObserved,
        &[("without one", Scenario::TollgatePlain)],
    ),
    (
        "with metrics and no recorder, no headers",
        Scenario::TollgateMetered,
        &[("without", Scenario::TollgatePlain)],
    ),
    (
        "layer, a denial that the Redis backend knows",
        Scenario::TollgateKnown,
        &[("a denial in memory", Scenario::TollgateDenied)],
    ),
    (
        "the same, no headers",
        Scenario::TollgateKnownPlain,
        &[("a denial in memory", Scenario::TollgateDeniedPlain)],
    ),
    (
        "a denial by Redis of a caller that never comes again",
        Scenario::FloodKnown,
        &[("if no denial is known", Scenario::FloodAsked)],
    ),
    (
        "layer, allowed out of a leased block, no headers",
        Scenario::TollgateLeased,
        &[("out of a budget in memory", Scenario::TollgatePlain)],
    ),
    (
        "one policy with a route, no headers",
        Scenario::TollgateOneRoute,
        &[],
    ),
    (
        "a hundred policies with a route each, no headers",
        Scenario::TollgateHundredRoutes,
        &[],
    ),
];

type Peer = (&'static str, Scenario);

/// Batches of a thousand requests that each limiter serves in turn.
const BATCHES: [usize; 2] = [200, 40];

pub(super) fn measure(quick: bool, count: bool) -> Result<Vec<Row>> {
    part("in process: what a request costs");
    let all = ROWS.iter().flat_map(|(_, ours, peers)| {
        let peers = peers.iter().map(|(_, peer)| *peer);
        iter::once(*ours).chain(peers)
    });
    let counter = count.then(|| Counter::of(all)).transpose()?;
    let mut rows = Vec::new();
    for (what, ours, peers) in ROWS {
        let all: Vec<_> = [(OURS, *ours)]
            .into_iter()
            .chain(peers.iter().copied())
            .collect();
        let times = times(&all, BATCHES[usize::from(quick)]);
        let mut by = Vec::new();
        for ((who, scenario), (nanos, ours_by_this)) in all.into_iter().zip(times) {
            let counts = counter.as_ref().map(|all| all.above_baseline(scenario));
            let counts = counts.transpose()?;
            by.push(Cost {
                who: who.to_owned(),
                instructions: counts.map(|counts| counts.instructions),
                allocations: counts.map(|counts| counts.allocations),
                nanos,
                ours_by_this,
            });
        }
        rows.push(Row {
            what: (*what).to_owned(),
            scenario: ours.name().to_owned(),
            by,
        });
    }
    Ok(rows)
}

/// The nanoseconds of each above its baseline, and the ratio of ours to each. All take turns, so that other load slows all
/// alike.
fn times(all: &[Peer], batches: usize) -> Vec<(f64, f64)> {
    const CALLERS: u32 = 1000;
    let prepared = |scenario: Scenario| {
        let mut serve = scenario.prepare();
        serve(CALLERS);
        serve
    };
    let mut pairs: Vec<_> = all
        .iter()
        .map(|(_, one)| (prepared(*one), one.baseline().map(prepared)))
        .collect();
    let mut costs = vec![Vec::with_capacity(batches); all.len()];
    for _ in 0..batches {
        for ((serve, baseline), costs) in pairs.iter_mut().zip(&mut costs) {
            let without = baseline
                .as_mut()
                .map_or(0.0, |serve| nanos(|| serve(CALLERS)));
            costs.push((nanos(|| serve(CALLERS)) - without) / f64::from(CALLERS));
        }
    }
    let ours = &costs[0];
    let of = |theirs: &Vec<f64>| {
        let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs);
        (median(theirs.iter().copied()), median(ratios))
    };
    costs.iter().map(of).collect()
}
