//! A failing network and its cost: no more than the deadline, and nothing twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::watch::Watch;
use crate::common::{Budget, HOUR, PATIENT, Patience, connect, recovered};
use tokio::time::{sleep, timeout};
use tollgate_core::{Backend, Call, FailureKind, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Fault, Proxy, Standalone};

/// Nothing drains meanwhile.
fn lasting(limit: u64) -> Quota {
    Quota::new(limit, HOUR * 24 * 300)
}

async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENT, waiting).await.expect("comes about");
}

/// Says whether the server has run the script this often.
fn decisions(server: &Standalone, times: u64) -> bool {
    let stats = server.command(&["INFO", "commandstats"]);
    let line = stats.split_once("cmdstat_evalsha:").map_or("", |it| it.1);
    let figure = |name: &str| -> u64 {
        let figure = line.lines().next().and_then(|it| it.split_once(name));
        let digits = figure.and_then(|it| it.1.split(',').next());
        digits.map_or(0, |it| it.parse().unwrap())
    };
    // The first call of a script fails, because the server does not have it yet.
    figure("calls=") - figure("failed_calls=") == times
}

#[tokio::test]
async fn pitfall_whatever_the_network_does_nothing_is_taken_twice_and_nobody_waits_past_the_deadline()
 {
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    let deadline = Duration::from_millis(600);
    let builder = RedisBackend::builder(&proxy.url())
        .patient()
        .deadline(deadline);
    let backend = builder.connect().await.unwrap();
    let faults = [
        Fault::Drop,
        Fault::Truncate,
        Fault::HalfClose,
        Fault::Delay(Duration::from_millis(20)),
        Fault::Delay(deadline * 2),
        Fault::Stall,
    ];
    for (n, fault) in faults.into_iter().enumerate() {
        let budget = Budget::of(&format!("fault-{n}"), lasting(100_000));
        recovered(&backend, &budget).await;
        let (mut asked, mut admitted) = (0, 0);
        for round in 0..12 {
            proxy.fail_with(if round % 4 == 2 { fault } else { Fault::None });
            let watch = Watch::start();
            let calls: Vec<_> = (0..50)
                .map(|_| backend.decide(Call::of(&[budget.charge(1)])))
                .collect();
            asked += 50;
            for call in calls {
                admitted += u64::from(call.await.is_ok_and(|decision| decision.is_admitted()));
            }
            let waited = watch.elapsed();
            assert!(waited < deadline * 2, "{fault:?}: {waited:?}");
            sleep(Duration::from_millis(15)).await;
        }
        proxy.fail_with(Fault::None);

        recovered(&backend, &budget).await;
        // Later callers see no fault.
        let taken = budget.taken(&connect(&server).await).await;
        assert!(
            admitted <= taken && taken <= asked,
            "{fault:?}: {admitted} {taken} {asked}"
        );
        assert!(admitted > 0, "{fault:?}");
    }
}

#[tokio::test]
async fn connections_that_are_cut_are_made_again() {
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    let builder = RedisBackend::builder(&proxy.url()).patient();
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("cut", Quota::per_hour(10));
    budget.take(&backend, 1).await.unwrap();
    proxy.cut();
    recovered(&backend, &budget).await;
    assert_eq!(budget.remaining(&backend).await, 9);
}

