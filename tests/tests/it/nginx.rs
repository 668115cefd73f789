//! Requests wait as behind a real nginx with the same settings: the same pass, the same are refused, in the same order.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep_until};
use tollgate::{Event, Limiter, Policy, RateLimitLayer, key};
use tollgate_testkit::Nginx;

/// Ten a second.
const INTERVAL: Duration = Duration::from_millis(100);

/// nginx's clock ticks in milliseconds, and is read before a request and before an answer.
const TICKS: Duration = Duration::from_millis(5);

/// The number of requests that come at once.
const REQUESTS: usize = 25;

/// The time after the first rush at which as many come once more: four intervals and a half.
const SECOND_RUSH: Duration = Duration::from_millis(450);

/// The time in which both rushes connect.
const CONNECTING: Duration = Duration::from_millis(50);

/// The numbers of a rush that pass at once, and that pass at all.
type Passing = (usize, usize);

/// `limit_req` with `rate=10r/s`, Tollgate's words for the same, and the passing of each rush.
const FORMS: [(&str, &str, &str, [Passing; 2]); 4] = [
    ("/none", "", "10/s burst 1", [(1, 1), (1, 1)]),
    (
        "/wait",
        "burst=20",
        "10/s burst 1 wait 2s",
        [(1, 21), (0, 4)],
    ),
    (
        "/nodelay",
        "burst=20 nodelay",
        "10/s burst 21",
        [(21, 21), (4, 4)],
    ),
    (
        "/delay",
        "burst=20 delay=8",
        "10/s burst 9 wait 1200ms",
        [(9, 21), (0, 4)],
    ),
];

fn nginx() -> Nginx {
    let location = |(path, form, ..): &(&str, &str, &str, [Passing; 2])| {
        format!("location {path} {{ limit_req zone=z {form}; empty_gif; }}")
    };
    let locations: Vec<_> = FORMS.iter().map(location).collect();
    let http = "limit_req_zone $uri$arg_k zone=z:1m rate=10r/s; limit_req_status 429;";
    Nginx::start(http, &locations.join("\n"))
}

/// A server, and the number of requests that it has decided, if it tells.
#[derive(Debug)]
struct Served {
    name: &'static str,
    address: SocketAddr,
    decided: Option<Arc<AtomicUsize>>,
}

