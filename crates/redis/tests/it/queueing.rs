//! Requests that wait for their turn: two processes, one server, and what happens to it meanwhile.
//!
//! The server's time stands still where a test counts, so that the turns are exact on a busy machine. Requests wait by their
//! own timers.

use std::time::{Duration, Instant};

use crate::common::line::{NOW_US, Process, acquire, leaves, set_clock, until};
use tokio::task::JoinSet;
use tollgate::Policy;
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Fault, Proxy, Standalone};

const QUOTA: &str = "20/s burst 1 wait 2s";
const INTERVAL: Duration = Duration::from_millis(50);

/// The requests of a full budget: one at once, and those in line.
const MOST: u32 = 41;

async fn start(server: &Standalone, quota: &str) -> Process {
    let builder = RedisBackend::builder(&server.url()).clock("clock");
    Process::connect(builder, quota).await
}

/// The time for which the next request waits, in intervals of [`QUOTA`].
async fn next_waits(process: &Process) -> u128 {
    let acquired = process.acquire().await;
    assert!(acquired.is_allowed());
    intervals(acquired.waited())
}

/// Two processes on a server whose time stands still.
async fn two(server: &Standalone, quota: &str) -> (Process, Process) {
    set_clock(server, NOW_US);
    (start(server, quota).await, start(server, quota).await)
}

/// The calls of the script, by the server's own account.
fn calls(server: &Standalone) -> u64 {
    let info = server.command(&["INFO", "commandstats"]);
    let mut lines = info.lines();
    let calls = lines.find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

/// A time as a number of whole intervals.
fn intervals(time: Duration) -> u128 {
    assert_eq!(time.as_micros() % INTERVAL.as_micros(), 0, "{time:?}");
    time.as_micros() / INTERVAL.as_micros()
}

#[tokio::test]
async fn two_processes_share_one_line_in_which_each_turn_is_taken_once() {
    const ASKED: u32 = 60;

    let server = Standalone::start();
    let (one, other) = two(&server, QUOTA).await;
    let mut asking = Vec::new();
    for n in 0..ASKED {
        let process = if n % 2 == 0 { &one } else { &other };
        let limiter = process.limiter.clone();
        asking.push(tokio::spawn(async move {
            let (asked_at, acquired) = (Instant::now(), acquire(&limiter).await);
            assert!(asked_at.elapsed() >= acquired.waited(), "before its turn");
            acquired
        }));
    }

    let (mut turns, mut denied) = ([Vec::new(), Vec::new()], 0);
    for (n, asked) in asking.into_iter().enumerate() {
        let acquired = asked.await.unwrap();
        if acquired.is_allowed() {
            turns[n % 2].push(intervals(acquired.waited()));
        } else {
            assert_eq!(acquired.waited(), Duration::ZERO);
            assert!(acquired.retry_after().is_some());
            denied += 1;
        }
    }

    // In the order of arrival within each process.
    assert!(turns.iter().all(|turns| turns.is_sorted()), "{turns:?}");
    let mut turns = turns.concat();
    turns.sort_unstable();
    assert_eq!(turns, (0..u128::from(MOST)).collect::<Vec<_>>());
    assert_eq!(denied, ASKED - MOST);
    let requests = one.backend.stats().requests + other.backend.stats().requests;
    assert_eq!(requests, u64::from(ASKED));
}

/// By the server's own time. Whatever keeps the machine busy, a turn comes later by it and never earlier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_passes_before_the_turn_by_the_servers_own_time() {
    // The server's clock and this process's are told apart in whole milliseconds.
    const CLOCKS: Duration = Duration::from_millis(2);

    let server = Standalone::start();
    let connect = || Process::connect(RedisBackend::builder(&server.url()), QUOTA);
    let processes = [connect().await, connect().await];
    let began = Instant::now();
    let mut asking = JoinSet::new();
    for n in 0..MOST as usize {
        let limiter = processes[n % 2].limiter.clone();
        asking.spawn(async move {
            assert!(acquire(&limiter).await.is_allowed());
            began.elapsed()
        });
    }

    let mut passed = asking.join_all().await;

    passed.sort_unstable();
    for (turn, at) in (0..).zip(passed) {
        assert!(at + CLOCKS >= INTERVAL * turn, "turn {turn} at {at:?}");
    }
}

