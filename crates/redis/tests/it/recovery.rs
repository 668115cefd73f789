//! Faults of a server, and the backend's recovery without help.

use std::time::Duration;

use crate::common::watch::Watch;
use crate::common::{Budget, Patience, connect, recovered, refused};
use tokio::time::{sleep, timeout};
use tollgate_core::{Backend, Call, FailureKind, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Network, Standalone, Weather};

#[tokio::test]
async fn a_script_that_was_flushed_is_loaded_again() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("flushed", Quota::per_hour(10));
    budget.take(&backend, 1).await.unwrap();

    assert!(server.command(&["SCRIPT", "FLUSH"]).starts_with("+OK"));

    let decision = budget.take(&backend, 1).await.unwrap();
    assert_eq!(decision.verdicts()[0].remaining(), 8);
}

#[tokio::test]
async fn pitfall_the_text_of_the_script_is_sent_once_and_not_with_each_call() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("text", Quota::per_hour(100));

    for _ in 0..100 {
        budget.take(&backend, 1).await.unwrap();
    }

    let commands = server.command(&["INFO", "commandstats"]);
    let calls = |command: &str| -> u32 {
        let name = format!("cmdstat_{command}:calls=");
        let stated = commands.split(&name).skip(1);
        let calls = stated.filter_map(|rest| rest.split(',').next());
        calls.map(|calls| calls.parse::<u32>().unwrap()).sum()
    };
    assert!(calls("evalsha") >= 100, "{commands}");
    assert_eq!(calls("eval"), 0, "{commands}");
    // Before Redis 7 their effects are alike.
    assert!(
        (1..=4).contains(&(calls("script|load") + calls("script"))),
        "{commands}"
    );
}

#[tokio::test]
async fn pitfall_a_server_that_was_restarted_is_found_again() {
    let mut server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("restarted", Quota::per_hour(10));
    budget.take(&backend, 1).await.unwrap();

    server.kill();
    let error = budget.take(&backend, 1).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Unreachable);
    server.restart();

    recovered(&backend, &budget).await;
    assert_eq!(budget.remaining(&backend).await, 10);
}

#[tokio::test]
async fn who_does_not_wait_for_the_server_finds_it_when_it_comes() {
    let mut server = Standalone::start();
    server.kill();
    let backend = RedisBackend::builder(&server.url())
        .patient()
        .start()
        .unwrap();
    let budget = Budget::of("early", Quota::per_hour(10));

    let error = budget.take(&backend, 1).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Unreachable);
    server.restart();

    recovered(&backend, &budget).await;
    assert_eq!(budget.remaining(&backend).await, 10);
}

#[tokio::test]
async fn pitfall_a_stalled_server_costs_a_request_no_more_than_its_deadline() {
    const IN_THE_FIRST_CALLS: usize = 64;

    let server = Standalone::start();
    let deadline = Duration::from_secs(2);
    let builder = RedisBackend::builder(&server.url())
        .patient()
        .deadline(deadline);
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("stalled", Quota::per_hour(1_000));
    budget.take(&backend, 1).await.unwrap();

    server.stall();
    let watch = Watch::start();
    let waiting: Vec<_> = (0..500)
        .map(|_| backend.decide(Call::of(&[budget.charge(1)])))
        .collect();
    let mut kinds = Vec::new();
    for call in waiting {
        kinds.push(call.await.unwrap_err().kind());
    }
    let (early, late) = kinds.split_at(IN_THE_FIRST_CALLS);
    for kind in early {
        assert!(matches!(kind, FailureKind::TimedOut { .. }), "{kind:?}");
    }
    // Where round trips are slow, the end of the queue is told at once that it cannot be answered in time.
    for kind in late {
        let is_told = matches!(kind, FailureKind::TimedOut { .. } | FailureKind::Overloaded);
        assert!(is_told, "{kind:?}");
    }
    assert!(watch.elapsed() < deadline * 2, "{:?}", watch.elapsed());
    server.go_on();

    recovered(&backend, &budget).await;
    let given_back = async {
        while budget.remaining(&backend).await < 999 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(10), given_back)
        .await
        .expect("what came late is given back");
}

#[tokio::test]
async fn a_server_that_stays_silent_keeps_nobody_once_another_connection_was_tried() {
    let server = Standalone::start();
    let deadline = Duration::from_secs(2);
    let builder = RedisBackend::builder(&server.url()).patient();
    let backend = builder.deadline(deadline).connect().await.unwrap();
    let budget = Budget::of("silent", Quota::per_hour(1_000));
    budget.take(&backend, 1).await.unwrap();

    server.stall();
    for _ in 0..2 {
        let _waited = budget.take(&backend, 1).await.unwrap_err();
    }

    let watch = Watch::start();
    let error = budget.take(&backend, 1).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Unreachable);
    assert!(watch.elapsed() < deadline / 2);
    server.go_on();
}

