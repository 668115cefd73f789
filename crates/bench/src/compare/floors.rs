//! The bounds of a run, and those that it misses.

use tollgate_bench::Scenario;

use crate::redis_instructions::{bounds, held_bound, plain};

use super::report::{InFlight, OURS, Pace, Report, Threads};

/// A bound, with the result of a run.
pub(crate) struct Floor {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) bound: Bound,
}

#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Floor {
    pub(crate) fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtLeast(least) => self.measured >= least,
            Bound::AtMost(most) => self.measured <= most,
        }
    }
}

/// All bounds that this run can check.
pub(crate) fn floors(report: &Report) -> Vec<Floor> {
    let mut floors = Vec::new();
    in_process(report, &mut floors);
    on_redis(report, &mut floors);
    on_the_server(report, &mut floors);
    over_http(report, &mut floors);
    growth(report, &mut floors);
    floors
}

/// A scenario of ours, and the share of a peer's instructions that it may cost in the same run.
pub(crate) struct ByPeer {
    pub(crate) ours: Scenario,
    pub(crate) peer: Scenario,
    pub(crate) most: f64,
}

pub(crate) const BY_PEER: &[ByPeer] = &[
    by_peer(Scenario::CheckAddress, Scenario::GovernorCheckAddress, 1.0),
    by_peer(Scenario::CheckHeld, Scenario::CheckAddress, 1.6),
    by_peer(
        Scenario::CheckIntervalRefill,
        Scenario::CheckFixedWindow,
        1.2,
    ),
    by_peer(Scenario::CheckCalendar, Scenario::CheckFixedWindow, 1.2),
    by_peer(Scenario::TollgatePlain, Scenario::GovernorPlain, 1.15),
    by_peer(Scenario::TollgateHeaders, Scenario::GovernorHeaders, 0.6),
    by_peer(Scenario::TollgateTyped, Scenario::GovernorTyped, 0.6),
    by_peer(Scenario::TollgateDenied, Scenario::GovernorDenied, 0.4),
    by_peer(Scenario::TollgateKnown, Scenario::TollgateDenied, 1.3),
    by_peer(
        Scenario::TollgateKnownPlain,
        Scenario::TollgateDeniedPlain,
        1.3,
    ),
    by_peer(Scenario::FloodKnown, Scenario::FloodAsked, 1.05),
    // With the 1,189 of the service alone, that is 0.7 of the pace of a request in memory.
    by_peer(Scenario::TollgateLeased, Scenario::TollgatePlain, 2.1),
];

const fn by_peer(ours: Scenario, peer: Scenario, most: f64) -> ByPeer {
    ByPeer { ours, peer, most }
}

fn in_process(report: &Report, floors: &mut Vec<Floor>) {
    for floor in BY_PEER {
        let mut rows = report.layers.iter();
        let row = rows.find(|row| row.scenario == floor.ours.name());
        let both = row.and_then(|row| Some((row.by.first()?, row.by.get(1)?)));
        if let Some((ours, theirs)) = both
            && let Some((ours_cost, theirs_cost)) = ours.instructions.zip(theirs.instructions)
        {
            floors.push(Floor {
                what: format!("{}: instructions by {}'s", floor.ours.about(), theirs.who),
                measured: ours_cost as f64 / theirs_cost as f64,
                bound: Bound::AtMost(floor.most),
            });
        }
    }
    let alike = |threads: &&Threads| threads.threads > 1 && !threads.against_version_4;
    for threads in report.threads.iter().filter(alike) {
        let said = &threads.said;
        floors.push(Floor {
            what: format!(
                "{} threads, {} keys, {said}: pace by governor's",
                threads.threads, threads.keys
            ),
            measured: threads.ours_by_governor,
            bound: Bound::AtLeast(1.0),
        });
    }
}

