//! The backend beside one `EVALSHA` per request over one multiplexed connection, in one run, on a server of its own.
//!
//! `cargo run --release -p tollgate-redis --example throughput`: one line of JSON per case.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tollgate_core::{Backend, Charge, Key, Mode, Quota, Scope};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// GCRA as others ship it: one key, whole microseconds, `SET … PX`.
const ONE_BY_ONE: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local at = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local after = at + interval
if after > now + burst then return {0, after - now - burst} end
redis.call('SET', KEYS[1], string.format('%d', after), 'PX', string.format('%d', math.ceil((after - now) / 1000)))
return {1, math.floor((now + burst - after) / interval)}";

const REQUESTS: u64 = 200_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Standalone::start();
    let backend = RedisBackend::builder(&server.url())
        .deadline(Duration::from_secs(10))
        .connect()
        .await?;
    let quota = Quota::per_hour(1_000_000_000);
    let scope = Scope::of("throughput", 0, &quota);
    let client = redis::Client::open(server.url())?;
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let mut load = redis::cmd("SCRIPT");
    let sha: String = load
        .arg("LOAD")
        .arg(ONE_BY_ONE)
        .query_async(&mut connection)
        .await?;

    for (in_flight, keys) in [(1, 1024), (64, 1024), (256, 1024), (256, 1)] {
        let requests = REQUESTS.min(in_flight * 5_000);
        for round in 0..2 {
            let shared = backend.clone();
            let ours = drive(in_flight, requests, move |n| {
                let (backend, key) = (shared.clone(), Key::from(n % keys));
                async move {
                    let charge = Charge {
                        scope,
                        quota: &quota,
                        key: &key,
                        cost: 1,
                        mode: Mode::Enforce,
                    };
                    let _decision = backend.decide(&[charge]).await;
                }
            });
            report("tollgate", in_flight, keys, round, ours.await);
            let (shared, name) = (connection.clone(), sha.clone());
            let theirs = drive(in_flight, requests, move |n| {
                let (connection, sha) = (shared.clone(), name.clone());
                async move { evalsha(connection, &sha, n % keys).await }
            });
            report("one by one", in_flight, keys, round, theirs.await);
        }
    }
    Ok(())
}

async fn evalsha(mut connection: MultiplexedConnection, sha: &str, key: u64) {
    let mut call = redis::cmd("EVALSHA");
    call.arg(sha)
        .arg(1)
        .arg(format!("other:throughput:0/g:{key}"));
    let _said: Result<(i64, i64), _> = call
        .arg(3_600)
        .arg(3_600_000_000_u64)
        .query_async(&mut connection)
        .await;
}

/// Keeps so many requests under way until all are answered. Gives the time it took and each one's latency.
async fn drive<F: Future<Output = ()> + Send + 'static>(
    in_flight: u64,
    requests: u64,
    request: impl Fn(u64) -> F + Clone + Send + 'static,
) -> (Duration, Vec<Duration>) {
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let callers: Vec<_> = (0..in_flight)
        .map(|_| {
            let (next, request) = (Arc::clone(&next), request.clone());
            tokio::spawn(caller(next, requests, request))
        })
        .collect();
    let mut latencies = Vec::new();
    for caller in callers {
        latencies.extend(caller.await.unwrap_or_default());
    }
    latencies.sort_unstable();
    (started.elapsed(), latencies)
}

async fn caller<F: Future<Output = ()>>(
    next: Arc<AtomicU64>,
    requests: u64,
    request: impl Fn(u64) -> F,
) -> Vec<Duration> {
    let mut latencies = Vec::new();
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= requests {
            return latencies;
        }
        let started = Instant::now();
        request(n).await;
        latencies.push(started.elapsed());
    }
}

#[expect(clippy::print_stdout, reason = "this is what it is for")]
fn report(
    who: &str,
    in_flight: u64,
    keys: u64,
    round: u32,
    (took, latencies): (Duration, Vec<Duration>),
) {
    let at = |share: usize| {
        latencies
            .get(latencies.len() * share / 1_000)
            .map_or(0, Duration::as_micros)
    };
    println!(
        "{{\"who\":\"{who}\",\"in_flight\":{in_flight},\"keys\":{keys},\"round\":{round},\"per_second\":{},\"p50_us\":{},\"p99_us\":{}}}",
        latencies.len() as u128 * 1_000_000 / took.as_micros().max(1),
        at(500),
        at(990),
    );
}
