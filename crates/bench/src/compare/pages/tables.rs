//! The tables, one for each measured part.

use super::super::figures::{Table, counted, figure, thousands};
use super::super::report::{
    Growth, HeldCost, InFlight, Report, Row, Served, ServerCost, Sizes, Threads,
};

/// The tables that have data.
pub(super) fn all(report: &Report) -> String {
    let mut text = String::new();
    let mut part = |title: &str, about: &str, any: bool, tables: String| {
        if any {
            text.push_str(&format!("\n## {title}\n\n{about}\n{tables}"));
        }
    };
    part(
        "In process",
        include_str!("parts/in_process.md"),
        !report.layers.is_empty(),
        layers(&report.layers),
    );
    part(
        "Threads",
        include_str!("parts/threads.md"),
        !report.threads.is_empty(),
        threads(&report.threads),
    );
    part(
        "On Redis",
        include_str!("parts/redis.md"),
        !report.redis.is_empty(),
        redis(&report.redis)
            + &sizes(&report.redis_sizes)
            + &costs(&report.redis_costs)
            + &held(&report.redis_held),
    );
    part(
        "Over HTTP",
        include_str!("parts/http.md"),
        !report.http.is_empty(),
        http(&report.http),
    );
    part(
        "Over HTTP, so many at once",
        include_str!("parts/at_once.md"),
        !report.at_once.is_empty(),
        http(&report.at_once),
    );
    part(
        "Growth",
        include_str!("parts/growth.md"),
        !report.growth.keys.is_empty(),
        growth(&report.growth),
    );
    text
}

fn layers(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "a request, above the bare service",
        "instructions",
        "ratio",
        "time ratio",
        "allocations",
    ]);
    for row in rows {
        let ours = row.by.first().and_then(|ours| ours.instructions);
        for (place, cost) in row.by.iter().enumerate() {
            let name = if place == 0 {
                row.what.clone()
            } else {
                format!("– {}", cost.who)
            };
            let ratio = ours.zip(cost.instructions).filter(|_| place > 0);
            let ratio = ratio.map(|(ours, theirs)| figure(ours as f64 / theirs as f64));
            let time = Some(figure(cost.ours_by_this)).filter(|_| place > 0);
            table.row(&[
                name,
                counted(cost.instructions.map(|count| count as f64)),
                ratio.unwrap_or_default(),
                time.unwrap_or_default(),
                counted(cost.allocations.map(|count| count as f64)),
            ]);
        }
    }
    table.finish()
}

fn threads(all: &[Threads]) -> String {
    let mut table = Table::new(&[
        "checks per second",
        "Tollgate",
        "governor",
        "Tollgate by governor",
    ]);
    for one in all {
        let threads = if one.threads == 1 {
            "1 thread".to_owned()
        } else {
            format!("{} threads", one.threads)
        };
        let said = &one.said;
        let against = if one.against_version_4 {
            "; governor's keys of version 4 alone"
        } else {
            ""
        };
        table.row(&[
            format!(
                "{threads}, {} keys, {said}{against}",
                thousands(f64::from(one.keys))
            ),
            thousands(one.ours_per_second),
            thousands(one.governor_per_second),
            figure(one.ours_by_governor),
        ]);
    }
    table.finish()
}

fn redis(points: &[InFlight]) -> String {
    let mut table = Table::new(&[
        "in flight",
        "decisions per second",
        "by Tollgate's",
        "p50, µs",
        "p99, µs",
    ]);
    for point in points {
        let ours = point.by.first().map_or(1.0, |ours| ours.per_second);
        for pace in &point.by {
            let hot = if point.callers == 1 {
                ", one hot key"
            } else {
                ""
            };
            table.row(&[
                format!("{}{hot}: {}", point.in_flight, pace.who),
                thousands(pace.per_second),
                figure(pace.per_second / ours),
                thousands(pace.p50_us),
                thousands(pace.p99_us),
            ]);
        }
    }
    table.finish()
}

fn sizes(all: &[Sizes]) -> String {
    let mut table = Table::new(&[
        "one decision",
        "redis-server instructions",
        "bytes to the server",
        "bytes from it",
        "bytes per key",
    ]);
    for sizes in all {
        table.row(&[
            sizes.who.clone(),
            counted(sizes.instructions.map(|count| count as f64)),
            thousands(sizes.bytes_to_server),
            thousands(sizes.bytes_from_server),
            thousands(sizes.bytes_per_key as f64),
        ]);
    }
    format!("\n{}", table.finish())
}

fn costs(all: &[ServerCost]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        "redis-server instructions of one of Tollgate's decisions",
        "allowed",
        "denied",
    ]);
    for cost in all {
        table.row(&[
            cost.case.clone(),
            thousands(cost.allowed as f64),
            thousands(cost.denied as f64),
        ]);
    }
    format!("\n{}", table.finish())
}

fn held(all: &[HeldCost]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        "redis-server instructions of a place taken and given back",
        "processes that hold",
        "instructions",
    ]);
    for cost in all {
        table.row(&[
            cost.case.clone(),
            thousands(cost.holders as f64),
            thousands(cost.instructions as f64),
        ]);
    }
    format!("\n{}", table.finish())
}

pub(super) fn http(all: &[Served]) -> String {
    let mut table = Table::new(&[
        "hello, world behind",
        "requests per second",
        "by bare",
        "server, µs of processor",
        "by bare",
        "wrk, µs",
        "redis-server, µs",
        "p50, µs",
        "by bare",
        "p99, µs",
        "by bare",
    ]);
    for one in all {
        table.row(&[
            one.who.clone(),
            thousands(one.per_second),
            figure(one.rate_by_bare),
            figure(one.processor_us),
            figure(one.processor_by_bare),
            figure(one.wrk_us),
            // Callers that ask nothing see it awake now and then.
            Some(one.redis_us)
                .filter(|us| *us >= 0.1)
                .map_or_else(|| "–".to_owned(), figure),
            thousands(one.p50_us),
            figure(one.p50_by_bare),
            thousands(one.p99_us),
            figure(one.p99_by_bare),
        ]);
    }
    table.finish()
}

fn growth(growth: &Growth) -> String {
    let mut keys = Table::new(&["one check in memory", "ns", "resident bytes per key"]);
    for point in &growth.keys {
        keys.row(&[
            format!(
                "{} among {} keys",
                point.who,
                thousands(f64::from(point.keys))
            ),
            figure(point.nanos),
            // Below that, the pages of an empty process dominate.
            counted(Some(point.bytes_per_key).filter(|_| point.keys >= 100_000)),
        ]);
    }
    let mut steps = Table::new(&["a request", "ns"]);
    for policies in &growth.policies {
        let what = match policies.count {
            1 => "with one policy, which has a route".to_owned(),
            count => format!("with {count} policies, each with a route, of which one is met"),
        };
        steps.row(&[what, figure(policies.nanos)]);
    }
    for charges in &growth.charges {
        steps.row(&[
            match charges.count {
                1 => "with one charge, without a layer".to_owned(),
                count => format!("with {count} charges, without a layer"),
            },
            figure(charges.nanos),
        ]);
    }
    let mut pauses = Table::new(&["longest single call", "µs", "around arithmetic, µs"]);
    for pause in &growth.pauses {
        pauses.row(&[
            format!("{}: {}", pause.who, pause.what),
            figure(pause.longest_us),
            figure(pause.nothing_us),
        ]);
    }
    format!(
        "{}
{}
{}",
        keys.finish(),
        steps.finish(),
        pauses.finish()
    )
}
