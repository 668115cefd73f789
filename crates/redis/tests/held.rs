//! How long a call holds the server.

mod common;

use std::time::Duration;

use common::{Budget, HOUR, PATIENT};
use tollgate_core::{Algorithm, Backend, Key, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// Callers that ask at once, as many as one call takes; of logs a call takes three.
const CALLERS: u64 = 64;
const CALLERS_WITH_LOGS: u64 = 3 * 2;

/// How often they ask.
const ROUNDS: usize = 60;

/// What no call may cost the server.
const MOST: Duration = Duration::from_millis(1);

/// In the server's own time on a core, since the server's own watch, SLOWLOG, runs on while somebody else has the core. The same
/// calls again and again: what the cheapest repetition costs is what they take, and the rest is the machine's.
#[tokio::test]
async fn pitfall_no_call_holds_the_server_for_a_millisecond() {
    let day = Duration::from_secs(86_400);
    let log = Quota::new(1_024, day).using(Algorithm::SlidingLog);
    let rolling = |buckets| Quota::new(1_000_000, day).using(Algorithm::RollingWindow { buckets });
    let cases = [
        ("gcra", Quota::per_hour(1_000_000)),
        (
            "fixed window",
            Quota::new(1_000, HOUR).using(Algorithm::FixedWindow {
                offset: Duration::ZERO,
            }),
        ),
        (
            "sliding window",
            Quota::new(1_000, HOUR).using(Algorithm::SlidingWindow),
        ),
        ("rolling window of 10", rolling(10)),
        ("rolling window of 128", rolling(128)),
        ("sliding log", log),
    ];
    for (name, quota) in cases {
        let server = Standalone::start();
        // One call after the other, so that each carries as much as it may.
        let builder = RedisBackend::builder(&server.url()).connections(1);
        let backend = builder.deadline(PATIENT).connect().await.unwrap();
        // A log that is nearly full, in entries as well.
        let filled = if name == "sliding log" { 960 } else { 10 };
        for _ in 0..filled {
            round(&backend, quota).await;
        }

        let mut each = Vec::new();
        for _ in 0..ROUNDS {
            let before = (on_core(&server), backend.stats().calls);
            round(&backend, quota).await;
            let calls = u32::try_from(backend.stats().calls - before.1).unwrap();
            each.push((on_core(&server) - before.0) / calls);
        }

        let (least, most) = (each.iter().min().unwrap(), each.iter().max().unwrap());
        println!("{name}: {least:?} for each call, at most {most:?}");
        assert!(*least < MOST, "{name}: {least:?}");
    }
}

/// For how long the server has had a core.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
fn on_core(server: &Standalone) -> Duration {
    let path = format!("/proc/{}/schedstat", server.pid().unwrap());
    let said = std::fs::read_to_string(&path).unwrap();
    let nanoseconds = said.split(' ').next().unwrap().parse();
    Duration::from_nanos(nanoseconds.unwrap())
}

#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
async fn round(backend: &RedisBackend, quota: Quota) {
    let callers = match quota.algorithm() {
        Algorithm::SlidingLog => CALLERS_WITH_LOGS,
        _ => CALLERS,
    };
    let budgets: Vec<_> = (0..callers)
        .map(|caller| Budget {
            key: Key::from(caller),
            ..Budget::of("held", quota)
        })
        .collect();
    let shared = Budget::of("shared", Quota::per_second(1_000_000));
    let calls: Vec<_> = (budgets.iter())
        .map(|budget| backend.decide(&[budget.charge(1), shared.charge(1)]))
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}
