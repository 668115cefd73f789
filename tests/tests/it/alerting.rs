//! A real Prometheus scrapes real servers under load, the example `operated` among them: each alert fires while something is
//! wrong, and resolves when it is over.
//!
//! The rules are those of `docs/operating/alerts.yml`, with the same expressions and thresholds. Their times are divided, all by
//! the same number, and so is the interval between two scrapes: a minute becomes a second, and the longest alert takes a minute
//! rather than an hour. `promtool test rules` tries the times as they are, on a clock of its own. A fault lasts until all alerts
//! have fired, so that no moment matters.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod example;
mod http;
mod prometheus;
mod servers;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{
    Backend, Concurrent, Key, Limiter, MemoryBackend, Policy, PressureGauge, Quota, Switch, config,
    key,
};
use tollgate_testkit::{Network, Standalone, Weather};

use crate::alerting::example::Program;
use crate::alerting::http::Knocking;
use crate::alerting::prometheus::{Prometheus, faster, rules};
use crate::alerting::servers::{Server, ask, ask_as_a_flood, on};

/// The number by which times are divided: minutes become seconds.
const FASTER: u64 = 60;

/// The patience of the test. It takes some eighty seconds if the machine has time for it.
const PATIENCE: Duration = Duration::from_secs(400);

/// The pace of everything that repeats.
const PACE: Duration = Duration::from_millis(20);

const ALERTS: [(&str, &str); 10] = [
    ("RateLimitBackendFailing", "parted"),
    ("RateLimitServersAway", "parted"),
    ("RateLimitDecisionsSlow", "slow"),
    ("RateLimitDeniesMany", "local"),
    ("RateLimitLosesGiveBacks", "parted"),
    ("RateLimitLosesLeases", "slow"),
    ("RateLimitEvictsKeys", "local"),
    ("RateLimitConfigRefused", "local"),
    ("RateLimitSwitchedOff", "local"),
    ("RateLimitSheds", "local"),
];

/// The alerts that an operator brings about in the example, without and with a Redis.
const ALERTS_OF_THE_EXAMPLE: [(&str, &str); 5] = [
    ("RateLimitDeniesMany", "operated"),
    ("RateLimitConfigRefused", "operated"),
    ("RateLimitSwitchedOff", "operated"),
    ("RateLimitBackendFailing", "operated-fleet"),
    ("RateLimitServersAway", "operated-fleet"),
];

const LIMITS: &str = r#"
[[policies]]
name = "api"
quotas = "1000000/s"
routes = ["/"]

[[policies]]
name = "busy"
quotas = "1/h"
on_demand = true

[[policies]]
name = "many"
quotas = "2/h"
on_demand = true
"#;

/// Waits until this holds. `act` is done each time before.
fn eventually(what: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{}", what());
        thread::sleep(PACE * 10);
    }
}

