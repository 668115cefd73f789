//! The failure rule over a real Redis that dies and comes back.

#[allow(unreachable_pub, reason = "other tests share it in a module")]
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate::{Ban, Limiter, OnFailure, Policy, Quota, RedisBackend, Share};
use tollgate_testkit::{Log, Standalone};

fn policy(name: &str, rule: OnFailure) -> Policy {
    Policy::new(name, Quota::per_hour(4)).on_failure(rule)
}

/// The number of checks that pass, of so many.
async fn allowed(limiter: &Limiter, policy: &str, checks: usize) -> usize {
    let mut allowed = 0;
    for _ in 0..checks {
        let checked = limiter.check(policy, "anyone").await;
        allowed += usize::from(checked.is_ok_and(|checked| checked.is_allowed()));
    }
    allowed
}

#[tokio::test]
async fn each_rule_acts_while_redis_is_gone_and_none_when_it_is_back() {
    let mut server = Standalone::start();
    let backend = RedisBackend::builder(&server.url())
        // A denial that is known is one for a moment longer.
        .ask_every_denial()
        .deadline(Duration::from_secs(5));
    let limiter = Limiter::builder()
        .policies([
            policy("open", OnFailure::Allow),
            policy("closed", OnFailure::Deny),
            policy("local", OnFailure::Local(Share::one_in(2))),
        ])
        .backend(backend.connect().await.unwrap())
        .build()
        .unwrap();
    for policy in ["open", "closed", "local"] {
        assert_eq!(allowed(&limiter, policy, 6).await, 4, "{policy}");
    }

    server.kill();
    let gone = [
        allowed(&limiter, "open", 6).await,
        allowed(&limiter, "closed", 6).await,
        allowed(&limiter, "local", 6).await,
    ];
    server.restart();

    // All pass, none passes, and half of the budget does.
    assert_eq!(gone, [6, 0, 2]);
    let back = async {
        while allowed(&limiter, "closed", 1).await == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), back).await.unwrap();
    // The server came back with nothing in it.
    assert_eq!(allowed(&limiter, "closed", 6).await, 3);
    assert_eq!(allowed(&limiter, "open", 6).await, 4);
    assert_eq!(allowed(&limiter, "local", 6).await, 4);
}

/// The process cannot know the bans of Redis, and keeps its own for the outages alone.
#[tokio::test]
async fn a_banned_caller_meets_the_share_of_the_process_and_its_bans_until_redis_is_back() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let mut server = Standalone::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let backend = RedisBackend::builder(&server.url())
        // A denial that is known is one for a moment longer.
        .ask_every_denial()
        .deadline(Duration::from_secs(5));
    let ban = Ban::after(2, HOUR).lasting(3 * HOUR);
    let policy = policy("login", OnFailure::Local(Share::one_in(2))).ban(ban);
    let limiter = Limiter::builder()
        .policy(policy)
        .backend(backend.connect().await.unwrap())
        .build()
        .unwrap();
    limiter.ban("login", "anyone", 2 * HOUR).await.unwrap();
    assert_eq!(allowed(&limiter, "login", 3).await, 0);

    server.kill();
    let mut share = [false; 6];
    for passes in &mut share {
        *passes = allowed(&limiter, "login", 1).await == 1;
    }
    let refused = limiter.check("login", "anyone").await.unwrap();
    server.restart();

    // Half of the budget passes. The denials are strikes in the process, and ban there.
    assert_eq!(share, [true, true, false, false, false, false]);
    let local = refused.retry_after().unwrap();
    assert!(local > 2 * HOUR && local <= 3 * HOUR, "{local:?}");
    // The ban in Redis is in force as before, and the denials in the process have changed nothing there.
    let back = async {
        loop {
            if let Ok(left) = limiter.banned("login", "anyone").await {
                return left.unwrap();
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let left = timeout(Duration::from_secs(30), back).await.unwrap();
    assert!(left > HOUR && left <= 2 * HOUR, "{left:?}");
    let refused = limiter.check("login", "anyone").await.unwrap();
    assert!(
        refused
            .retry_after()
            .is_some_and(|until| until > HOUR && until <= left)
    );
    limiter.unban("login", "anyone").await.unwrap();
    assert_eq!(allowed(&limiter, "login", 6).await, 4);
}

/// The most that `OnFailure::Local` may admit: Redis's budget, and for each process its share, however often there is an outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_in_several_outages_admit_redis_s_budget_and_a_share_each() {
    const PROCESSES: usize = 3;
    let server = Standalone::start();
    let mut limiters = Vec::new();
    for _ in 0..PROCESSES {
        let backend = RedisBackend::builder(&server.url())
            // A denial that is known is one for a moment longer.
            .ask_every_denial()
            .deadline(Duration::from_millis(200));
        let policy = Policy::new("shared", Quota::per_day(40))
            .on_failure(OnFailure::Local(Share::one_in(4)));
        let limiter = Limiter::builder()
            .policy(policy)
            .backend(backend.connect().await.unwrap())
            .build();
        limiters.push(limiter.unwrap());
    }

    let mut total = 0;
    for _ in 0..3 {
        server.stall();
        for limiter in &limiters {
            total += allowed(limiter, "shared", 15).await;
        }
        server.go_on();
        for limiter in &limiters {
            total += allowed(limiter, "shared", 5).await;
        }
    }
    // Until a limiter knows that Redis is well again, it decides by its share.
    for _ in 0..200 {
        for limiter in &limiters {
            total += allowed(limiter, "shared", 1).await;
        }
        sleep(Duration::from_millis(5)).await;
    }

    let share = 40 / 4;
    assert!(total > 40, "{total}: the shares were used");
    assert!(total <= 40 + PROCESSES * share, "{total}");
}

#[tokio::test]
async fn the_log_names_the_server_the_database_and_what_keeps_it_from_deciding() {
    let log = Log::default();
    let _listening = log.listen();
    let mut server = Standalone::start();
    let url = format!("{}3", server.url().replace("redis://", "redis://:@"));
    let backend = RedisBackend::builder(&url)
        // A denial that is known is one for a moment longer.
        .ask_every_denial()
        .deadline(Duration::from_secs(5));
    let limiter = Limiter::builder()
        .policy(policy("open", OnFailure::Allow))
        .backend(backend.connect().await.unwrap())
        .build()
        .unwrap();
    assert_eq!(allowed(&limiter, "open", 1).await, 1);

    server.kill();
    assert_eq!(allowed(&limiter, "open", 2).await, 2);
    server.restart();
    let back = async {
        while limiter
            .check("open", "other")
            .await
            .unwrap()
            .undecided()
            .is_some()
        {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), back).await.unwrap();

    let text = log.text();
    let place = format!("backend=\"127.0.0.1:{}, database 3\"", server.port());
    let (before, after) = text.split_once("the backend decides again").unwrap();
    assert!(before.contains("the backend cannot decide"), "{text}");
    assert!(before.contains(&place) && after.contains(&place), "{text}");
    assert!(before.contains("error=\"backend unreachable: "), "{text}");
    assert!(
        after.contains("undecided=") && after.contains("passed="),
        "{text}"
    );
}