#[tokio::test]
async fn one_lost_answer_does_not_keep_others_from_a_server_that_is_well() {
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    let builder = RedisBackend::builder(&proxy.url())
        .patient()
        .deadline(Duration::from_secs(10));
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("lost", Quota::per_hour(1_000));
    // Both connections have shown that they decide.
    until(|| decisions(&server, 2)).await;
    // The server has the script of such requests then.
    budget.take(&backend, 1).await.unwrap();
    sleep(Duration::from_millis(50)).await;

    proxy.fail_with(Fault::Stall);
    // A lone request leaves when it is first polled.
    let lost = tokio::spawn(backend.decide(Call::of(&[budget.charge(1)])));
    until(|| decisions(&server, 4)).await;
    sleep(Duration::from_millis(50)).await;
    proxy.fail_with(Fault::None);

    // No other call waits while the answer is awaited: many are decided before its deadline has passed.
    let mut decided = 0;
    while !lost.is_finished() {
        budget.take(&backend, 0).await.unwrap();
        decided += 1;
        sleep(Duration::from_millis(5)).await;
    }
    assert!(decided >= 5, "{decided}");
    // And no call fails once it is known that one is late.
    for _ in 0..100 {
        budget.take(&backend, 0).await.unwrap();
    }
    let kind = lost.await.unwrap().unwrap_err().kind();
    assert!(matches!(kind, FailureKind::TimedOut { .. }), "{kind:?}");
}

#[tokio::test]
async fn pitfall_what_nobody_waits_for_keeps_a_request_from_its_deadline() {
    // given a charge and its credit
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    let deadline = Duration::from_secs(2);
    let builder = RedisBackend::builder(&proxy.url())
        .patient()
        .deadline(deadline);
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("unattended", Quota::per_hour(1_000));
    until(|| decisions(&server, 2)).await;
    let charges = [budget.charge(1)];
    let decision = backend.decide(Call::of(&charges)).await.unwrap();
    let receipt = decision.receipts(&charges).next().unwrap();
    sleep(Duration::from_millis(50)).await;

    // when the answer to a request is lost on one connection, and that to a credit on the other
    proxy.fail_with(Fault::Stall);
    let lost = tokio::spawn(backend.decide(Call::of(&charges)));
    until(|| decisions(&server, 4)).await;
    backend.refund(receipt, 1);
    until(|| decisions(&server, 5)).await;

    // then a caller that asks meanwhile hears in time that the outcome is unknown
    let watch = Watch::start();
    let error = backend.decide(Call::of(&charges)).await.unwrap_err();
    let waited = watch.elapsed();
    assert!(waited < deadline * 3, "{waited:?}: {error}");
    assert!(lost.await.unwrap().is_err());
}