#[tokio::test]
async fn a_wait_costs_one_call_and_leaving_one_more() {
    let server = Standalone::start();
    let (one, other) = two(&server, "1/s burst 1 wait 60s").await;
    let before = calls(&server);
    assert!(one.acquire().await.is_allowed());
    let second = one.one_waits().await;
    let mut leaving = Vec::new();
    for _ in 0..3 {
        leaving.push(one.one_waits().await);
        leaving.push(other.one_waits().await);
    }
    assert_eq!(calls(&server) - before, 8);

    let last = leaving.pop().unwrap();
    leaves(last).await;
    until(|| calls(&server) - before == 9).await;
    assert_eq!(second.await.unwrap(), Duration::from_secs(1));
    assert_eq!(calls(&server) - before, 9);
    for waits in leaving {
        leaves(waits).await;
    }
    let requests = || one.backend.stats().requests + other.backend.stats().requests;
    until(|| requests() == 14).await;

    // Requests that leave together may travel together.
    assert!((10..=14).contains(&(calls(&server) - before)));
}

#[tokio::test]
async fn a_turn_that_one_process_leaves_goes_to_the_next_request_of_another() {
    let server = Standalone::start();
    // Intervals of a second, so that no turn comes while the test arranges things.
    let (one, other) = two(&server, "1/s burst 1 wait 60s").await;
    assert!(one.acquire().await.is_allowed());
    let second = one.one_waits().await;
    let third = one.one_waits().await;
    let fourth = other.one_waits().await;

    let before = calls(&server);
    leaves(third).await;
    until(|| calls(&server) > before).await;
    let next = other.one_waits().await;
    let last = one.one_waits().await;

    let mut waited = Vec::new();
    for waits in [second, next, fourth, last] {
        waited.push(waits.await.unwrap().as_millis());
    }
    assert_eq!(waited, [1_000, 2_000, 3_000, 4_000]);
}

/// The caller has stopped waiting for the answer, which says that it has a turn. That goes to the next request, unless the turn
/// has come by then: a request that has passed gives nothing back while any request waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_too_late_gives_its_turn_to_the_next() {
    const LATE: Duration = Duration::from_secs(2);

    for (step_us, next) in [
        (0, Duration::from_secs(1)),
        (1_500_000, Duration::from_millis(1_500)),
    ] {
        let server = Standalone::start();
        set_clock(&server, NOW_US);
        let proxy = Proxy::before(server.port());
        let near = start(&server, "1/s burst 1 wait 60s").await;
        let builder = RedisBackend::builder(&proxy.url()).clock("clock");
        let far = Process::of(builder.deadline(LATE / 2), "1/s burst 1 wait 60s").await;
        assert!(near.acquire().await.is_allowed());
        let taken = calls(&server);

        proxy.fail_with(Fault::Delay(LATE));
        let passes = tokio::spawn({
            let limiter = far.limiter.clone();
            async move { acquire(&limiter).await }
        });
        until(|| calls(&server) > taken).await;
        let behind = near.one_waits().await;
        set_clock(&server, NOW_US + step_us);
        let passed = passes.await.unwrap();
        assert!(passed.is_allowed() && passed.undecided().is_some());
        assert_eq!(passed.waited(), Duration::ZERO);
        // The one of another connection that tries the script, and that of the turn that is given back.
        until(|| calls(&server) == taken + 4).await;

        let acquired = near.acquire().await;

        assert_eq!(acquired.waited(), next, "{step_us}");
        assert_eq!(behind.await.unwrap(), Duration::from_secs(2));
    }
}

