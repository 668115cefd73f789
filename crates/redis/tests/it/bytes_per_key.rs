//! The server memory that a key takes: `cargo test -p tollgate-redis --test bytes_per_key -- --nocapture`.

use crate::common::{Budget, HOUR, Patience, every_algorithm};
use tollgate_core::{Backend, Call, Concurrent, Key, Once, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// Enough keys to fill the server's tables of keys and of expiries, so that their share per key is the least possible, and so
/// many that the momentary memory of connections and Lua is a few bytes of each.
const KEYS: usize = 65_536;

/// With a name of 31 bytes for GCRA, and an expiry. In this order: GCRA, fixed, sliding and rolling window, log, interval refill,
/// a limit at once that one process holds, a day of a calendar, and a bucket that warms up.
const MOST: [usize; 9] = [180, 200, 200, 270, 200, 200, 230, 200, 200];

/// An id with a name of 31 bytes, and with one of 80.
const MOST_OF_ID: [usize; 2] = [180, 250];

#[tokio::test]
async fn pitfall_a_key_takes_no_more_memory_than_stated() {
    let at_once = Concurrent::at_most(10).into();
    let day = "10/day in UTC".parse().unwrap();
    let warm = "10/hour warm up 1h".parse().unwrap();
    let once = Quota::from(Once::try_within(HOUR).unwrap());
    let quotas = every_algorithm(10, HOUR).into_iter();
    let quotas = quotas.chain([at_once, day, warm]).zip(MOST);
    let ids = [once; 2].into_iter().zip(MOST_OF_ID);
    let names = ["page"; 9].into_iter().chain([
        "page",
        "a-name-of-fifty-three-bytes-is-longer-than-most-names",
    ]);
    for ((quota, most), name) in quotas.chain(ids).zip(names) {
        let server = Standalone::start();
        // Nothing is told meanwhile.
        let builder = RedisBackend::builder(&server.url()).held_lease(HOUR);
        let backend = builder.patient().connect().await.unwrap();
        let used = || {
            let info = server.command(&["INFO", "memory"]);
            let mut lines = info.lines();
            let used = lines.find_map(|line| line.strip_prefix("used_memory:"));
            used.unwrap().parse::<usize>().unwrap()
        };
        let before = used();

        let mut calls = Vec::new();
        for caller in 0..KEYS {
            let budget = Budget {
                key: Key::from(&*format!("caller-{caller:05}")),
                ..Budget::of(name, quota)
            };
            calls.push(backend.decide(Call::of(&[budget.charge(1)])));
            if calls.len() == 1_024 {
                for call in calls.drain(..) {
                    assert!(call.await.unwrap().is_admitted());
                }
            }
        }

        let each = (used() - before) / KEYS;
        println!("{each} bytes per key of {name} for {quota}");
        assert!(each <= most, "{each} bytes per key for {quota}");
    }
}
