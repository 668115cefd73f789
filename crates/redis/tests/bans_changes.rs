//! Bans, while a deploy runs two versions of the library: one that knows bans, and one from before.

#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints the answers of other processes"
)]

mod common;

use std::env;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::PATIENT;
use tollgate::{Ban, Limiter, Policy};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

const MINUTE: Duration = Duration::from_secs(60);

/// The server's address and the caller, set in the processes of the older version. They run this very test.
const URL: &str = "TOLLGATE_TEST_OLDER";
const CALLER: &str = "TOLLGATE_TEST_CALLER";

const DEPLOY: &str = "a_version_without_bans_enforces_none_strikes_none_and_removes_none";

/// The script of a version that knows neither bans nor waits.
const OLDER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/scripts/before_waiting.lua"
);

/// The policy of the older version.
fn login() -> Policy {
    Policy::new("login", "2/day")
}

async fn process(url: &str, policy: Policy) -> Limiter {
    let backend = RedisBackend::builder(url).deadline(PATIENT);
    let backend = backend.connect().await.unwrap();
    let limiter = Limiter::builder().policy(policy).backend(backend);
    limiter.build().unwrap()
}

/// The answer to a request of a caller in a process that runs the older version.
fn older(server: &Standalone, caller: &str) -> String {
    let process = Command::new(env::current_exe().unwrap())
        .args(["--exact", DEPLOY, "--nocapture"])
        .env(URL, server.url())
        .env(CALLER, caller)
        .env("TOLLGATE_SCRIPT", OLDER)
        .stdout(Stdio::piped())
        .spawn();
    let output = process.unwrap().wait_with_output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let said = output.lines().find_map(|line| line.strip_prefix("says="));
    said.unwrap_or_else(|| panic!("{output}")).to_owned()
}

/// The work of these processes.
async fn ask_as_older(url: &str) {
    let caller = env::var(CALLER).unwrap();
    let limiter = process(url, login()).await;
    let asked = limiter.check("login", &*caller).await.unwrap();
    let how = match asked.undecided() {
        Some(error) => format!(", undecided: {:?}", error.kind()),
        None => String::new(),
    };
    println!("\nsays={}{how}", asked.is_allowed());
}

#[tokio::test]
async fn a_version_without_bans_enforces_none_strikes_none_and_removes_none() {
    if let Ok(url) = env::var(URL) {
        return ask_as_older(&url).await;
    }
    let server = Standalone::start();
    let ban = Ban::after(3, 10 * MINUTE).lasting(15 * MINUTE);
    let newer = process(&server.url(), login().ban(ban)).await;
    let ban_of = |caller: &str| {
        let key = format!("tollgate:login:0/b:={caller}");
        let script = "return redis.sha1hex(redis.call('GET', KEYS[1]) or '')";
        server.command(&["EVAL", script, "1", &key])
    };
    let nothing = ban_of("nobody");
    let newer_says = async |caller: &str| {
        let checked = newer.check("login", caller).await.unwrap();
        assert!(checked.undecided().is_none(), "{:?}", checked.undecided());
        checked.is_allowed()
    };

    // The newer finds what the older has charged, and strikes are its own.
    for expected in ["true", "true", "false", "false", "false", "false"] {
        assert_eq!(older(&server, "carol"), expected);
    }
    assert_eq!(ban_of("carol"), nothing);
    assert!(!newer_says("carol").await);
    assert_eq!(newer.banned("login", "carol").await.unwrap(), None);
    let one_strike = ban_of("carol");
    assert_ne!(one_strike, nothing);
    assert_eq!(older(&server, "carol"), "false");
    assert_eq!(ban_of("carol"), one_strike);

    // A banned caller passes at the older, by the budget alone, which both count.
    newer.ban("login", "mallory", 15 * MINUTE).await.unwrap();
    let banned = ban_of("mallory");
    assert!(!newer_says("mallory").await);
    for expected in ["true", "true", "false"] {
        assert_eq!(older(&server, "mallory"), expected);
    }
    assert_eq!(ban_of("mallory"), banned);
    assert!(!newer_says("mallory").await);
    newer.unban("login", "mallory").await.unwrap();
    // Charged by the older while the ban was in force.
    assert!(!newer_says("mallory").await);
    assert!(newer_says("alice").await);
}