fn on_redis(report: &Report, floors: &mut Vec<Floor>) {
    let rate = |point: &InFlight| ratio(point, |pace| pace.per_second);
    let median = |point: &InFlight| ratio(point, |pace| pace.p50_us);
    let cases: [(usize, bool, &str, Ratio<'_>, Bound); 5] = [
        (
            256,
            false,
            "256 in flight: pace by plain EVALSHA's",
            &rate,
            Bound::AtLeast(2.5),
        ),
        (
            256,
            true,
            "256 in flight, one key: pace by plain EVALSHA's",
            &rate,
            Bound::AtLeast(4.0),
        ),
        (
            128,
            false,
            "128 in flight: pace by plain EVALSHA's",
            &rate,
            Bound::AtLeast(2.5),
        ),
        (
            64,
            false,
            "64 in flight: median latency by plain EVALSHA's",
            &median,
            Bound::AtMost(0.6),
        ),
        (
            1,
            false,
            "1 in flight: median latency by plain EVALSHA's",
            &median,
            Bound::AtMost(1.1),
        ),
    ];
    for (in_flight, hot, what, ratio, bound) in cases {
        let mut points = report.redis.iter();
        let point =
            points.find(|point| point.in_flight == in_flight && (point.callers == 1) == hot);
        floors.extend(point.and_then(ratio).map(|measured| Floor {
            what: format!("Redis, {what}"),
            measured,
            bound,
        }));
    }
}

/// The floors of redis-server: instructions in every case that has a bound, and the bytes of one
/// key.
fn on_the_server(report: &Report, floors: &mut Vec<Floor>) {
    for cost in &report.redis_costs {
        let sides = [("allowed", cost.allowed), ("denied", cost.denied)];
        for ((side, measured), bound) in sides.into_iter().zip(bounds(&cost.case)) {
            floors.extend(bound.map(|most| Floor {
                what: format!("Redis, {}, {side}: instructions of the server", cost.case),
                measured: measured as f64,
                bound: Bound::AtMost(most as f64),
            }));
        }
    }
    for cost in &report.redis_costs {
        let Some((without, times)) = plain(&cost.case) else {
            continue;
        };
        let costs = &report.redis_costs;
        let without = costs.iter().find(|cost| cost.case == without);
        floors.extend(without.into_iter().flat_map(|without| {
            let sides = [
                ("allowed", cost.allowed, without.allowed),
                ("denied", cost.denied, without.denied),
            ];
            let ratios = (sides.into_iter().zip(times)).filter(|(_, most)| most.is_finite());
            ratios.map(|((side, cost_of, of_plain), most)| Floor {
                what: format!("Redis, {}, {side}: times one without", cost.case),
                measured: cost_of as f64 / of_plain as f64,
                bound: Bound::AtMost(most),
            })
        }));
    }
    for held in &report.redis_held {
        let mut costs = report.redis_costs.iter();
        let decision = costs.find(|cost| cost.case == held.case);
        let both = decision.zip(held_bound(held.holders));
        floors.extend(both.map(|(decision, most)| Floor {
            what: format!(
                "Redis, a place taken and given back, {}, {} that hold: times one decision",
                held.case, held.holders
            ),
            measured: held.instructions as f64 / decision.allowed as f64,
            bound: Bound::AtMost(most),
        }));
    }
    let ours = report.redis_sizes.iter().find(|sizes| sizes.who == OURS);
    floors.extend(ours.map(|sizes| Floor {
        what: "Redis: bytes per key".to_owned(),
        measured: sizes.bytes_per_key as f64,
        bound: Bound::AtMost(180.0),
    }));
}

type Ratio<'a> = &'a dyn Fn(&InFlight) -> Option<f64>;

/// The ratio of ours to the plain script's.
fn ratio(point: &InFlight, figure: fn(&Pace) -> f64) -> Option<f64> {
    Some(figure(point.by.first()?) / figure(point.by.get(1)?))
}

fn over_http(report: &Report, floors: &mut Vec<Floor>) {
    let of = |who: &str| {
        let served = report.http.iter().find(|served| served.who == who);
        served.map(|served| served.rate_by_bare)
    };
    let mut floor = |what: &str, measured: Option<f64>, least: f64| {
        floors.extend(measured.map(|measured| Floor {
            what: format!("HTTP, {what}"),
            measured,
            bound: Bound::AtLeast(least),
        }));
    };
    let redis = of("Tollgate, Redis");
    let by_peer = of("Tollgate, memory").zip(of("tower_governor"));
    floor(
        "memory, with headers: requests per second by tower_governor's",
        by_peer.map(|(ours, theirs)| ours / theirs),
        0.99,
    );
    floor("Redis: requests per second by bare's", redis, 0.5);
    let exported = of("Tollgate, memory, with metrics for Prometheus").zip(of("Tollgate, memory"));
    floor(
        "memory, with metrics for Prometheus: requests per second by without",
        exported.map(|(with, without)| with / without),
        0.97,
    );
}

fn growth(report: &Report, floors: &mut Vec<Floor>) {
    let keys = &report.growth.keys;
    // An address takes four bytes. Below a million keys, the pages of an empty process dominate.
    for point in keys
        .iter()
        .filter(|point| point.who == OURS && point.keys >= 1_000_000)
    {
        floors.push(Floor {
            what: format!(
                "{} keys: resident bytes per key, beside the key",
                point.keys
            ),
            measured: point.bytes_per_key - 4.0,
            bound: Bound::AtMost(64.0),
        });
    }
    for pause in report
        .growth
        .pauses
        .iter()
        .filter(|pause| pause.who == OURS)
    {
        floors.push(Floor {
            what: format!("{}: longest pause in µs", pause.what),
            measured: pause.longest_us,
            bound: Bound::AtMost(1_000.0),
        });
    }
}