#[tokio::test]
async fn beyond_the_bound_of_the_queue_requests_fail_at_once() {
    let server = Standalone::start();
    let builder = RedisBackend::builder(&server.url()).max_waiting(10);
    let backend = builder.patient().connect().await.unwrap();
    let budget = Budget::of("overload", Quota::per_hour(1_000));

    server.stall();
    let calls: Vec<_> = (0..100)
        .map(|_| backend.decide(Call::of(&[budget.charge(1)])))
        .collect();
    server.go_on();

    let mut overloaded = 0;
    for call in calls {
        if let Err(error) = call.await {
            assert_eq!(error.kind(), FailureKind::Overloaded);
            overloaded += 1;
        }
    }
    assert!((80..=90).contains(&overloaded), "{overloaded}");
}

#[tokio::test]
async fn pitfall_a_server_without_memory_refuses_and_takes_nothing() {
    let server = Standalone::start_with(&["--maxmemory-policy", "noeviction"]);
    let backend = connect(&server).await;
    let first = Budget::of("memory-1", Quota::per_hour(10));
    let second = Budget::of("memory-2", Quota::per_hour(10));
    first.take(&backend, 1).await.unwrap();
    let _set = server.command(&["CONFIG", "SET", "maxmemory", "1"]);

    let both = [first.charge(1), second.charge(1)];
    let error = backend.decide(Call::of(&both)).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::OutOfMemory, "{error}");

    let _set = server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(first.remaining(&backend).await, 9);
    assert_eq!(second.remaining(&backend).await, 10);
}

/// Eviction breaks the promise. This is why a limiter wants a server of its own.
#[tokio::test]
async fn a_server_that_evicts_hands_out_a_full_budget() {
    let server = Standalone::start_with(&["--maxmemory-policy", "volatile-ttl"]);
    let backend = connect(&server).await;
    let budget = Budget::of("evicted", Quota::per_hour(10));
    budget.take(&backend, 9).await.unwrap();

    // Of all keys only the limiter's expire.
    let _set = server.command(&["SET", "somebody else's", "value"]);
    let _set = server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = server.command(&["SET", "one", "more"]);
    assert!(refused.starts_with("-OOM"), "{refused}");
    let _set = server.command(&["CONFIG", "SET", "maxmemory", "0"]);

    assert_eq!(budget.remaining(&backend).await, 10);
}

/// Credits may be lost: no caller waits for one, and only this process remembers it.
#[test]
fn a_credit_is_lost_with_the_process_that_gave_it() {
    let server = Standalone::start();
    let network = Network::before(server.port());
    let budget = Budget::of("lost", Quota::per_hour(10));
    let process = || tokio::runtime::Runtime::new().unwrap();

    let first = process();
    first.block_on(async {
        let url = format!("redis://127.0.0.1:{}/", network.port());
        let backend = RedisBackend::builder(&url).patient();
        let backend = backend.connect().await.unwrap();
        let charges = [budget.charge(4)];
        let decision = backend.decide(Call::of(&charges)).await.unwrap();
        network.set(Weather {
            is_parted: true,
            ..Weather::default()
        });
        for receipt in decision.receipts(&charges) {
            backend.refund(receipt, 4);
        }
    });
    drop(first);
    // And so is the credit that was on its way with it.
    drop(network);

    let left = process().block_on(async { budget.remaining(&connect(&server).await).await });
    assert_eq!(left, 6);
}

#[tokio::test]
async fn a_replica_that_becomes_a_master_is_written_to_again() {
    let master = Standalone::start();
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("replica", Quota::per_hour(10));
    budget.take(&backend, 1).await.unwrap();

    let port = master.port().to_string();
    let _set = server.command(&["REPLICAOF", "127.0.0.1", &port]);
    let error = budget.take(&backend, 1).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::ReadOnly, "{error}");
    let _set = server.command(&["REPLICAOF", "NO", "ONE"]);

    let writes = async {
        while budget.take(&backend, 1).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(20), writes)
        .await
        .expect("recovers");
}

#[tokio::test]
async fn a_password_that_is_put_right_is_accepted_without_a_restart() {
    let server = Standalone::start();
    let wrong = [
        "ACL", "SETUSER", "gate", "reset", "on", ">other", "+@all", "~*",
    ];
    assert!(server.command(&wrong).starts_with("+OK"));
    let url = format!("redis://gate:s3cret@127.0.0.1:{}/", server.port());

    let why = refused(RedisBackend::builder(&url)).await;
    assert!(why.contains("check user name and password"), "{why}");
    assert!(!why.contains("s3cret"), "{why}");

    let backend = RedisBackend::builder(&url).start().unwrap();
    assert!(!format!("{backend:?}").contains("s3cret"));
    let budget = Budget::of("password", Quota::per_hour(10));
    assert!(budget.take(&backend, 1).await.is_err());
    let right = ["ACL", "SETUSER", "gate", ">s3cret"];
    assert!(server.command(&right).starts_with("+OK"));
    recovered(&backend, &budget).await;
}
