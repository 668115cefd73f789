//! Quotas of every algorithm: tiny ones, in which a few steps reach every corner, ordinary ones, and extreme ones.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Algorithm, Concurrent, MAX_LIMIT, MAX_LOG_LIMIT, Quota};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Any valid quota.
pub(crate) fn any() -> impl Strategy<Value = Quota> {
    prop_oneof![
        4 => tiny(),
        2 => ordinary(),
        2 => extreme(),
    ]
}

/// A limit on how many at once, which has no period.
#[allow(dead_code, reason = "the oracle needs it")]
pub(crate) fn at_once() -> impl Strategy<Value = Quota> {
    prop_oneof![4 => 1_u64..=6, 1 => 1..=MAX_LIMIT]
        .prop_map(|limit| Concurrent::at_most(limit).into())
}

/// A limit of a few units and a period of a few microseconds.
pub(crate) fn tiny() -> impl Strategy<Value = Quota> {
    (1_u64..=6, 1_u64..=24, 0_u64..=9, kinds())
        .prop_filter_map("no such quota", |(limit, period_us, burst, kind)| {
            build(limit, period_us, burst, kind)
        })
}

/// A small bucket that drains in a few microseconds. Its rate often gives an interval that is not a whole number of
/// them.
pub(crate) fn tiny_gcra() -> impl Strategy<Value = Quota> {
    (1_u64..=4, 1_u64..=12, 1_u64..=10)
        .prop_filter_map("no such quota", |(limit, period_us, burst)| {
            build(limit, period_us, burst, Kind::Gcra)
        })
}

/// A small budget that is refilled in intervals of a few microseconds, mostly with room for several refills.
pub(crate) fn tiny_refills() -> impl Strategy<Value = Quota> {
    let kinds = any_offset().prop_map(|offset| Kind::IntervalRefill { offset });
    (1_u64..=4, 1_u64..=12, 1_u64..=15, kinds)
        .prop_filter_map("no such quota", |(limit, period_us, burst, kind)| {
            build(limit, period_us, burst, kind)
        })
}

/// A small bucket that warms up within some dozens of units.
#[allow(dead_code, reason = "the oracle needs no tiny ones")]
pub(crate) fn tiny_warming() -> impl Strategy<Value = Quota> {
    let kinds = any_warm_up();
    (1_u64..=4, 1_u64..=12, 1_u64..=10, kinds)
        .prop_filter_map("no such quota", |(limit, period_us, burst, kind)| {
            build(limit, period_us, burst, kind)
        })
}

/// This tiny quota under another limit, as another tier.
pub(crate) fn tiny_tiers() -> impl Strategy<Value = [Quota; 3]> {
    (
        1_u64..=24,
        prop::array::uniform3((1_u64..=9, 0_u64..=9)),
        kinds(),
    )
        .prop_filter_map("no such quota", |(period_us, tiers, kind)| {
            let [a, b, c] = tiers.map(|(limit, burst)| build(limit, period_us, burst, kind));
            Some([a?, b?, c?])
        })
}

fn ordinary() -> impl Strategy<Value = Quota> {
    let rates = prop::sample::select(vec![
        (7, SECOND),
        (10, SECOND),
        (100, 60 * SECOND),
        (1000, 3600 * SECOND),
        (997, SECOND),
        (1024, 7 * SECOND),
        (999_983, DAY),
        (1_000_000, DAY),
        (300_000, SECOND),
    ]);
    (rates, 0_u64..2000, kinds())
        .prop_filter_map("no such quota", |((limit, period_us), burst, kind)| {
            build(limit, period_us, burst, kind)
        })
}

fn extreme() -> impl Strategy<Value = Quota> {
    let limits = prop_oneof![
        Just(1),
        Just(MAX_LOG_LIMIT),
        Just(1 << 30),
        Just(1_000_000_007),
        Just(MAX_LIMIT),
        Just(MAX_LIMIT - 87),
        1..=MAX_LIMIT,
        (0_u32..=40).prop_flat_map(|bits| (1_u64 << bits) / 2 + 1..=1 << bits),
    ];
    let periods = prop_oneof![
        Just(1),
        Just(SECOND),
        Just(366 * DAY),
        1..=366 * DAY,
        (1_u32..=44).prop_flat_map(|bits| (1_u64 << bits) / 2..=1 << bits),
    ];
    let bursts = prop_oneof![Just(0), Just(1), Just(MAX_LIMIT), 1..=MAX_LIMIT];
    (limits, periods, bursts, kinds())
        .prop_filter_map("no such quota", |(limit, period_us, burst, kind)| {
            build(limit, period_us, burst, kind)
        })
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Gcra,
    FixedWindow { offset: u64 },
    SlidingWindow,
    RollingWindow { buckets: u32 },
    SlidingLog,
    IntervalRefill { offset: u64 },
    Warming { warm_up: u64, factor: u64 },
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        2 => Just(Kind::Gcra),
        1 => any_offset().prop_map(|offset| Kind::FixedWindow { offset }),
        1 => Just(Kind::SlidingWindow),
        1 => prop::sample::select(vec![2, 3, 4, 5, 6, 8, 10, 12, 60, 100, 125, 128])
            .prop_map(|buckets| Kind::RollingWindow { buckets }),
        1 => Just(Kind::SlidingLog),
        1 => any_offset().prop_map(|offset| Kind::IntervalRefill { offset }),
        1 => any_warm_up(),
    ]
}

fn any_warm_up() -> impl Strategy<Value = Kind> {
    let factors = prop_oneof![4 => Just(3), 2 => 2_u64..=5, 1 => 2_u64..=100];
    (0..u64::MAX, factors).prop_map(|(warm_up, factor)| Kind::Warming { warm_up, factor })
}

fn any_offset() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..u64::MAX]
}

/// `None` if the house refuses such a quota. A burst of 0 means that none was given.
fn build(limit: u64, period_us: u64, burst: u64, kind: Kind) -> Option<Quota> {
    let quota = Quota::try_new(limit, Duration::from_micros(period_us)).ok()?;
    let algorithm = match kind {
        Kind::Warming { warm_up, factor } => {
            let quota = match burst {
                0 => quota,
                burst => quota.try_burst(burst).ok()?,
            };
            // From one unit to some dozens of them.
            let unit = (factor * period_us).div_ceil(limit).min(1 << 31);
            let warm_up = Duration::from_micros(unit + warm_up % (32 * unit));
            let quota = quota.try_warm_up(warm_up).ok()?;
            return quota.try_cold_factor(factor).ok();
        }
        Kind::Gcra if burst == 0 => return Some(quota),
        Kind::Gcra => return quota.try_burst(burst).ok(),
        Kind::FixedWindow { offset } => Algorithm::FixedWindow {
            offset: Duration::from_micros(offset % period_us),
        },
        Kind::SlidingWindow => Algorithm::SlidingWindow,
        Kind::RollingWindow { buckets } => Algorithm::RollingWindow { buckets },
        Kind::SlidingLog => Algorithm::SlidingLog,
        Kind::IntervalRefill { offset } => {
            let offset = Duration::from_micros(offset % period_us);
            let quota = quota.try_using(Algorithm::IntervalRefill { offset }).ok()?;
            return if burst == 0 {
                Some(quota)
            } else {
                quota.try_burst(burst).ok()
            };
        }
    };
    quota.try_using(algorithm).ok()
}