#[tokio::test]
async fn who_waits_keeps_the_turn_when_the_data_are_lost_and_later_ones_find_a_full_budget() {
    let server = Standalone::start();
    let (one, other) = two(&server, QUOTA).await;
    assert!(one.acquire().await.is_allowed());
    let second = one.one_waits().await;
    let third = other.one_waits().await;

    assert_eq!(server.command(&["FLUSHALL"]), "+OK\r\n");
    set_clock(&server, NOW_US);

    assert_eq!(next_waits(&other).await, 0);
    assert_eq!(next_waits(&one).await, 1);
    assert_eq!(intervals(second.await.unwrap()), 1);
    assert_eq!(intervals(third.await.unwrap()), 2);
    // A burst and a line, and no more.
    assert_eq!(other.pass_of(60).await, MOST - 2);
    assert_eq!(one.pass_of(10).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_needs_the_server_no_more_and_may_leave_without_it() {
    let mut server = Standalone::start();
    let (one, other) = two(&server, "1/s burst 1 wait 60s").await;
    assert!(one.acquire().await.is_allowed());
    let second = one.one_waits().await;
    let third = other.one_waits().await;
    let mut leaving = Vec::new();
    for _ in 0..5 {
        leaving.push(one.one_waits().await);
    }

    server.kill();
    for waits in leaving {
        leaves(waits).await;
    }

    assert_eq!(second.await.unwrap(), Duration::from_secs(1));
    assert_eq!(third.await.unwrap(), Duration::from_secs(2));
    assert_eq!((one.limiter.waiting(), other.limiter.waiting()), (0, 0));

    server.restart();
    set_clock(&server, NOW_US);
    one.decides_again().await;
    other.decides_again().await;
    assert_eq!(one.acquire().await.waited(), Duration::ZERO);
    assert_eq!(other.acquire().await.waited(), Duration::from_secs(1));
}

#[tokio::test]
async fn who_waits_keeps_the_turn_when_the_servers_clock_steps() {
    const STEP_US: u64 = 10_000_000;

    for (step, next) in [
        // The line stands further ahead than it did.
        (NOW_US - 30_000, Some(Duration::from_millis(180))),
        (NOW_US - STEP_US, None),
        (NOW_US + STEP_US, Some(Duration::ZERO)),
    ] {
        let server = Standalone::start();
        let (one, other) = two(&server, QUOTA).await;
        assert!(one.acquire().await.is_allowed());
        let second = one.one_waits().await;
        let third = other.one_waits().await;

        set_clock(&server, step);

        let acquired = one.acquire().await;
        assert_eq!(acquired.is_allowed().then(|| acquired.waited()), next);
        assert_eq!(intervals(second.await.unwrap()), 1);
        assert_eq!(intervals(third.await.unwrap()), 2);
    }
}

/// A place that became free before the step is taken at its time. A charge from what is the future now is not credited: its
/// turn is lost, and no request passes earlier by it.
#[tokio::test]
async fn a_turn_that_was_given_back_before_a_step_back_goes_to_the_next() {
    const STEP_US: u64 = 300_000;

    let next_waits = async |leaves_first: bool| {
        let server = Standalone::start();
        let (one, other) = two(&server, "1/s burst 1 wait 60s").await;
        assert!(one.acquire().await.is_allowed());
        let second = one.one_waits().await;
        let third = other.one_waits().await;
        let fourth = one.one_waits().await;
        let leave = async || {
            let before = calls(&server);
            leaves(third).await;
            until(|| calls(&server) > before).await;
        };
        if leaves_first {
            leave().await;
            set_clock(&server, NOW_US - STEP_US);
        } else {
            set_clock(&server, NOW_US - STEP_US);
            leave().await;
        }

        let next = other.acquire().await;

        assert_eq!(second.await.unwrap(), Duration::from_secs(1));
        assert_eq!(fourth.await.unwrap(), Duration::from_secs(3));
        next.waited()
    };

    let (before, after) = tokio::join!(next_waits(true), next_waits(false));

    assert_eq!(before, Duration::from_micros(2_000_000 + STEP_US));
    assert_eq!(after, Duration::from_micros(4_000_000 + STEP_US));
}

#[tokio::test]
async fn a_clock_that_steps_forth_lets_a_burst_and_a_line_through_and_its_way_back_nobody() {
    const STEP_US: u64 = 10_000_000;

    let server = Standalone::start();
    let (one, other) = two(&server, QUOTA).await;
    assert_eq!(one.pass_of(60).await, MOST);

    for _ in 0..2 {
        set_clock(&server, NOW_US + STEP_US);
        let passed = other.pass_of(60).await;
        assert!(passed <= MOST, "{passed}");
        set_clock(&server, NOW_US);
        assert_eq!(one.pass_of(60).await, 0);
    }
}

#[tokio::test]
async fn a_reset_by_another_process_keeps_the_turns_of_those_who_wait() {
    let server = Standalone::start();
    let (one, other) = two(&server, QUOTA).await;
    assert!(one.acquire().await.is_allowed());
    let second = one.one_waits().await;
    let third = one.one_waits().await;

    other.limiter.reset("smooth", "alice").await.unwrap();

    assert_eq!(next_waits(&other).await, 0);
    assert_eq!(next_waits(&one).await, 1);
    assert_eq!(intervals(second.await.unwrap()), 1);
    assert_eq!(intervals(third.await.unwrap()), 2);
    // A burst and a line, and no more.
    assert_eq!(other.pass_of(60).await, MOST - 2);
    assert_eq!(one.pass_of(10).await, 0);
}

/// While one call is under way, requests that come and requests that leave gather behind it.
#[tokio::test]
async fn those_who_wait_and_those_who_leave_share_calls() {
    const ALL: usize = 64;

    let server = Standalone::start();
    set_clock(&server, NOW_US);
    let process = start(&server, "1/s burst 1 wait 100s").await;
    assert!(process.acquire().await.is_allowed());
    let before = calls(&server);

    let limiter = &process.limiter;
    let waiting: Vec<_> = { 0..ALL }
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { acquire(&limiter).await.waited() })
        })
        .collect();
    until(|| process.backend.stats().requests == 1 + ALL as u64).await;
    until(|| process.decided() == 1 + ALL).await;
    let asked = calls(&server) - before;
    for waits in &waiting {
        waits.abort();
    }
    for waits in waiting {
        assert!(waits.await.unwrap_err().is_cancelled());
    }
    until(|| process.backend.stats().requests == 1 + 2 * ALL as u64).await;

    let left = calls(&server) - before - asked;
    assert!(asked * 8 <= ALL as u64, "{asked} calls for {ALL} who wait");
    assert!(left * 8 <= ALL as u64, "{left} calls for {ALL} who leave");
}

