//! How long a call holds the server.

mod common;

use std::time::Duration;

use common::{Budget, HOUR, PATIENT};
use tollgate_core::{Algorithm, Backend, Key, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// Callers that ask at once, and how often.
const CALLERS: u64 = 64;
const ROUNDS: usize = 60;

/// The server's own watch, which runs on while another process has the core: one call in twenty may have been interrupted.
#[tokio::test]
async fn no_call_holds_the_server_for_a_millisecond() {
    let day = Duration::from_secs(86_400);
    let log = Quota::new(1_024, day).using(Algorithm::SlidingLog);
    let rolling = |buckets| Quota::new(1_000_000, day).using(Algorithm::RollingWindow { buckets });
    let cases = [
        ("gcra", Quota::per_hour(1_000_000)),
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
        let builder = RedisBackend::builder(&server.url()).deadline(PATIENT);
        let backend = builder.connect().await.unwrap();
        // A log that is nearly full, in entries as well.
        let filled = if name == "sliding log" { 960 } else { 10 };
        for _ in 0..filled {
            round(&backend, quota).await;
        }

        let _set = server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "1000"]);
        let before = backend.stats();
        for _ in 0..ROUNDS {
            round(&backend, quota).await;
        }

        let calls = backend.stats().calls - before.calls;
        let slow = server.command(&["SLOWLOG", "LEN"]);
        let slow: u64 = slow.trim_start_matches(':').trim().parse().unwrap();
        assert!(slow * 20 <= calls, "{name}: {slow} of {calls} calls");
    }
}

#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
async fn round(backend: &RedisBackend, quota: Quota) {
    let budgets: Vec<_> = (0..CALLERS)
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
