//! Many processes, one budget.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::env;
use std::process::{Command, Stdio};

use common::{Budget, HOUR, PATIENT};
use tollgate_core::{Backend, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// Set in the processes that hammer: where.
const URL: &str = "TOLLGATE_TEST_HAMMER";

const LIMIT: u64 = 3_000;

#[tokio::test]
async fn eight_processes_admit_exactly_what_the_budget_holds() {
    let server = Standalone::start();
    let processes: Vec<_> = (0..8)
        .map(|_| {
            Command::new(env::current_exe().unwrap())
                .args(["--exact", "hammer", "--nocapture"])
                .env(URL, server.url())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut admitted = 0;
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success());
        let output = String::from_utf8(output.stdout).unwrap();
        let said = output.split("admitted=").nth(1).unwrap();
        admitted += said
            .split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap();
    }
    assert_eq!(admitted, LIMIT);
}

/// One of the eight; by itself it has nothing to do.
#[tokio::test]
async fn hammer() {
    let Ok(url) = env::var(URL) else {
        return;
    };
    let builder = RedisBackend::builder(&url).deadline(PATIENT);
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("processes", Quota::new(LIMIT, HOUR * 24 * 300));
    let mut admitted = 0;
    for _ in 0..10 {
        let calls: Vec<_> = (0..100)
            .map(|_| backend.decide(&[budget.charge(1)]))
            .collect();
        for call in calls {
            admitted += u64::from(call.await.unwrap().is_admitted());
        }
    }
    println!("admitted={admitted} ");
}