#[tokio::test]
async fn a_deploy_that_replaces_the_quota_keeps_the_turns_of_those_who_wait() {
    for (quota, at_once, next) in [
        ("20/s burst 1 wait 3s", 0, Some(3)),
        ("20/s burst 1", 0, None),
        ("40/s burst 1 wait 2s", 0, Some(3)),
        ("10/s burst 1 wait 3s", 0, Some(3)),
        // A larger burst has room beside the line.
        ("20/s burst 5 wait 2s", 2, Some(1)),
        // Another algorithm knows nothing of the line.
        ("20/s sliding-window", 20, None),
    ] {
        let server = Standalone::start();
        let (one, other) = two(&server, QUOTA).await;
        assert!(one.acquire().await.is_allowed());
        let second = one.one_waits().await;
        let third = other.one_waits().await;

        // The other process comes later.
        one.limiter.replace([Policy::new("smooth", quota)]).unwrap();

        let mut passed = 0;
        while (one.limiter.check("smooth", "alice").await.unwrap()).is_allowed() {
            passed += 1;
        }
        assert_eq!(passed, at_once, "{quota}");
        if let Some(next) = next {
            assert_eq!(next_waits(&one).await, next, "{quota}");
        }
        assert_eq!(intervals(second.await.unwrap()), 1, "{quota}");
        assert_eq!(intervals(third.await.unwrap()), 2, "{quota}");
        assert!(other.acquire().await.waited() >= INTERVAL * 3, "{quota}");
    }
}
