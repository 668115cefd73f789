//! Limits on how many at once, and processes of their own: one that is stopped by a signal, and two thousand of them.

use std::env;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{self, Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::held::hold;
use crate::common::{Budget, HOUR, PATIENT, harness_name};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::key::Header;
use tollgate::{Limiter, OnFailure, Policy};
use tollgate_core::{Backend, Concurrent, FailureKind, Receipt};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::Standalone;

const LEASE: Duration = Duration::from_secs(3);

/// The server's address, set in the process that is stopped. It runs this very test.
const URL: &str = "TOLLGATE_TEST_STOPPED";

/// Set in a process that stops itself, and releases as soon as it goes on.
const STOPS_ITSELF: &str = "TOLLGATE_TEST_STOPS_ITSELF";

const STOPPED: &str =
    "a_process_that_a_signal_stops_for_longer_than_its_lease_loses_its_places_and_says_so";

fn uploads(limit: u64) -> Budget {
    Budget::of("uploads", Concurrent::at_most(limit).into())
}

fn holder(url: &str, lease: Duration) -> RedisBackendBuilder {
    let builder = RedisBackend::builder(url).held_lease(lease);
    builder.deadline(PATIENT * 4)
}

/// Waits until so many units pass, and holds them.
async fn holds_at_last(backend: &RedisBackend, budget: &Budget, cost: u64) -> Receipt {
    let holding = async {
        loop {
            if let Some(receipt) = hold(backend, budget, cost).await {
                return receipt;
            }
            sleep(LEASE / 30).await;
        }
    };
    timeout(PATIENT * 4, holding).await.unwrap()
}

/// A process that holds two, for as long as nothing is said to it. Killed when it is dropped.
struct Stoppable {
    process: Child,
    said: BufReader<ChildStdout>,
    told: ChildStdin,
}

fn signal(process: u32, signal: &str) {
    let mut kill = Command::new("kill");
    let kill = kill.args([signal, &process.to_string()]);
    assert!(kill.status().unwrap().success());
}

impl Stoppable {
    fn start(url: &str) -> Self {
        Self::start_with(url, &[])
    }

    fn start_with(url: &str, variables: &[(&str, &str)]) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                &harness_name(module_path!(), STOPPED),
                "--nocapture",
            ])
            .env(URL, url)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            said: BufReader::new(process.stdout.take().unwrap()),
            told: process.stdin.take().unwrap(),
            process,
        }
    }

    fn signal(&self, signal: &str) {
        self::signal(self.process.id(), signal);
    }

    /// Waits until it says this.
    fn says(&mut self, what: &str) {
        let mut line = String::new();
        while line.trim() != what {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "{what}");
        }
    }

    fn is_told_to_go_on(&mut self) {
        self.told.write_all(b"\n").unwrap();
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.process.kill();
        let _status = self.process.wait();
    }
}

/// The work of the process that is stopped.
async fn be_stopped(url: &str) {
    let backend = holder(url, LEASE).connect().await.unwrap();
    let receipt = hold(&backend, &uploads(2), 2).await.unwrap();
    println!("\nholds");
    let says_lost = async {
        while backend.stats().lost_leases == 0 {
            sleep(LEASE / 30).await;
        }
        println!("\nlost {}", backend.stats().lost_leases);
    };
    if env::var(STOPS_ITSELF).is_ok() {
        // This thread may run on until another one has taken the signal.
        let asked = Instant::now();
        signal(process::id(), "-STOP");
        while asked.elapsed() < LEASE {
            thread::sleep(LEASE / 30);
        }
        // The release is the first thing that it does when it goes on, before any heartbeat.
        backend.refund(receipt, 2);
        timeout(PATIENT, says_lost).await.unwrap();
    } else {
        says_lost.await;
        let reading = tokio::task::spawn_blocking(|| stdin().read_line(&mut String::new()));
        reading.await.unwrap().unwrap();
        backend.refund(receipt, 2);
    }
    while backend.stats().held > 0 {
        sleep(LEASE / 30).await;
    }
    println!("\nholds nothing");
}

