//! What must come out, and what of it has not.

use tollgate_bench::Scenario;

use crate::redis_instructions::bounds;

use super::report::{Cost, InFlight, OURS, Pace, Report, Threads};

/// A bound and how a run stands to it.
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

/// All that this run can say something about.
pub(crate) fn floors(report: &Report) -> Vec<Floor> {
    let mut floors = Vec::new();
    in_process(report, &mut floors);
    on_redis(report, &mut floors);
    on_the_server(report, &mut floors);
    over_http(report, &mut floors);
    growth(report, &mut floors);
    floors
}

/// Instructions, and allocations where they are bounded.
const LAYERS: &[(Scenario, f64, Option<f64>)] = &[
    (Scenario::CheckAddress, 330.0, Some(0.0)),
    (Scenario::CheckText, 330.0, Some(0.0)),
    (Scenario::TollgatePlain, 540.0, Some(0.0)),
    (Scenario::TollgateStatus, 850.0, Some(1.0)),
    (Scenario::TollgateHeaders, 1_700.0, Some(3.0)),
    (Scenario::TollgateDenied, 2_500.0, None),
];

fn in_process(report: &Report, floors: &mut Vec<Floor>) {
    for (scenario, instructions, allocations) in LAYERS {
        let Some(cost) = ours(report, *scenario) else {
            continue;
        };
        let mut floor = |what: &str, measured: Option<i64>, most: f64| {
            floors.extend(measured.map(|measured| Floor {
                what: format!("{}: {what}", scenario.about()),
                measured: measured as f64,
                bound: Bound::AtMost(most),
            }));
        };
        floor("instructions", cost.instructions, *instructions);
        if let Some(allocations) = allocations {
            floor("allocations", cost.allocations, *allocations);
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

fn ours(report: &Report, scenario: Scenario) -> Option<&Cost> {
    let mut rows = report.layers.iter();
    rows.find(|row| row.scenario == scenario.name())?.by.first()
}

fn on_redis(report: &Report, floors: &mut Vec<Floor>) {
    let rate = |point: &InFlight| ratio(point, |pace| pace.per_second);
    let median = |point: &InFlight| ratio(point, |pace| pace.p50_us);
    let cases: [(usize, bool, &str, Ratio<'_>, Bound); 4] = [
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

/// Of redis-server: instructions in every case that has a bound, and the bytes of one key.
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
    let ours = report.redis_sizes.iter().find(|sizes| sizes.who == OURS);
    floors.extend(ours.map(|sizes| Floor {
        what: "Redis: bytes per key".to_owned(),
        measured: sizes.bytes_per_key as f64,
        bound: Bound::AtMost(180.0),
    }));
}

type Ratio<'a> = &'a dyn Fn(&InFlight) -> Option<f64>;

/// Ours by the plain script's.
fn ratio(point: &InFlight, figure: fn(&Pace) -> f64) -> Option<f64> {
    Some(figure(point.by.first()?) / figure(point.by.get(1)?))
}

/// The least share of bare's requests per second, in memory, and the least multiple of tower-rate-limit-redis's.
pub(super) const HTTP_BY_BARE: f64 = 0.93;
pub(super) const HTTP_BY_PEER: f64 = 1.5;

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
    let (memory, redis) = (of("Tollgate, memory"), of("Tollgate, Redis"));
    let peer = of("tower-rate-limit-redis");
    floor(
        "memory, with headers: requests per second by bare's",
        memory,
        HTTP_BY_BARE,
    );
    floor("Redis: requests per second by bare's", redis, 0.5);
    let by_peer = redis.zip(peer).map(|(ours, theirs)| ours / theirs);
    floor(
        "Redis: requests per second by tower-rate-limit-redis's",
        by_peer,
        HTTP_BY_PEER,
    );
}

fn growth(report: &Report, floors: &mut Vec<Floor>) {
    let keys = &report.growth.keys;
    // An address is four bytes. Below a million, it is the pages of an empty process that count.
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
