//! How do the important keep their latency when a server has more to do than it can?
//!
//! ```text
//! cargo run -p examples --example overload
//! ```
//!
//! A shop serves eight requests at a time; all others stand in its queue. Sixty clients ask for exports without a pause, and four
//! for checkouts. The length of the queue is the pressure. The same load comes twice: to a limiter that only says what it would
//! refuse, and to one that refuses exports. Each answer says how many stood in the queue when its request came. That is its
//! latency in turns of the shop: with *n* before it a request waits for *n* × 50 ms / 8, whatever the speed of the machine.

#![expect(clippy::print_stdout, reason = "a program that tells what it does")]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use tollgate::{Limiter, PressureGauge, RateLimitLayer, RequestView, Shedding, key};

/// The requests that the shop serves at a time, and the time that each takes.
const PLACES: usize = 8;
const WORK: Duration = Duration::from_millis(50);

/// A queue of this length is a pressure of 1. From a quarter of it on exports are refused.
const ROOM: usize = 40;
const EXPORTS_AT: f64 = 0.25;

const EXPORTERS: usize = 60;
const BUYERS: usize = 4;
const CHECKOUTS_EACH: usize = 10;
pub(crate) const CHECKOUTS: usize = BUYERS * CHECKOUTS_EACH;

/// The most that stand in the queue before a checkout if exports are refused: those that were let in below a quarter, and the other
/// checkouts.
pub(crate) const MOST_AHEAD: usize = ROOM / 4 + BUYERS - 1;

struct Shop {
    places: Semaphore,
    waiting: AtomicUsize,
    queue: PressureGauge,
}

impl Shop {
    /// Serves a request when its turn comes. The answer is the number of requests that waited when it came.
    async fn serve(State(shop): State<Arc<Self>>) -> String {
        let ahead = shop.waiting.fetch_add(1, Ordering::Relaxed);
        let waits = Waits::tell(&shop);
        let place = shop.places.acquire().await;
        drop(waits);
        sleep(WORK).await;
        drop(place);
        ahead.to_string()
    }
}

/// A request in the queue. It leaves it with its turn, or with its caller.
struct Waits<'a>(&'a Shop);

impl<'a> Waits<'a> {
    fn tell(shop: &'a Shop) -> Self {
        let waiting = shop.waiting.load(Ordering::Relaxed);
        shop.queue.set_ratio(waiting, ROOM);
        Self(shop)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let waiting = self.0.waiting.fetch_sub(1, Ordering::Relaxed) - 1;
        self.0.queue.set_ratio(waiting, ROOM);
    }
}

/// A class is what a request asks for. What a caller says about itself would be "critical".
fn class(request: &RequestView<'_>) -> Option<&'static str> {
    Some(match request.uri().path() {
        "/checkout" => "critical",
        _ => "batch",
    })
}

/// The answers to a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The requests ahead of each checkout that was served.
    pub(crate) ahead: Vec<usize>,
    pub(crate) took: Duration,
    pub(crate) exports_served: usize,
    pub(crate) exports_refused: usize,
}

pub(crate) async fn run(shedding: Shedding) -> Result<Outcome, Box<dyn Error>> {
    let queue = PressureGauge::new();
    let limiter = Limiter::builder()
        .classes(["critical", "batch"], key::from_fn(class))
        .shed(&queue, shedding)
        .build()?;
    let shop = Arc::new(Shop {
        places: Semaphore::new(PLACES),
        waiting: AtomicUsize::new(0),
        queue,
    });
    let app = Router::new()
        .route("/checkout", get(Shop::serve))
        .route("/export", get(Shop::serve))
        .layer(RateLimitLayer::new(&limiter))
        .with_state(Arc::clone(&shop));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async { axum::serve(listener, app).await });

    let exporters: Vec<_> = (0..EXPORTERS).map(|_| export_for_ever(address)).collect();
    // The shop is full before the first checkout comes.
    while !limiter.is_shedding() {
        sleep(WORK).await;
    }
    let begun = Instant::now();
    let mut buyers = JoinSet::new();
    for _ in 0..BUYERS {
        buyers.spawn(check_out(address));
    }
    let mut outcome = Outcome::default();
    while let Some(ahead) = buyers.join_next().await {
        outcome.ahead.extend(ahead?);
    }
    outcome.took = begun.elapsed();
    for (exporter, counts) in exporters {
        exporter.abort();
        outcome.exports_served += counts.served.load(Ordering::Relaxed);
        outcome.exports_refused += counts.refused.load(Ordering::Relaxed);
    }
    server.abort();
    Ok(outcome)
}

