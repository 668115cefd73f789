//! The backend on a master that Sentinels watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::load::{Asked, ask_on, waited_only_until_known};
use crate::common::watch::Watch;
use crate::common::{Budget, HOUR, PATIENT, Patience, recovered};
use tokio::time::sleep;
use tollgate_core::{Backend, Ban, Call, Charge, Key, Mode, Quota, Scope, Timestamp};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Sentinels, Standalone};

/// Far more than a failover on a busy machine takes, given up and planned again.
const LONG: Duration = Duration::from_secs(90);

/// The fate of the master.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Dies,
    Stalls,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_under_load_costs_no_request_more_than_its_deadline() {
    fails_over(Failure::Dies).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_stalls_under_load_costs_no_request_more_than_its_deadline() {
    fails_over(Failure::Stalls).await;
}

async fn fails_over(failure: Failure) {
    let mut all = Sentinels::start();
    let deadline = Duration::from_secs(2);
    let builder = RedisBackend::sentinel(all.master_name(), all.urls())
        .connect_deadline(deadline * 2)
        .deadline(deadline);
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("failover", Quota::per_day(1_000_000));
    budget.take(&backend, 1).await.unwrap();

    let mut gone_at = None;
    let watch = Arc::new(Watch::start());
    let is_over = |said: &[Asked]| {
        assert!(watch.elapsed() < LONG, "{failure:?}");
        if gone_at.is_none() && said.len() > 200 {
            match failure {
                Failure::Dies => all.kill_master(),
                Failure::Stalls => all.stall_master(),
            }
            gone_at = Some(watch.elapsed());
        }
        let failed = said.iter().any(|asked| !asked.is_decided);
        failed && said.iter().rev().take(100).all(|asked| asked.is_decided)
    };
    let said = ask_on(&backend, &watch, &[&budget], is_over).await;

    waited_only_until_known(&said, gone_at.unwrap(), deadline);
}

/// The answer of a server that may change its role meanwhile, and closes its connections then.
fn answer(server: &Standalone, words: &[&str]) -> String {
    let mut tries = (0..100).map(|_| server.try_command(words));
    let answered = tries.find_map(Result::ok);
    answered.unwrap()
}

/// The number of times that a server has run the script.
fn decisions(server: &Standalone) -> u64 {
    let stats = answer(server, &["INFO", "commandstats"]);
    let calls = stats.split_once("cmdstat_evalsha:calls=");
    calls.map_or(0, |(_, rest)| {
        rest.split(',').next().unwrap().parse().unwrap()
    })
}

fn is_master(server: &Standalone) -> bool {
    answer(server, &["ROLE"]).contains("master")
}

/// The old master stays a master, and takes writes, for some ten seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_was_planned_costs_at_most_one_full_budget_though_the_old_master_goes_on() {
    // given two processes that ask all the time for one budget
    let all = Sentinels::start();
    let connect = || async {
        let builder = RedisBackend::sentinel(all.master_name(), all.urls());
        builder.patient().connect().await.unwrap()
    };
    let backends = [connect().await, connect().await];
    let (burst, each_second) = (200, 200);
    let quota = Quota::per_second(each_second).burst(burst);
    let budget = Budget::of("planned", quota);
    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    let asking = backends.each_ref().map(|backend| {
        let (budget, is_over) = (&budget, &is_over);
        async move {
            let mut admitted = 0;
            while !is_over.load(Ordering::Relaxed) {
                let said = budget.take(backend, 1).await;
                admitted += u64::from(said.is_ok_and(|decision| decision.is_admitted()));
                sleep(Duration::from_millis(1)).await;
            }
            admitted
        }
    });
    let [first, second] = asking;

    // when the Sentinels are told to replace the master
    let failing_over = async {
        sleep(Duration::from_secs(1)).await;
        let old = all.servers().iter().position(is_master).unwrap();
        all.be_patient();
        all.plan_failover();
        while all.named() != Some(1 - old) {
            assert!(began.elapsed() < LONG);
            all.insist_on_failover(old);
            sleep(Duration::from_millis(20)).await;
        }
        // Longer than the interval of questions.
        sleep(Duration::from_millis(1_500)).await;
        let (before, was_master) = (
            decisions(&all.servers()[old]),
            is_master(&all.servers()[old]),
        );
        sleep(Duration::from_secs(2)).await;
        let after = decisions(&all.servers()[old]);
        is_over.store(true, Ordering::Relaxed);
        (was_master, after - before)
    };
    let (first, second, (was_master, asked_of_the_old)) = tokio::join!(first, second, failing_over);

    // then no process asks the old one any more, although it is still a master
    assert!(was_master, "it was demoted too early to tell anything");
    assert_eq!(asked_of_the_old, 0);
    // and no more is admitted than one budget and another full one
    let admitted = first + second;
    let lasted_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
    let bound = 2 * burst + each_second * lasted_ms / 1_000;
    assert!(admitted <= bound, "{admitted} of {bound}");
    assert!(admitted > burst * 2, "{admitted}");
}

