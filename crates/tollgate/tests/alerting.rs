//! A real Prometheus scrapes real servers under load: each alert fires while something is wrong, and resolves when it is over.
//!
//! The rules are those of `docs/operating/alerts.yml`, with the same expressions and thresholds. Their times are divided, all by
//! the same number, and so is the interval between two scrapes: a minute becomes a second, and the longest alert takes a minute
//! rather than an hour. `promtool test rules` tries the times as they are, on a clock of its own. A fault lasts until all alerts
//! have fired, so that no moment matters.

#![cfg(all(
    feature = "axum",
    feature = "metrics",
    feature = "redis",
    feature = "serde"
))]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::time::sleep;
use tollgate::{
    Backend, Concurrent, Key, Limiter, MemoryBackend, Policy, PressureGauge, Quota, RateLimitLayer,
    RedisBackend, Switch, config, key,
};
use tollgate_testkit::{Network, Standalone, Weather};

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

/// A server in a thread of its own, with metrics of its own.
struct Server {
    address: SocketAddr,
    limiter: Limiter,
    is_faulty: Arc<AtomicBool>,
    is_over: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

/// The recorder of an operator, with buckets as the page about metrics recommends them.
fn recorder() -> PrometheusRecorder {
    let full = |name: &str| Matcher::Full(name.to_owned());
    let used = full("rate_limiting_budget_used_ratio");
    let duration = full("rate_limiting_decision_duration_seconds");
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(used, &[0.25, 0.5, 0.75, 0.9, 1.0])
        .unwrap()
        .set_buckets_for_metric(duration, &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5])
        .unwrap();
    builder.build_recorder()
}