#[test]
#[allow(
    clippy::too_many_lines,
    reason = "one story: all is well, all is wrong, all is well"
)]
fn each_alert_fires_while_something_is_wrong_and_resolves_afterwards() {
    let program = Program::find();

    // given three servers under load: one whose Redis becomes slow and forgets, one that loses it, and one in memory
    let redis = Standalone::start();
    let networks = [(); 2].map(|()| Arc::new(Network::before(redis.port())));
    let [slow_network, lost_network] = &networks;
    let api = || Policy::new("api", Quota::per_second(1_000));

    let network = Arc::clone(slow_network);
    let slow = Server::start(
        async move || {
            let backend = on(&network).prefix("slow").deadline(Duration::from_secs(2));
            let backend = backend.held_lease(Duration::from_secs(3));
            let places = Policy::new("places", Concurrent::at_most(5));
            let builder = Limiter::builder().policies([api(), places]);
            let builder = builder.backend(backend.connect().await.unwrap());
            (builder.metrics().build().unwrap(), None)
        },
        ask,
    );

    let network = Arc::clone(lost_network);
    let (lend, lent) = mpsc::channel();
    let parted = Server::start(
        async move || {
            let backend = on(&network)
                .prefix("parted")
                .deadline(Duration::from_secs(2));
            let backend = backend.connect().await.unwrap();
            let places = Policy::new("places", Concurrent::at_most(5));
            let builder = Limiter::builder().policies([api(), places]);
            let builder = builder.backend(backend.clone());
            let limiter = builder.metrics().build().unwrap();
            let mut receipts = Vec::new();
            for n in 0..100 {
                let taken = limiter
                    .check("api", Key::from(format!("{n}")))
                    .await
                    .unwrap();
                receipts.extend(taken.into_receipts());
            }
            lend.send((backend, receipts, tokio::runtime::Handle::current()))
                .unwrap();
            (limiter, None)
        },
        ask,
    );
    let (backend, receipts, runtime) = lent.recv().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(&path, LIMITS).unwrap();
    let (gauge, followed) = (PressureGauge::new(), path.clone());
    let pressure = gauge.clone();
    let local = Server::start(
        async move || {
            let mut file = config::watch(followed, |text| toml::from_str(text));
            let builder = file.load().unwrap();
            let backend = MemoryBackend::builder().max_keys(1_000).build();
            let builder = builder
                .backend(backend)
                .classes(["normal", "batch"], key::Header::new("x-class"))
                .shed(pressure, [("batch", 0.7)])
                .metrics();
            let limiter = builder.build().unwrap();
            let watch = file.follow(&limiter);
            (limiter, Some(watch))
        },
        ask_as_a_flood,
    );
    let calm = || "x-class: normal";
    let _knocking = Knocking::at(local.address, calm);

    // and the example, in memory and on the Redis that will be lost
    let operated = program.start(None);
    let url = format!("redis://127.0.0.1:{}/", lost_network.port());
    let operated_fleet = program.start(Some(&url));
    let is_strict = Arc::new(AtomicBool::new(false));
    let strict = Arc::clone(&is_strict);
    let _knocking = [
        Knocking::at(operated.address, move || {
            match strict.load(Ordering::Relaxed) {
                true => "x-strict: one",
                false => "x-class: normal",
            }
        }),
        Knocking::at(operated_fleet.address, calm),
    ];

    // when all is well, then no alert fires
    let prometheus = Prometheus::start(&[
        ("slow", slow.address),
        ("parted", parted.address),
        ("local", local.address),
        ("operated", operated.address),
        ("operated-fleet", operated_fleet.address),
    ]);
    let firing = || format!("{:?}", prometheus.firing());
    eventually(firing, || {
        prometheus.scraped() == 5 && prometheus.firing().is_empty()
    });

    // when everything is wrong
    slow_network.set(Weather {
        delay: Duration::from_millis(60),
        ..Weather::default()
    });
    lost_network.set(Weather {
        is_parted: true,
        ..Weather::default()
    });
    {
        let _within = runtime.enter();
        for receipt in receipts {
            backend.refund(receipt, 1);
        }
    }
    local.is_faulty.store(true, Ordering::Relaxed);
    gauge.set(0.9);
    fs::write(&path, LIMITS.replace("1/h", "1/hourly")).unwrap();
    local.limiter.switch("api", Switch::Off).unwrap();
    is_strict.store(true, Ordering::Relaxed);
    operated.write_limits(true);
    operated.switch("off");

    // then each alert fires
    let expected: BTreeSet<_> = (ALERTS.iter().chain(&ALERTS_OF_THE_EXAMPLE))
        .map(|(alert, job)| ((*alert).to_owned(), (*job).to_owned()))
        .collect();
    let seen = std::cell::RefCell::new(BTreeSet::new());
    let missing = || {
        format!(
            "{:?}",
            expected.difference(&seen.borrow()).collect::<Vec<_>>()
        )
    };
    eventually(missing, || {
        // As long as it takes until a heartbeat finds out.
        let _said = redis.command(&["FLUSHALL"]);
        seen.borrow_mut().extend(prometheus.firing());
        seen.borrow().is_superset(&expected)
    });

    // and each question of the dashboard has an answer
    let unanswered = || prometheus.unanswered();
    eventually(|| format!("{:?}", unanswered()), || unanswered().is_empty());

    // when all is well again
    for network in &networks {
        network.set(Weather::default());
    }
    local.is_faulty.store(false, Ordering::Relaxed);
    gauge.set(0.0);
    fs::write(&path, LIMITS).unwrap();
    local.limiter.switch("api", Switch::On).unwrap();
    is_strict.store(false, Ordering::Relaxed);
    operated.write_limits(false);
    operated.switch("on");

    // then each resolves
    eventually(firing, || {
        prometheus.firing().is_empty() && prometheus.scraped() == 5
    });
}

#[test]
fn each_rule_that_ships_is_tried_and_none_but_its_times_is_changed() {
    let shipped = include_str!("../../../docs/operating/alerts.yml");
    let names = |rules: &str| -> Vec<String> {
        let lines = rules.lines();
        let names = lines.filter_map(|line| line.trim().strip_prefix("- alert: "));
        names.map(str::to_owned).collect()
    };
    assert_eq!(names(&rules()), names(shipped));
    assert_eq!(names(shipped), ALERTS.map(|(name, _)| name));
    for (ours, theirs) in shipped.lines().zip(rules().lines()) {
        let is_time = ours.contains("for: ") || ours.contains('[');
        assert!(ours == theirs || is_time, "{ours}");
    }
    assert_eq!([faster("1m"), faster("1h")], ["1000ms", "60000ms"]);
}