async fn tollgate() -> Served {
    let policies = FORMS.map(|(path, _, quota, ..)| {
        let policy = Policy::new(&path[1..], quota);
        policy.route(path).key(key::Query::new("k"))
    });
    let decided: Arc<AtomicUsize> = Arc::default();
    let counter = Arc::clone(&decided);
    let limiter = Limiter::builder().policies(policies);
    let limiter = limiter.observe(move |_: &Event<'_>| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let limiter = limiter.build().unwrap();
    let app = FORMS.iter().fold(Router::new(), |app, (path, ..)| {
        app.route(path, get(|| async {}))
    });
    let app = app.layer(RateLimitLayer::new(limiter));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Served {
        name: "Tollgate",
        address,
        decided: Some(decided),
    }
}

/// The number of the request, the status, and the time since the first rush.
type Answer = (usize, u16, Duration);

/// The answers to requests that are sent at once, each over a connection of its own, in the order in which they come. nginx reads
/// them in the order in which they were sent. The tasks of a Rust server need not, so that each request is decided before the next
/// is sent.
async fn rush(served: &Served, uri: &str, first: Instant, after: Duration) -> Vec<Answer> {
    let mut connections = Vec::new();
    for _ in 0..REQUESTS {
        connections.push(TcpStream::connect(served.address).await.unwrap());
    }
    let request = format!("GET {uri} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    sleep_until(first + after).await;
    for connection in &mut connections {
        let decided = || {
            served
                .decided
                .as_ref()
                .map(|all| all.load(Ordering::SeqCst))
        };
        let before = decided();
        connection.write_all(request.as_bytes()).await.unwrap();
        while before.is_some() && decided() == before {
            yield_now().await;
        }
    }
    let mut answers = JoinSet::new();
    for (number, mut connection) in connections.into_iter().enumerate() {
        answers.spawn(async move {
            let mut start = [0; "HTTP/1.1 200".len()];
            connection.read_exact(&mut start).await.unwrap();
            let at = first.elapsed();
            let status = std::str::from_utf8(&start[9..]).unwrap();
            (number, status.parse().unwrap(), at)
        });
    }
    let mut answers = answers.join_all().await;
    answers.sort_by_key(|(.., at)| *at);
    answers
}

/// The results of a rush: the requests that pass at once, those that pass later in the order of the answers, and the refused ones.
#[derive(Debug, PartialEq)]
struct Outcome {
    at_once: Vec<usize>,
    later: Vec<usize>,
    refused: Vec<usize>,
}

impl Outcome {
    fn of(answers: &[Answer], at_once: usize) -> Self {
        let with = |wanted: u16| {
            let answers = answers
                .iter()
                .filter(move |(_, status, _)| *status == wanted);
            answers.map(|(number, ..)| *number)
        };
        let mut passed: Vec<_> = with(200).collect();
        let later = passed.split_off(at_once.min(passed.len()));
        passed.sort_unstable();
        let mut refused: Vec<_> = with(429).collect();
        refused.sort_unstable();
        Self {
            at_once: passed,
            later,
            refused,
        }
    }

    /// The first come first, and those that wait in the order in which they came.
    fn expected(at_once: usize, all: usize) -> Self {
        Self {
            at_once: (0..at_once).collect(),
            later: (at_once..all).collect(),
            refused: (all..REQUESTS).collect(),
        }
    }
}

/// The times at which waiting requests passed.
fn turns(answers: &[Answer], at_once: usize) -> Vec<Duration> {
    let passed = answers.iter().filter(|(_, status, _)| *status == 200);
    passed.skip(at_once).map(|(.., at)| *at).collect()
}

/// Says whether three of four answers come about an interval after the one before.
fn are_spaced(turns: &[Duration]) -> bool {
    let gaps = turns.windows(2).map(|pair| pair[1] - pair[0]);
    let good = gaps.filter(|gap| *gap > INTERVAL / 2 && *gap < INTERVAL * 3 / 2);
    4 * good.count() >= 3 * turns.len().saturating_sub(1)
}

/// Says whether all that pass at once did so less than an interval after the last refusal, which waits for nothing.
fn are_at_once(answers: &[Answer], at_once: usize) -> bool {
    let last = |wanted: u16, count: usize| {
        let answers = answers.iter().filter(|(_, status, _)| *status == wanted);
        answers.take(count).map(|(.., at)| *at).max()
    };
    last(200, at_once) < last(429, REQUESTS).map(|refused| refused + INTERVAL)
}

/// A busy machine may take so long to send a rush that a turn comes meanwhile, and may hear of answers late and in another order.
/// Such a pair of rushes is sent again, as another caller. No request may ever pass too early.
#[tokio::test]
async fn the_same_requests_pass_in_the_same_order_as_behind_nginx() {
    let nginx = nginx();
    let behind_nginx = Served {
        name: "nginx",
        address: nginx.address(),
        decided: None,
    };
    for served in [behind_nginx, tollgate().await] {
        let name = served.name;
        for (path, form, quota, passing) in FORMS {
            for caller in 1.. {
                let uri = format!("{path}?k={caller}");
                let first = Instant::now() + CONNECTING;
                let rushes = tokio::join!(
                    rush(&served, &uri, first, Duration::ZERO),
                    rush(&served, &uri, first, SECOND_RUSH)
                );
                let mut is_same = true;
                let mut seen = Vec::new();
                // Turns of the second rush stand behind those of the first.
                let mut turn = 0;
                for (answers, (at_once, all)) in [rushes.0, rushes.1].iter().zip(passing) {
                    let turns = turns(answers, at_once);
                    for at in &turns {
                        turn += 1;
                        let earliest = (INTERVAL * turn).saturating_sub(TICKS);
                        assert!(*at >= earliest, "{name}, {quota}: {at:?} for turn {turn}");
                    }
                    let outcome = Outcome::of(answers, at_once);
                    is_same &= outcome == Outcome::expected(at_once, all)
                        && are_spaced(&turns)
                        && are_at_once(answers, at_once);
                    seen.push((outcome, turns));
                }
                if is_same {
                    break;
                }
                assert!(caller < 100, "{name}, {form:?}, {quota}: {seen:?}");
            }
        }
    }
}
