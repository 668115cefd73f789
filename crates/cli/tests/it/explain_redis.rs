//! `tollgate explain` on a real server: it tells the fleet's budgets as they are, and charges nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tollgate::key::Header;
use tollgate::{Concurrent, Limiter, Policy, Quota, RedisBackend, RedisBackendBuilder};
use tollgate_testkit::{Cluster, Sentinels, Standalone};

use crate::support::patient;
use crate::support::program::tollgate;
use crate::support::state::state;

const REQUEST: [&str; 8] = [
    "explain",
    "limits.toml",
    "--request",
    "GET /api/things",
    "-H",
    "x-api-key: abc",
    "--peer",
    "192.0.2.7",
];

/// Quotas so slow that no time of a test gives a unit back.
const LIMITS: &str = "policies = [{ name = \"api\", quotas = [\"1/day burst 50\", \"1/day burst 1000\"], key = { header = \"x-api-key\" } }]";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("limits.toml"), LIMITS).unwrap();
    folder
}

/// Spends so much of the key's budget in the fleet, as a service with the same policy does.
fn spend(server: &Standalone, cost: u64) {
    spend_on(RedisBackend::builder(&server.url()), cost);
}

fn spend_on(fleet: RedisBackendBuilder, cost: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let backend = patient::connect_to(fleet).await;
        let quotas = [Quota::per_day(1).burst(50), Quota::per_day(1).burst(1_000)];
        let limiter = Limiter::builder()
            .policy(Policy::new("api", quotas))
            .backend(backend)
            .build()
            .unwrap();
        let checked = limiter.check("api", "abc").cost(cost).await.unwrap();
        assert!(checked.is_allowed());
    });
}

#[test]
fn a_request_is_explained_by_the_fleets_budgets_and_nothing_is_charged() {
    let server = Standalone::start();
    spend(&server, 10);
    let before = state(&server);
    assert!(before.contains("tollgate:api:0/g:=abc"), "{before}");

    let url = server.url();
    let of_caller = tollgate(
        folder().path(),
        &[&REQUEST[..], &["--redis", &url]].concat(),
    );
    let mut other = REQUEST;
    other[5] = "x-api-key: xyz";
    let of_other = tollgate(folder().path(), &[&other[..], &["--redis", &url]].concat());

    let words = of_caller.words();
    assert!(
        words.contains("by the fleet's budgets as they are now"),
        "{words}"
    );
    assert!(words.contains("40 of 50 left"), "{words}");
    assert!(words.contains("990 of 1,000 left"), "{words}");
    assert!(of_other.words().contains("50 of 50 left"), "{of_other:?}");
    assert!(
        of_other.words().contains("1,000 of 1,000 left"),
        "{of_other:?}"
    );
    assert_eq!(state(&server), before);
}

/// The body for servers of other kinds: twice the same is told, since nothing is charged.
fn is_explained(fleet: RedisBackendBuilder, redis: &[&str]) {
    spend_on(fleet, 10);

    for _ in 0..2 {
        let ran = tollgate(folder().path(), &[&REQUEST[..], redis].concat());

        let words = ran.words();
        assert!(words.contains("40 of 50 left"), "{words}");
        assert!(words.contains("990 of 1,000 left"), "{words}");
        assert!(words.contains("it passes"), "{words}");
    }
    let ran = tollgate(
        folder().path(),
        &[&REQUEST[..], redis, &["--json"]].concat(),
    );
    let explained: Value = serde_json::from_str(ran.words()).unwrap();
    assert_eq!(explained["outcome"], "passes");
    let budgets = &explained["policies"][0]["budgets"];
    assert_eq!(budgets[0]["remaining"], 40, "{explained:#}");
    assert_eq!(budgets[1]["remaining"], 990, "{explained:#}");
}

#[test]
fn a_request_is_explained_by_the_budgets_behind_sentinels() {
    let sentinels = Sentinels::start();
    let (urls, master) = (sentinels.urls(), sentinels.master_name());
    let redis = urls.iter().flat_map(|url| ["--redis", url.as_str()]);
    let redis: Vec<_> = redis.chain(["--sentinel", master]).collect();

    is_explained(RedisBackend::sentinel(master, urls.clone()), &redis);
}

