//! One budget for nginx and for services with Tollgate's layer.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use tokio::task::JoinSet;
use tollgate_testkit::Standalone;

use crate::nginx::client::{Answer, Ask, status};
use crate::nginx::served::{Gate, PATIENCE, service};

/// The numbers of the budgets that both count alike, and of a field's times.
fn without_numbers(text: &str) -> (String, Vec<i64>) {
    let (mut words, mut numbers) = (String::new(), Vec::new());
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        if let Ok(number) = digits.parse() {
            numbers.push(number);
        }
        words.push_str(&part[digits.len()..]);
    }
    (words, numbers)
}

/// Both say the same, byte for byte, but for times that may differ by the seconds between them.
fn assert_alike(nginx: &Answer, layer: &Answer, asked: &str) {
    assert_eq!(nginx.status, layer.status, "{asked}\n{nginx:?}\n{layer:?}");
    assert_eq!(nginx.body, layer.body, "{asked}");
    for name in [
        "content-type",
        "content-length",
        "cache-control",
        "ratelimit-policy",
    ] {
        if nginx.status != 200 || name == "ratelimit-policy" {
            assert_eq!(nginx.field(name), layer.field(name), "{asked}: {name}");
        }
    }
    for name in ["ratelimit", "retry-after"] {
        let (one, other) = (nginx.field(name).join("|"), layer.field(name).join("|"));
        let ((words, numbers), (same, others)) = (without_numbers(&one), without_numbers(&other));
        assert_eq!(words, same, "{asked}: {name}: {one} {other}");
        for (number, other) in numbers.iter().zip(others) {
            assert!(
                (number - other).abs() <= 60,
                "{asked}: {name}: {one} {other}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_of_ten_is_spent_half_through_nginx_and_half_through_a_service() {
    let redis = Standalone::start();
    let limits = "[[policies]]\nname = 'ten'\nquotas = '10/h'\nkey = { header = 'x-api-key' }\n";
    let gate = Gate::start(limits, &redis).await;
    let (service, behind) = service(limits, Some(&redis)).await;
    let places = [gate.address(), service];

    // One after the other.
    let call = |key: &str| Ask::new("GET /").field("x-api-key", key);
    for turn in 0..10 {
        let passed = call("alice").send(places[turn % 2]).await;
        let left = 9 - turn;
        assert_eq!(passed.status, 200, "{turn}");
        assert!(
            passed.field("ratelimit")[0].starts_with(&format!("\"ten\";r={left};")),
            "{passed:?}"
        );
    }
    let refused = [
        call("alice").send(places[0]).await,
        call("alice").send(places[1]).await,
    ];
    assert_alike(&refused[0], &refused[1], "refused");
    assert_eq!((gate.reached.count(), behind.count()), (5, 5));

    // All at once.
    let mut all = JoinSet::new();
    for turn in 0..60 {
        let (ask, place) = (call("bob"), places[turn % 2]);
        all.spawn(async move { ask.send(place).await.status });
    }
    let passed = all
        .join_all()
        .await
        .into_iter()
        .filter(|status| *status == 200);
    assert_eq!(passed.count(), 10);
    assert_eq!(gate.reached.count() + behind.count(), 10);
}

const KEYS: [&str; 9] = [
    "'client-ip'",
    "'global'",
    "{ header = 'x-api-key' }",
    "{ cookie = 'sid' }",
    "{ query = 'user' }",
    "{ path-param = 'id' }",
    "{ form-field = 'user' }",
    "['client-ip', { header = 'x-api-key' }]",
    "'bearer-token'",
];
const ALGORITHMS: [&str; 7] = [
    "",
    "",
    "fixed-window",
    "sliding-window",
    "rolling-window",
    "sliding-log",
    "interval-refill",
];

/// A number of policies for the paths of a mix, with quotas that last longer than the test.
fn policies(rng: &mut Rng, mix: usize, limits: &mut String) {
    for number in 0..rng.usize(1..=3) {
        let quotas = (0..rng.usize(1..=3)).map(|_| {
            let period = rng.choice(["1000h", "900h"]).unwrap();
            let algorithm = rng.choice(ALGORITHMS).unwrap();
            format!("{}/{period} {algorithm}", rng.usize(2..=8))
        });
        let quotas: Vec<_> = quotas.collect();
        let key = rng.choice(KEYS).unwrap();
        let missing = rng.choice(["share", "pass", "deny"]).unwrap();
        let routes = format!("'/m{mix}/{{id}}', '/m{mix}/{{id}}/{{*rest}}'");
        write!(
            limits,
            "[[policies]]\nname = 'm{mix}-{number}'\nquotas = '{}'\nkey = {key}\non_missing = '{missing}'\n\
             routes = [{routes}]\ncost = {}\nshadow = {}\n",
            quotas.join("; ").replace(" ;", ";").trim(),
            rng.usize(1..=2),
            rng.usize(0..5) == 0,
        )
        .unwrap();
        if rng.bool() {
            limits.push_str("methods = ['GET', 'POST']\nexempt_methods = ['PUT']\n");
        }
        if rng.usize(0..4) == 0 && key.contains("x-api-key' }") && !key.starts_with('[') {
            limits.push_str("exempt_keys = ['c']\nblock_keys = { forbidden = ['d'] }\n");
            limits.push_str("tiers = { by = { b = 'gold' }, quotas = { gold = '9/1000h', free = 'unlimited' } }\n");
        }
        if rng.usize(0..4) == 0 {
            limits.push_str("ban = { after = '2 in 900h for 1000h' }\n");
        }
    }
}

fn ask(rng: &mut Rng, mix: usize) -> Ask {
    let id = rng.choice(["1", "2", "02", "x/y"]).unwrap();
    let user = rng.choice(["a", "b", "a%62"]).unwrap();
    let method = rng
        .choice(["GET", "GET", "HEAD", "POST", "POST", "PUT"])
        .unwrap();
    let mut ask = Ask::new(format!("{method} /m{mix}/{id}?user={user}")).from(rng.u8(1..=2));
    if rng.usize(0..6) > 0 {
        ask = ask.field("x-api-key", rng.choice(["a", "b", "c", "d"]).unwrap());
    }
    if rng.usize(0..6) > 0 {
        ask = ask.field("cookie", format!("sid={}", rng.choice(["a", "b"]).unwrap()));
        ask = ask.field(
            "authorization",
            rng.choice(["Bearer a", "bearer  b", "Basic b"]).unwrap(),
        );
    }
    if method == "POST" {
        ask = ask.body("application/x-www-form-urlencoded", format!("user={user}"));
    }
    ask
}

/// A service in memory, which sees all requests alone, is the model of nginx and a service that share them by Redis.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_mixes_of_quotas_keys_and_processes_admit_exactly_what_one_process_admits() {
    let seed = std::env::var("TOLLGATE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let mut rng = Rng::with_seed(seed);
    let mut limits = String::new();
    for mix in 0..100 {
        policies(&mut rng, mix, &mut limits);
    }
    let redis = Standalone::start();
    let gate = Gate::start(&limits, &redis).await;
    let (beside, behind) = service(&limits, Some(&redis)).await;
    let (model, admitted) = service(&limits, None).await;
    let places: [SocketAddr; 2] = [gate.address(), beside];
    let mut refused = 0;
    for mix in 0..100 {
        for turn in 0..20 {
            let ask = ask(&mut rng, mix);
            let place = rng.usize(0..2);
            let said = ask.send(places[place]).await;
            let expected = ask.send(model).await;
            refused += usize::from(expected.status != 200);
            let asked =
                format!("TOLLGATE_SEED={seed} mix {mix} turn {turn} place {place}: {ask:?}");
            assert_alike(&said, &expected, &asked);
            let reached = gate.reached.count() + behind.count();
            assert_eq!(reached, admitted.count(), "{asked}");
        }
    }
    assert!(
        (200..1800).contains(&refused),
        "TOLLGATE_SEED={seed}: {refused} of 2000 refused"
    );
}

const CALENDARS: &str = "
[[policies]]
name = 'calendar'
quotas = { month = '4/month in Europe/Berlin', year = '100/year in UTC', week = '50/1000h' }
key = { header = 'x-api-key' }
on_failure = 'deny'
";

#[tokio::test(flavor = "multi_thread")]
async fn windows_of_calendars_are_those_of_services() {
    let redis = Standalone::start();
    let gate = Gate::start(CALENDARS, &redis).await;
    let (service, _behind) = service(CALENDARS, Some(&redis)).await;
    let (model, _admitted) = self::service(CALENDARS, None).await;
    let call = || Ask::new("GET /").field("x-api-key", "alice");
    for turn in 0..6 {
        let place = [gate.address(), service][turn % 2];
        let (said, expected) = (call().send(place).await, call().send(model).await);
        assert_eq!(expected.status, if turn < 4 { 200 } else { 429 });
        assert_alike(&said, &expected, &format!("{turn}"));
    }
}

/// The words of the first list of starts in a file.
fn starts(text: &str) -> &str {
    let (_, behind) = text.split_once("\"starts\": [").unwrap();
    behind.split_once(']').unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_move_on_while_nginx_runs_and_a_list_that_ends_decides_nothing() {
    let redis = Standalone::start();
    let limits = "policies = [{ name = 'a', quotas = '1/day in UTC', on_failure = 'deny' }]";
    let gate = Gate::start(limits, &redis).await;
    let text = fs::read_to_string(gate.json()).unwrap();
    // Three years of days.
    assert!(starts(&text).split(',').count() > 1_000);

    // Windows of two seconds, for a minute: in each one request passes, and none is undecided, far behind the first ones.
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let windows = |from: u64, count: u64| {
        let starts = (0..count).map(|window| (from + 2 * window).to_string() + "000000");
        starts.collect::<Vec<_>>().join(",")
    };
    fs::write(
        gate.json(),
        text.replace(starts(&text), &windows(now - 6, 200)),
    )
    .unwrap();
    gate.reload_fully().await;
    let (mut passed, start) = (0, Instant::now());
    while passed < 9 {
        assert!(start.elapsed() < PATIENCE, "{passed}");
        let status = status(gate.address(), "GET /").await;
        assert!(
            [200, 429].contains(&status),
            "{status} {}",
            gate.nginx.log()
        );
        passed += usize::from(status == 200);
    }

    // All windows are over.
    fs::write(
        gate.json(),
        text.replace(starts(&text), &windows(now - 1_000, 20)),
    )
    .unwrap();
    gate.reload();
    gate.until("GET /", 503).await;
}