/// A user that may not subscribe asks each second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_was_planned_is_noticed_without_the_right_to_subscribe() {
    let all = Sentinels::start();
    for sentinel in all.sentinels() {
        let words = [
            "ACL",
            "SETUSER",
            "gate",
            "reset",
            "on",
            ">pw",
            "-@all",
            "+sentinel|get-master-addr-by-name",
        ];
        assert!(sentinel.command(&words).starts_with("+OK"));
    }
    let urls = all
        .urls()
        .map(|url| url.replace("redis://", "redis://gate:pw@"));
    let backend = RedisBackend::sentinel(all.master_name(), urls);
    let backend = backend.patient().connect().await.unwrap();
    let budget = Budget::of("asked", Quota::per_hour(1_000_000));
    budget.take(&backend, 1).await.unwrap();
    let old = all.servers().iter().position(is_master).unwrap();
    // Each Sentinel has been asked once, so that a new answer is a change.
    sleep(Duration::from_millis(1_500)).await;

    all.be_patient();
    all.plan_failover();
    let began = Instant::now();
    while decisions(&all.servers()[1 - old]) < 10 {
        assert!(began.elapsed() < LONG);
        all.insist_on_failover(old);
        let _between = budget.take(&backend, 1).await;
        sleep(Duration::from_millis(10)).await;
    }

    assert!(
        is_master(&all.servers()[old]),
        "it was demoted: {:?}",
        began.elapsed()
    );
}

/// Turns of a planned failover. In each a plain client tries to write to every server, and then the backend is asked.
#[derive(Debug, Default)]
struct Turns {
    all: usize,
    /// No server took the write: that is how long Redis takes to change the roles.
    shut: usize,
    /// A server took the write, and there was no decision.
    missed: usize,
}

/// The bound of the missed turns, each of ten milliseconds and a round trip to every server at least. Together they are half of the
/// pause after which the Sentinels are asked again: the backend has to follow their news.
const MISSED: usize = 50;

/// A replica follows one master at a time, so that only one of the two takes writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_replica_must_follow_decisions_go_on_as_soon_as_the_new_master_takes_any_write() {
    // With one replica the new master waits for the old one to become its replica.
    for replicas in [2, 1] {
        let all = Sentinels::start_with_replicas(replicas);
        for server in all.servers() {
            for (option, value) in [
                ("min-replicas-to-write", "1"),
                ("repl-diskless-sync-delay", "0"),
            ] {
                assert!(
                    server
                        .command(&["CONFIG", "SET", option, value])
                        .starts_with("+OK")
                );
            }
        }
        let builder = RedisBackend::sentinel(all.master_name(), all.urls());
        let backend = builder.patient().connect().await.unwrap();
        let budget = Budget::of("followed", Quota::per_hour(1_000_000));
        recovered(&backend, &budget).await;
        let old = all.servers().iter().position(is_master).unwrap();
        sleep(Duration::from_millis(1_500)).await;

        all.be_patient();
        all.plan_failover();
        let began = Instant::now();
        let decided_by_another = || {
            let others = (0..=replicas).filter(|&number| number != old);
            others
                .map(|number| decisions(&all.servers()[number]))
                .sum::<u64>()
        };
        let before = decided_by_another();
        let takes_writes = |server: &Standalone| {
            // One that changes its role closes its connections.
            let said = server.try_command(&["SET", "plain", "write"]);
            said.is_ok_and(|said| said.starts_with("+OK"))
        };
        let mut turns = Turns::default();
        let mut was_master = true;
        let mut decided = 0;
        while decided < 20 {
            assert!(began.elapsed() < LONG, "{replicas} replicas: {turns:?}");
            let is_open = all.servers().iter().filter(|it| takes_writes(it)).count() > 0;
            let said = budget.take(&backend, 1).await;
            turns.all += 1;
            if turns.all.is_multiple_of(50) && decided_by_another() == before {
                all.insist_on_failover(old);
            }
            turns.shut += usize::from(!is_open);
            turns.missed += usize::from(is_open && said.is_err());
            if said.is_ok() && decided_by_another() >= before + 20 {
                decided += 1;
                was_master = was_master && is_master(&all.servers()[old]);
            }
            sleep(Duration::from_millis(10)).await;
        }

        println!("{replicas} replicas: {turns:?}, {:?}", began.elapsed());
        assert!(turns.missed < MISSED, "{replicas} replicas: {turns:?}");
        // With another replica to follow, no decision waits for the old one.
        assert!(was_master || replicas == 1, "it was demoted: {turns:?}");
    }
}