#[test]
fn a_request_is_explained_by_the_budgets_of_a_cluster() {
    let cluster = Cluster::start();
    let urls = cluster.urls();
    let redis = urls.iter().flat_map(|url| ["--redis", url.as_str()]);
    let redis: Vec<_> = redis.chain(["--cluster"]).collect();

    is_explained(RedisBackend::cluster(urls.clone()), &redis);
}

#[test]
fn a_caller_without_budget_is_told_the_wait_and_the_answer() {
    let server = Standalone::start();
    spend(&server, 50);

    let url = server.url();
    let ran = tollgate(
        folder().path(),
        &[&REQUEST[..], &["--redis", &url]].concat(),
    );

    let words = ran.words();
    assert!(words.contains("it is refused"), "{words}");
    assert!(words.contains("0 of 50 left"), "{words}");
    assert!(
        words.contains("the answer: 429 Too Many Requests"),
        "{words}"
    );
    assert!(words.contains("retry-after: 8"), "{words}");
    assert!(words.contains("quota-exceeded"), "{words}");
}

#[test]
fn a_password_stands_in_no_message() {
    let server = Standalone::start();
    let _set = server.command(&["CONFIG", "SET", "requirepass", "s3cret"]);
    let port = server.port();
    for (url, code) in [
        (format!("redis://:s3cret@127.0.0.1:{port}/"), 0),
        (format!("redis://:wr0ng@127.0.0.1:{port}/"), 1),
        (format!("redis://gate:wr0ng@127.0.0.1:{port}/"), 1),
        (format!("redis://127.0.0.1:{port}/"), 1),
        ("redis://:wr0ng@127.0.0.1:nowhere/".to_owned(), 2),
        (format!("rediss://:wr0ng@127.0.0.1:{port}/x"), 2),
    ] {
        let ran = tollgate(
            folder().path(),
            &[&REQUEST[..], &["--redis", &url]].concat(),
        );

        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(
            !ran.err.contains("s3cret") && !ran.err.contains("wr0ng"),
            "{ran:?}"
        );
        assert!(!ran.out.contains("s3cret"), "{ran:?}");
    }
}

#[test]
fn a_request_that_would_wait_for_a_place_is_not_waited_for() {
    let server = Standalone::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let at_once = Quota::from(Concurrent::at_most(2)).wait_up_to(Duration::from_secs(300));
    let held = runtime.block_on(async {
        let backend = patient::connect(&server.url()).await;
        let policy = Policy::new("api", at_once).key(Header::new("x-api-key"));
        let limiter = Limiter::builder().policy(policy).backend(backend);
        let limiter = limiter.build().unwrap();
        limiter.check("api", "abc").cost(2).await.unwrap()
    });
    assert!(held.is_allowed());
    let folder = folder();
    let limits = "policies = [{ name = \"api\", quotas = \"2 at once wait 5min\", key = { header = \"x-api-key\" } }]";
    std::fs::write(folder.path().join("limits.toml"), limits).unwrap();

    let url = server.url();
    let ran = tollgate(folder.path(), &[&REQUEST[..], &["--redis", &url]].concat());

    let words = ran.words();
    assert!(words.contains("it would wait for its turn"), "{words}");
    let quota = "2 at once wait 5min: lets it wait for a place; 0 of 2 left";
    assert!(words.contains(quota), "{words}");
    drop(held);
}

#[cfg(unix)]
#[test]
fn a_password_that_is_not_text_is_told_without_it() {
    use std::os::unix::ffi::OsStrExt;

    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let program = program
        .args(REQUEST)
        .args(["--redis", "redis://127.0.0.1:1"]);
    let password = std::ffi::OsStr::from_bytes(b"s3cret\xff");
    let program = program.env("TOLLGATE_REDIS_PASSWORD", password);
    let ran = program.current_dir(folder().path()).output().unwrap();

    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    let says = "error: TOLLGATE_REDIS_PASSWORD is not text in UTF-8\n";
    assert_eq!(String::from_utf8(ran.stderr).unwrap(), says);
}