#[tokio::test]
async fn a_process_that_a_signal_stops_for_longer_than_its_lease_loses_its_places_and_says_so() {
    if let Ok(url) = env::var(URL) {
        return be_stopped(&url).await;
    }
    let server = Standalone::start();
    let uploads = uploads(2);
    let other = holder(&server.url(), LEASE).connect().await.unwrap();
    let mut stopped = Stoppable::start(&server.url());
    stopped.says("holds");
    assert!(hold(&other, &uploads, 1).await.is_none());

    // Its connections stay open, and none of its threads runs.
    stopped.signal("-STOP");
    let taken = holds_at_last(&other, &uploads, 1).await;
    stopped.signal("-CONT");
    stopped.says("lost 1");

    // Three are held of two, until they end.
    assert!(hold(&other, &uploads, 1).await.is_none());
    other.refund(taken, 1);
    sleep(LEASE / 10).await;
    assert!(hold(&other, &uploads, 1).await.is_none());
    stopped.is_told_to_go_on();
    stopped.says("holds nothing");
    drop(holds_at_last(&other, &uploads, 2).await);
    assert_eq!(other.stats().lost_leases, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_that_releases_before_it_tells_says_what_it_lost() {
    let server = Standalone::start();
    let uploads = uploads(2);
    let other = holder(&server.url(), LEASE).connect().await.unwrap();
    let mut stopped = Stoppable::start_with(&server.url(), &[(STOPS_ITSELF, "1")]);
    stopped.says("holds");

    let _taken = holds_at_last(&other, &uploads, 1).await;
    stopped.signal("-CONT");

    stopped.says("lost 1");
    stopped.says("holds nothing");
    drop(holds_at_last(&other, &uploads, 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_process_held_that_died_is_counted_once_by_those_that_go_on() {
    let server = Standalone::start();
    let connect = || holder(&server.url(), LEASE).connect();
    let (one, other) = (connect().await.unwrap(), connect().await.unwrap());
    let reclaimed = || one.stats().reclaimed + other.stats().reclaimed;
    let three = uploads(3);
    let mut dying = Stoppable::start(&server.url());
    dying.says("holds");
    let kept = hold(&one, &three, 1).await.unwrap();
    assert!(hold(&other, &three, 1).await.is_none());

    dying.signal("-KILL");
    let taken = holds_at_last(&other, &three, 2).await;

    assert_eq!(reclaimed(), 2);
    // A process that holds nothing any more leaves an entry too, which no process has to reclaim.
    one.refund(kept, 1);
    sleep(LEASE * 2).await;
    drop(holds_at_last(&one, &three, 1).await);
    other.refund(taken, 2);
    assert_eq!(reclaimed(), 2);
    assert_eq!((one.stats().lost_leases, other.stats().lost_leases), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_thousand_processes_at_one_key_1024_hold_and_the_rule_acts_for_the_others() {
    const PROCESSES: usize = 2_000;
    const AT_A_TIME: usize = 50;
    const MOST: u64 = 1_024;

    let server = Standalone::start();
    // Each dies as soon as it holds, which is known after a lease.
    let dying = holder(&server.url(), HOUR / 2).connections(1);
    let (mut held, mut refused) = (0, 0);
    for _ in 0..PROCESSES / AT_A_TIME {
        let mut asking = JoinSet::new();
        for _ in 0..AT_A_TIME {
            let dying = dying.clone();
            asking.spawn(async move {
                let backend = dying.connect().await.unwrap();
                let decision = uploads(10_000).take(&backend, 1).await;
                decision.map(|decision| decision.is_admitted())
            });
        }
        for asked in asking.join_all().await {
            match asked {
                Ok(is_admitted) => {
                    assert!(is_admitted);
                    held += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), FailureKind::Full);
                    refused += 1;
                }
            }
        }
    }

    assert_eq!((held, refused), (MOST, PROCESSES as u64 - MOST));
    let length = server.command(&["STRLEN", "tollgate:uploads:0/h:=alice"]);
    assert_eq!(length, format!(":{}\r\n", 21 + 32 * MOST));
    // The next one lets a request pass that it cannot count, and refuses it under the other rule. Another key has room.
    let backend = dying.connect().await.unwrap();
    for (rule, passes) in [(OnFailure::Allow, true), (OnFailure::Deny, false)] {
        let policy = Policy::new("uploads", Concurrent::at_most(10_000)).key(Header::new("user"));
        let limiter = Limiter::builder().policy(policy.on_failure(rule));
        let limiter = limiter.backend(backend.clone()).build().unwrap();
        let full = limiter.check("uploads", "alice").await;
        assert_eq!(full.is_ok_and(|full| full.undecided().is_some()), passes);
        let room = limiter.check("uploads", "bob").await.unwrap();
        assert!(room.is_allowed() && room.undecided().is_none());
    }
}
