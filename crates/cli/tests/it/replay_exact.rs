//! A log that a running limiter wrote, replayed: the program decides every request as the limiter did.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use http::Request;
use tollgate::config::{LimiterConfig, Registry};
use tollgate::{ManualClock, MemoryBackend, PeerAddr, Timestamp};
use tollgate_limiter::transport::{Admission, Ledger, PolicySet, Ruling};

const BY_ADDRESS: &str = r#"
    policies = [{ name = "by-address", quotas = "1/s burst 3" }]
"#;

const MANY: &str = r#"
    [[policies]]
    name = "api"
    quotas = { second = "2/s burst 4", minute = "50/min sliding-window" }
    key = { header = "x-api-key" }
    routes = ["/api/{*path}"]
    exempt_keys = ["key-2"]
    block_keys = { forbidden = ["key-3"] }
    tiers = { by = { key-1 = "gold" }, quotas = { gold = "10/s" } }

    [[policies]]
    name = "posts"
    quotas = "20/min rolling-window"
    methods = ["POST"]
    ban = { after = "5 in 10s for 20s" }

    [[policies]]
    name = "trial"
    quotas = "1/s"
    key = "global"
    shadow = true
"#;

/// A day of Berlin, which ends within the log, refills at intervals and warm-ups; costs, ids and places.
const EVERY_KIND: &str = r#"
    [[policies]]
    name = "orders"
    quotas = ["250/day in Europe/Berlin", "12/10s interval-refill burst 20"]
    key = { header = "x-api-key" }
    cost = "weight"
    once = { by = { header = "idempotency-key" }, life = 30, replays = 2 }

    [[policies]]
    name = "exports"
    quotas = "3 at once"
    key = { header = "x-api-key" }
    routes = ["/api/{*path}"]

    [[policies]]
    name = "cold"
    quotas = "4/s burst 40 warm up 30s"
    methods = ["POST"]
    cost = "weight"

    [[policies]]
    name = "trial"
    quotas = "5 at once"
    key = "global"
    shadow = true
"#;

/// The part of a request that the service knows and its log has.
#[derive(Clone, Copy)]
struct Weight(u64);

/// Decides random requests by a limiter, writes them down, and compares the program's decisions with the limiter's.
fn replays_exactly(limits: &str, seed: u64) {
    let clock = ManualClock::new();
    let config: LimiterConfig = toml::from_str(limits).unwrap();
    let backend = MemoryBackend::builder().clock(clock.clone()).build();
    let registry = Registry::new().register_cost("weight", |request| {
        let weight = request.extensions().get();
        weight.map_or(1, |Weight(weight)| *weight)
    });
    let limiter = config
        .build(&registry)
        .unwrap()
        .backend(backend)
        .build()
        .unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut log, mut expected, mut refused) = (String::new(), String::new(), 0);
    // A few minutes before midnight in Berlin.
    let mut time_us = 1_795_474_600_000_000;
    let mut under_way: BTreeMap<(u64, u64), Ledger> = BTreeMap::new();
    for line in 1..=5_000_u64 {
        // Many requests come when a budget has just room for them again, and many a microsecond before.
        time_us += [0, 100_000, 100_000, 200_000, 99_999, 100_001][random.usize(..6)];
        while let Some(first) = under_way.first_entry().filter(|it| it.key().0 <= time_us) {
            let ((end_us, _), mut ledger) = first.remove_entry();
            clock.set(Timestamp::from_micros(end_us));
            ledger.release();
        }
        clock.set(Timestamp::from_micros(time_us));
        let address = Ipv4Addr::new(192, 0, 2, random.u8(..5));
        let method = ["GET", "POST"][random.usize(..2)];
        let path = ["/api/things", "/api/", "/other?a=b"][random.usize(..3)];
        let key = format!("key-{}", random.u8(..5));
        let (weight, duration_us) = (random.u64(1..4), random.u64(..1_200_000));
        let id = format!("id-{}", random.u16(..400));
        let has_id = random.bool();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("x-api-key", &key)
            .extension(Weight(weight));
        if has_id {
            request = request.header("idempotency-key", &id);
        }
        let request = request.extension(PeerAddr(SocketAddr::from((address, 1_234))));
        let request = request.body(()).unwrap();

        let ruled = |ruling: Ruling<'_>| match ruling {
            Ruling::Admitted(judgement) => (false, Some(judgement.ledger())),
            Ruling::Denied(judgement) => {
                judgement.ledger().release();
                (true, None)
            }
            ruling => (matches!(ruling, Ruling::Refused(_)), None),
        };
        let view = limiter.view(&request);
        let admission = limiter.admit(&view, PolicySet::Covering, || true, ruled);
        let Admission::Ruled((is_refused, ledger)) = admission else {
            panic!("the backend is in memory");
        };

        if let Some(ledger) = ledger.filter(Ledger::holds) {
            let _new = under_way.insert((time_us + duration_us, line), ledger);
        }
        let id = if has_id { id } else { "-".to_owned() };
        writeln!(
            log,
            r#"{{"time_us":{time_us},"address":"{address}","method":"{method}","path":"{path}","http_x_api_key":"{key}","cost":{weight},"duration_us":{duration_us},"http_idempotency_key":"{id}"}}"#
        )
        .unwrap();
        writeln!(
            expected,
            "{line} {}",
            if is_refused { "refuse" } else { "pass" }
        )
        .unwrap();
        refused += u32::from(is_refused);
    }
    assert!(
        (500..4_500).contains(&refused),
        "{refused} refusals, seed {seed}"
    );

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("limits.toml"), limits).unwrap();
    fs::write(at("access.log"), log).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    // As from a pipe.
    let log = File::open(at("access.log")).unwrap();
    program
        .args(["simulate", "-"])
        .arg(at("limits.toml"))
        .stdin(log);
    let output = program
        .arg("--decisions")
        .arg(at("decisions"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let decisions = fs::read_to_string(at("decisions")).unwrap();
    let decisions = decisions
        .lines()
        .zip(expected.lines())
        .map(|(decided, expected)| {
            assert!(
                decided.starts_with(expected),
                "{decided}, and the limiter: {expected}; seed {seed}"
            );
        });
    assert_eq!(decisions.count(), 5_000);
}

#[test]
fn a_policy_by_address_decides_a_log_as_it_decided_the_requests() {
    replays_exactly(BY_ADDRESS, fastrand::u64(..));
}

#[test]
fn several_policies_with_keys_tiers_lists_and_bans_do_too() {
    replays_exactly(MANY, fastrand::u64(..));
}

#[test]
fn calendars_refills_warm_ups_costs_ids_and_places_do_as_well() {
    replays_exactly(EVERY_KIND, fastrand::u64(..));
}