impl Server {
    /// Starts one with a limiter and its load, which knows when something is to be wrong.
    fn start<B, L>(
        build: impl FnOnce() -> B + Send + 'static,
        load: fn(Limiter, Arc<AtomicBool>) -> L,
    ) -> Self
    where
        B: Future<Output = (Limiter, Option<config::Watch>)>,
        L: Future<Output = ()> + Send + 'static,
    {
        let (is_faulty, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (faulty, over) = (Arc::clone(&is_faulty), Arc::clone(&is_over));
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            let recorder = recorder();
            let page = recorder.handle();
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            // All that this server does, it does in this thread.
            metrics::with_local_recorder(&recorder, || {
                runtime.block_on(async move {
                    let (limiter, _watch) = build().await;
                    let operated = limiter.clone();
                    let metrics = async move || {
                        operated.publish_metrics();
                        page.render()
                    };
                    let app = Router::new()
                        .route("/", get(async || "hello"))
                        .layer(RateLimitLayer::new(&limiter))
                        .route("/metrics", get(metrics));
                    let app = app.into_make_service_with_connect_info::<SocketAddr>();
                    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
                    let listener = listener.await.unwrap();
                    let address = listener.local_addr().unwrap();
                    tell.send((address, limiter.clone())).unwrap();
                    let load = tokio::spawn(load(limiter, faulty));
                    tokio::select! {
                        served = async { axum::serve(listener, app).await } => served.unwrap(),
                        () = over.notified() => load.abort(),
                    }
                });
            });
        });
        let (address, limiter) = told.recv().unwrap();
        Self {
            address,
            limiter,
            is_faulty,
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.notify_one();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

fn on(network: &Network) -> tollgate::RedisBackendBuilder {
    let url = format!("redis://127.0.0.1:{}/", network.port());
    RedisBackend::builder(&url)
}

/// Asks all the time. What it holds is held until the end.
async fn ask(limiter: Limiter, _is_faulty: Arc<AtomicBool>) {
    let _held = limiter.check("places", Key::global()).await;
    loop {
        let _decided = limiter.check("api", Key::global()).await;
        sleep(PACE).await;
    }
}

/// While something is wrong, a caller comes three times rather than once, and another has a new name each time.
async fn ask_as_a_flood(limiter: Limiter, is_faulty: Arc<AtomicBool>) {
    for n in 0_u64.. {
        let wrong = is_faulty.load(Ordering::Relaxed);
        let asked = match wrong {
            true => vec![("busy", "one".to_owned()); 3],
            false => vec![("api", "one".to_owned())],
        };
        let flood = (0..200).map(|caller| ("many", format!("{n}-{caller}")));
        for (policy, caller) in asked.into_iter().chain(flood.filter(|_| wrong)) {
            let check = limiter.check(policy, Key::from(caller));
            check.class("normal").await.unwrap();
        }
        sleep(PACE).await;
    }
}

/// The answer's body.
fn fetch(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    // No server sheds requests of this class.
    let head = "Host: test\r\nx-class: normal";
    write!(stream, "GET {path} HTTP/1.0\r\n{head}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    body.ok_or_else(|| std::io::Error::other(answer))
}

/// A time of the rules, divided.
fn faster(time: &str) -> String {
    let (number, unit) = time.split_at(time.len() - 1);
    let unit_ms = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => panic!("a time in {unit:?}"),
    };
    let ms = number.parse::<u64>().unwrap() * unit_ms / FASTER;
    format!("{ms}ms")
}

/// The rules that ship, with their times divided.
fn rules() -> String {
    let page = include_str!("../../../docs/operating/alerts.yml");
    let mut rules = String::new();
    for line in page.lines() {
        if let Some((before, time)) = line.split_once("for: ") {
            writeln!(rules, "{before}for: {}", faster(time)).unwrap();
            continue;
        }
        let mut rest = line;
        // The only other brackets are ranges.
        while let Some((before, range)) = rest.split_once('[') {
            let (time, after) = range.split_once(']').unwrap();
            write!(rules, "{before}[{}]", faster(time)).unwrap();
            rest = after;
        }
        writeln!(rules, "{rest}").unwrap();
    }
    rules
}

struct Prometheus {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Prometheus {
    fn start(servers: &[(&str, SocketAddr)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("alerts.yml"), rules()).unwrap();
        let interval = faster("1m");
        let mut config = format!(
            "global: {{ scrape_interval: {interval}, scrape_timeout: {interval}, evaluation_interval: {interval} }}\n\
             rule_files: [alerts.yml]\nscrape_configs:\n"
        );
        for (job, address) in servers {
            let targets = format!("static_configs: [{{ targets: [\"{address}\"] }}]");
            writeln!(config, "- {{ job_name: {job}, {targets} }}").unwrap();
        }
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        // Another program may take the port before this one does.
        for _ in 0..5 {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            let mut process = Self::process(folder.path(), address);
            while process.try_wait().unwrap().is_none() {
                if fetch(address, "/-/ready").is_ok_and(|page| page.contains("Ready")) {
                    return Self {
                        process,
                        address,
                        folder,
                    };
                }
                thread::sleep(PACE);
            }
        }
        let log = fs::read_to_string(folder.path().join("log"));
        panic!("prometheus does not start: {log:?}");
    }

    fn process(folder: &Path, address: SocketAddr) -> Child {
        let log = fs::File::create(folder.join("log")).unwrap();
        let file = |name: &str| folder.join(name).display().to_string();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", file("data")))
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--query.lookback-delta={}", faster("5m")))
            .arg("--log.level=warn")
            .stdout(Stdio::null())
            .stderr(log);
        let process = command.spawn();
        process.expect("prometheus is missing: tests/install.sh installs it")
    }

    fn ask(&self, path: &str) -> serde_json::Value {
        let answer = fetch(self.address, path).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    /// The number of servers that were scraped last time.
    fn scraped(&self) -> usize {
        let answer = self.ask("/api/v1/query?query=up");
        let series = answer["data"]["result"].as_array().unwrap();
        series.iter().filter(|one| one["value"][1] == "1").count()
    }

    /// The alerts that are firing now.
    fn firing(&self) -> BTreeSet<(String, String)> {
        let answer = self.ask("/api/v1/alerts");
        let alerts = answer["data"]["alerts"].as_array().unwrap();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        let label = |alert: &serde_json::Value, name: &str| {
            let label = alert["labels"][name].as_str();
            label.unwrap_or_default().to_owned()
        };
        firing
            .map(|alert| (label(alert, "alertname"), label(alert, "job")))
            .collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.process.kill();
        let _ended = self.process.wait();
        if thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log"));
            eprintln!("prometheus: {log:?}");
        }
    }
}

/// Waits until this holds. `act` is done each time before.
fn eventually(what: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{}", what());
        thread::sleep(PACE * 10);
    }
}

/// Requests over HTTP until the sender is dropped.
fn knock(address: SocketAddr) -> (mpsc::Sender<()>, JoinHandle<()>) {
    let (end, ended) = mpsc::channel();
    let knocking = thread::spawn(move || {
        while ended.recv_timeout(PACE) == Err(RecvTimeoutError::Timeout) {
            assert_eq!(fetch(address, "/").unwrap(), "hello");
        }
    });
    (end, knocking)
}

#[test]
#[allow(
    clippy::too_many_lines,
    reason = "one story: all is well, all is wrong, all is well"
)]
fn each_alert_fires_while_something_is_wrong_and_resolves_afterwards() {
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
            let backend = on(&network).prefix("parted");
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
    let (end, knocking) = knock(local.address);

    // when all is well, then no alert fires
    let prometheus = Prometheus::start(&[
        ("slow", slow.address),
        ("parted", parted.address),
        ("local", local.address),
    ]);
    eventually(|| "scraped".to_owned(), || prometheus.scraped() == 3);
    assert_eq!(prometheus.firing(), BTreeSet::new());

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
            backend.credit(receipt, 1);
        }
    }
    local.is_faulty.store(true, Ordering::Relaxed);
    gauge.set(0.9);
    fs::write(&path, LIMITS.replace("1/h", "1/hourly")).unwrap();
    local.limiter.switch("api", Switch::Off).unwrap();

    // then each alert fires
    let expected: BTreeSet<_> = (ALERTS.iter())
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

    // when all is well again
    for network in &networks {
        network.set(Weather::default());
    }
    local.is_faulty.store(false, Ordering::Relaxed);
    gauge.set(0.0);
    fs::write(&path, LIMITS).unwrap();
    local.limiter.switch("api", Switch::On).unwrap();

    // then each resolves
    let firing = || format!("{:?}", prometheus.firing());
    eventually(firing, || prometheus.firing().is_empty());
    assert_eq!(prometheus.scraped(), 3);
    drop(end);
    knocking.join().unwrap();
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
