//! Bans of a fleet: two processes and one server.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::time::Duration;

use common::PATIENT;
use tollgate::{Ban, Limiter, Policy, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

const MINUTE: Duration = Duration::from_secs(60);

/// Two a day, and a ban of a quarter of an hour after three strikes.
fn login() -> Policy {
    let ban = Ban::after(3, 10 * MINUTE).lasting(15 * MINUTE);
    Policy::new("login", Quota::per_day(2)).ban(ban)
}

async fn process(server: &Standalone) -> Limiter {
    // Each connection asks for its rights first, and writes for that.
    let backend = RedisBackend::builder(&server.url()).connections(1);
    let backend = backend.deadline(PATIENT);
    let backend = backend.connect().await.unwrap();
    Limiter::builder()
        .policy(login())
        .backend(backend)
        .build()
        .unwrap()
}

/// The commands of which the server has written anything, and how often they were called.
fn writes(server: &Standalone) -> Vec<String> {
    let stats = server.command(&["INFO", "commandstats"]);
    let is_write = |line: &&str| {
        let command = line
            .strip_prefix("cmdstat_")
            .and_then(|line| line.split(':').next());
        command.is_some_and(|command| ["set", "setrange", "del", "unlink"].contains(&command))
    };
    let calls = |line: &str| line.split(',').next().unwrap().to_owned();
    stats.lines().filter(is_write).map(calls).collect()
}

/// The last line of an answer, which is the value.
fn value(answer: &str) -> &str {
    answer.trim().lines().last().unwrap_or_default()
}

#[tokio::test]
async fn strikes_and_bans_are_those_of_the_fleet() {
    let server = Standalone::start();
    let [one, other] = [process(&server).await, process(&server).await];
    for limiter in [&one, &other] {
        assert!(
            limiter
                .check("login", "mallory")
                .await
                .unwrap()
                .is_allowed()
        );
    }
    for limiter in [&one, &other, &one] {
        let checked = limiter.check("login", "mallory").await.unwrap();
        assert!(!checked.is_allowed() && checked.undecided().is_none());
    }
    for limiter in [&one, &other] {
        let left = limiter.banned("login", "mallory").await.unwrap().unwrap();
        assert!(left <= 15 * MINUTE && left > 10 * MINUTE, "{left:?}");
        assert_eq!(limiter.banned("login", "alice").await.unwrap(), None);
    }
    other.unban("login", "mallory").await.unwrap();
    assert_eq!(one.banned("login", "mallory").await.unwrap(), None);
    one.ban("login", "alice", MINUTE).await.unwrap();
    assert!(!other.check("login", "alice").await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_banned_caller_who_knocks_writes_nothing() {
    let server = Standalone::start();
    let limiter = process(&server).await;
    limiter.ban("login", "mallory", 60 * MINUTE).await.unwrap();
    let before = writes(&server);
    for _ in 0..200 {
        let knock = limiter.check("login", "mallory").await.unwrap();
        assert!(!knock.is_allowed() && knock.undecided().is_none());
    }
    assert_eq!(writes(&server), before);
}

#[tokio::test]
async fn the_key_of_a_ban_is_one_that_an_operator_finds_and_it_expires() {
    let server = Standalone::start();
    let limiter = process(&server).await;
    limiter.ban("login", "mallory", MINUTE).await.unwrap();
    let key = "tollgate:login:0/b:=mallory";
    let keys = server.command(&["KEYS", "tollgate:login:0/b:*"]);
    assert_eq!(value(&keys), key);
    let left = server.command(&["PTTL", key]);
    let left: i64 = value(&left).trim_start_matches(':').parse().unwrap();
    assert!((1..=60_001).contains(&left), "{left}");
}

#[tokio::test]
async fn a_value_of_somebody_elses_is_left_as_it_is_and_the_failure_rule_acts() {
    let server = Standalone::start();
    let limiter = process(&server).await;
    let key = "tollgate:login:0/b:=mallory";
    for foreign in ["something else", "\u{7f}"] {
        let _ok = server.command(&["SET", key, foreign]);
        let checked = limiter.check("login", "mallory").await.unwrap();
        assert!(checked.is_allowed() && checked.undecided().is_some());
        assert_eq!(value(&server.command(&["GET", key])), foreign);
    }
}