#[tokio::test]
async fn a_sentinel_that_is_gone_leaves_the_others_and_a_silent_one_too() {
    let all = Sentinels::start();
    let [first, second, third] = all.urls();
    all.sentinels()[0].stall();
    let urls = ["redis://127.0.0.1:1/".to_owned(), first, second, third];
    // The silent one costs a fifth of the time.
    let backend = RedisBackend::sentinel(all.master_name(), urls).deadline(PATIENT);
    let backend = backend
        .connect_deadline(PATIENT / 4)
        .connect()
        .await
        .unwrap();
    all.sentinels()[0].go_on();
    recovered(&backend, &Budget::of("others", Quota::per_hour(10))).await;
}

/// The end of a caller's ban, and the strikes that are left before one.
async fn standing(backend: &RedisBackend, ban: &Budget, caller: &Key) -> (Option<Timestamp>, u64) {
    let probe = Charge {
        key: caller,
        mode: Mode::Probe,
        ..ban.charge(0)
    };
    let decision = backend.decide(Call::of(&[probe])).await.unwrap();
    let verdict = decision.verdicts()[0];
    let end = |left| decision.at().saturating_add(left);
    (verdict.retry_after().map(end), verdict.remaining())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_and_a_strike_that_the_replica_has_seen_outlive_a_failover_with_the_same_end() {
    // given a caller that is banned, and one with a strike
    let mut all = Sentinels::start();
    let builder = RedisBackend::sentinel(all.master_name(), all.urls()).patient();
    let backend = builder.connect().await.unwrap();
    let quota = Quota::from(Ban::after(2, HOUR).lasting(HOUR * 24));
    let ban = Budget {
        scope: Scope::of("outlives", 0, &quota),
        ..Budget::of("outlives", quota)
    };
    let [mallory, trent] = ["mallory", "trent"].map(Key::from);
    for (caller, strikes) in [(&mallory, 2), (&trent, 1)] {
        let strike = Charge {
            key: caller,
            mode: Mode::Shadow,
            ..ban.charge(strikes)
        };
        backend.decide(Call::of(&[strike])).await.unwrap();
    }
    let before = [
        standing(&backend, &ban, &mallory).await,
        standing(&backend, &ban, &trent).await,
    ];
    assert!(before[0].0.is_some());
    assert_eq!(before[1], (None, 1));

    // when the replica has both states, and the master dies
    let replica = all.servers().iter().position(|server| !is_master(server));
    let replica = &all.servers()[replica.unwrap()];
    let asked = Instant::now();
    while answer(replica, &["DBSIZE"]).trim() != ":2" {
        assert!(asked.elapsed() < LONG);
        sleep(Duration::from_millis(5)).await;
    }
    all.kill_master();
    recovered(&backend, &ban).await;

    // then the ban ends when it ended before, and the strike counts
    let after = [
        standing(&backend, &ban, &mallory).await,
        standing(&backend, &ban, &trent).await,
    ];
    assert_eq!(after, before);
}