#[tokio::test]
async fn a_stalled_server_that_goes_on_is_noticed_without_a_request_of_anybodys() {
    let server = Standalone::start();
    let deadline = Duration::from_secs(1);
    let builder = RedisBackend::builder(&server.url())
        .patient()
        .deadline(deadline);
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("probe", Quota::per_hour(1_000));
    // Both connections have shown that they decide: with one alone there would be none to probe.
    until(|| decisions(&server, 2)).await;
    sleep(Duration::from_millis(50)).await;
    budget.take(&backend, 1).await.unwrap();

    server.stall();
    let watch = Watch::start();
    let kind = budget.take(&backend, 1).await.unwrap_err().kind();
    assert!(matches!(kind, FailureKind::TimedOut { .. }), "{kind:?}");
    // Only its caller polls a call that left alone, and the caller is told all the same.
    assert!(watch.elapsed() < deadline * 2, "{:?}", watch.elapsed());
    // By now a question of our own over the other connection has found that out too, and no caller waits.
    sleep(deadline * 2).await;
    let watch = Watch::start();
    assert!(budget.take(&backend, 1).await.is_err());
    assert!(watch.elapsed() < deadline / 2, "{:?}", watch.elapsed());
    server.go_on();
    sleep(deadline * 3).await;

    budget.take(&backend, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_under_load_cost_nobody_a_decision() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("flushed", lasting(100_000));
    for _ in 0..20 {
        let calls: Vec<_> = (0..100)
            .map(|_| backend.decide(Call::of(&[budget.charge(1)])))
            .collect();
        assert!(server.command(&["SCRIPT", "FLUSH"]).starts_with("+OK"));
        for call in calls {
            assert!(call.await.unwrap().is_admitted());
        }
    }
    assert_eq!(budget.taken(&backend).await, 2_000);
}

/// Another client flushes the scripts all the time, far more often than calls are made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_over_a_thousand_times_a_second_cost_nobody_a_decision() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("storm", lasting(100_000));
    let is_over = Arc::new(AtomicBool::new(false));
    let (url, over) = (server.url(), Arc::clone(&is_over));
    let flushing = std::thread::spawn(move || {
        let client = redis::Client::open(url).expect("a URL");
        let mut connection = client.get_connection().expect("a connection");
        let mut times = 0;
        while !over.load(Ordering::Relaxed) {
            let flush = redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection);
            flush.expect("flushed");
            times += 1;
            std::thread::sleep(Duration::from_micros(500));
        }
        times
    });

    let mut failed = 0;
    for _ in 0..100 {
        let calls: Vec<_> = (0..20)
            .map(|_| backend.decide(Call::of(&[budget.charge(1)])))
            .collect();
        for call in calls {
            failed += u32::from(call.await.is_err());
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let flushed = flushing.join().expect("flushing");

    assert!(flushed > 50, "{flushed}");
    assert_eq!(failed, 0, "of 2,000, with {flushed} flushes");
    assert_eq!(budget.taken(&backend).await, 2_000);
}

#[tokio::test]
async fn a_script_that_was_flushed_costs_one_round_trip_more() {
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    let builder = RedisBackend::builder(&proxy.url()).patient();
    let backend = builder.connect().await.expect("a server");
    let budget = Budget::of("once more", lasting(100));
    until(|| decisions(&server, 2)).await;

    let round_trip = Duration::from_millis(500);
    proxy.fail_with(Fault::Delay(round_trip));
    assert!(server.command(&["SCRIPT", "FLUSH"]).starts_with("+OK"));
    let watch = Watch::start();
    budget.take(&backend, 1).await.expect("a decision");
    let waited = watch.elapsed();

    assert!(waited < round_trip * 3, "{waited:?}");
}

/// The charges may have been taken: no error may deny that.
#[tokio::test]
async fn an_answer_that_breaks_off_is_a_broken_connection_and_not_another_server() {
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    let builder = RedisBackend::builder(&proxy.url()).patient();
    let backend = builder.connect().await.expect("a server");
    let budget = Budget::of("half", lasting(100));
    recovered(&backend, &budget).await;

    proxy.fail_with(Fault::Truncate);
    let error = budget.take(&backend, 1).await.expect_err("half an answer");
    proxy.fail_with(Fault::None);

    assert_eq!(error.kind(), FailureKind::Unreachable, "{error}");
    recovered(&backend, &budget).await;
    assert_eq!(budget.taken(&backend).await, 1);
}

/// The old budget held the charge and let nothing through for it. So both together keep within the cost of one loss.
#[tokio::test]
async fn what_was_charged_before_a_loss_may_be_given_back_after_it() {
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    let builder = RedisBackend::builder(&proxy.url())
        .patient()
        .deadline(Duration::from_millis(300));
    let backend = builder.connect().await.expect("a server");
    let other = connect(&server).await;
    let quota = lasting(10).using(tollgate_core::Algorithm::SlidingWindow);
    let budget = Budget::of("loss", quota);
    recovered(&backend, &budget).await;

    // Charged at once, answered too late; in between the server loses everything.
    proxy.fail_with(Fault::Delay(Duration::from_millis(1_200)));
    let error = budget.take(&backend, 4).await.expect_err("too late");
    assert!(
        matches!(error.kind(), FailureKind::TimedOut { .. }),
        "{error}"
    );
    assert_eq!(budget.taken(&other).await, 4);
    assert!(server.command(&["FLUSHALL"]).starts_with("+OK"));
    budget.take(&other, 6).await.expect("a decision");
    assert_eq!(budget.taken(&other).await, 6);
    proxy.fail_with(Fault::None);

    let given_back = async {
        while budget.taken(&other).await > 2 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENT, given_back).await.expect("given back");
    assert_eq!(budget.taken(&other).await, 2);
}