/// The answers to one client's exports.
#[derive(Default)]
struct Exports {
    served: AtomicUsize,
    refused: AtomicUsize,
}

fn export_for_ever(shop: SocketAddr) -> (JoinHandle<()>, Arc<Exports>) {
    let exports = Arc::new(Exports::default());
    let counts = Arc::clone(&exports);
    let client = async move {
        loop {
            match ask(shop, "/export").await {
                Some(Answer::Served(_)) => counts.served.fetch_add(1, Ordering::Relaxed),
                Some(Answer::Refused) => {
                    // The answer says five seconds or more. This client is impatient.
                    sleep(2 * WORK).await;
                    counts.refused.fetch_add(1, Ordering::Relaxed)
                }
                None => {
                    sleep(WORK).await;
                    continue;
                }
            };
        }
    };
    (tokio::spawn(client), exports)
}

/// One checkout after the other. Returns the requests that waited ahead of each that was served.
async fn check_out(shop: SocketAddr) -> Vec<usize> {
    let mut ahead = Vec::new();
    for _ in 0..CHECKOUTS_EACH {
        if let Some(Answer::Served(before)) = ask(shop, "/checkout").await {
            ahead.push(before);
        }
    }
    ahead
}

enum Answer {
    /// 200, with the number of requests that waited before this one.
    Served(usize),
    /// 503, with the time to come back, which is five seconds or more.
    Refused,
}

/// The answer, if it is one of the two.
async fn ask(shop: SocketAddr, path: &str) -> Option<Answer> {
    let mut connection = TcpStream::connect(shop).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    match head.split(' ').nth(1)? {
        "200" => body.parse().ok().map(Answer::Served),
        "503" => {
            let mut lines = head.lines();
            let seconds = lines.find_map(|line| line.strip_prefix("retry-after: "))?;
            let seconds: u64 = seconds.parse().ok()?;
            (seconds >= 5).then_some(Answer::Refused)
        }
        _ => None,
    }
}

fn tell(how: &str, outcome: &Outcome) -> Result<usize, Box<dyn Error>> {
    let most = outcome.ahead.iter().max().ok_or("no checkout was served")?;
    println!(
        "{how}: {} of {} checkouts served in {:.1} s, behind {most} others at most; exports: {} served, {} refused",
        outcome.ahead.len(),
        CHECKOUTS,
        outcome.took.as_secs_f32(),
        outcome.exports_served,
        outcome.exports_refused,
    );
    Ok(*most)
}

pub(crate) fn shedding() -> Shedding {
    Shedding::at([("batch", EXPORTS_AT)])
}

// On one thread a request that was let in stands in the queue before the next is asked, so that the bound is exact.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let on_trial = tell("on trial", &run(shedding().shadow()).await?)?;
    let shed = run(shedding()).await?;
    let most = tell("shedding", &shed)?;

    if most > MOST_AHEAD || shed.ahead.len() < CHECKOUTS {
        return Err(format!("a checkout stood behind {most}, or was refused").into());
    }
    if on_trial < 2 * most {
        return Err(format!("without shedding a checkout stood behind {on_trial} at most").into());
    }
    println!("no checkout stood behind more than {MOST_AHEAD}");
    Ok(())
}
