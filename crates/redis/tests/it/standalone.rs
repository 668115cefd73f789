//! The backend on a real server.

use std::future::poll_fn;
use std::net::IpAddr;
use std::task::Poll;
use std::time::Duration;

use crate::common::{Budget, HOUR, PATIENT, Patience, connect, every_algorithm, hammer};
use tokio::time::{sleep, timeout};
use tollgate_core::{Algorithm, Backend, Call, Charge, FailureKind, Key, Mode, Quota, Timestamp};
use tollgate_redis::{RedisBackend, StateName};
use tollgate_testkit::Standalone;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_many_who_share_a_budget_admit_exactly_what_it_holds() {
    let server = Standalone::start();
    // Nothing drains meanwhile.
    let quotas = every_algorithm(500, HOUR * 24 * 300);
    for (number, quota) in quotas.into_iter().enumerate() {
        let mut backends = Vec::new();
        for _ in 0..4 {
            backends.push(connect(&server).await);
        }
        let budget = || vec![Budget::of(&format!("shared-{number}"), quota)];
        assert_eq!(hammer(backends, budget, 300).await, 500, "{quota}");
    }
}

#[tokio::test]
async fn who_is_dropped_while_waiting_takes_nothing() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("dropped", Quota::per_hour(1_000));
    let other = Budget::of("kept", Quota::per_hour(1_000));

    let mut kept = Vec::new();
    for n in 0..400 {
        let call = backend.decide(Call::of(&[budget.charge(1), other.charge(1)]));
        if n % 2 == 0 {
            drop(call);
            kept.push(backend.decide(Call::of(&[other.charge(1)])));
        } else {
            kept.push(call);
        }
    }
    for call in kept {
        assert!(call.await.unwrap().is_admitted());
    }

    let settled = async {
        loop {
            let left = (
                budget.remaining(&backend).await,
                other.remaining(&backend).await,
            );
            if left == (800, 600) {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENT, settled)
        .await
        .expect("exactly what was answered is taken");
}

#[tokio::test]
async fn pitfall_foreign_values_fail_their_own_requests_and_are_left_as_they_are() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let good = Budget::of("good", Quota::per_hour(10));
    let foreign: [&[&str]; 4] = [
        &["SET", "KEY", "foreign"],
        &["SET", "KEY", ""],
        &["SET", "KEY", "123456789"],
        &["LPUSH", "KEY", "a", "b"],
    ];
    for (n, quota) in every_algorithm(10, HOUR).into_iter().enumerate() {
        for (m, words) in foreign.iter().enumerate() {
            let policy = format!("bad-{n}-{m}");
            let bad = Budget::of(&policy, quota);
            bad.take(&backend, 1).await.unwrap();
            let keys = server.command(&["KEYS", &format!("*:{policy}:*")]);
            let name = keys.lines().last().unwrap();
            let _deleted = server.command(&["DEL", name]);
            let words: Vec<_> = (words.iter())
                .map(|&word| if word == "KEY" { name } else { word })
                .collect();
            let _set = server.command(&words);
            let before = server.command(&["DUMP", name]);
            assert!(before.len() > 10 && !before.starts_with("ERR"), "{before}");

            // In a call of its own, in one with others, and in one request with another charge.
            let alone = bad.take(&backend, 1).await;
            let calls = [
                backend.decide(Call::of(&[good.charge(0)])),
                backend.decide(Call::of(&[bad.charge(1)])),
                backend.decide(Call::of(&[good.charge(0)])),
                backend.decide(Call::of(&[good.charge(1), bad.charge(1)])),
                backend.decide(Call::of(&[good.charge(0)])),
            ];
            let [first, second, third, fourth, fifth] = calls;
            let said = [first.await, third.await, fifth.await];

            for error in [alone, second.await, fourth.await].map(Result::unwrap_err) {
                assert_eq!(error.kind(), FailureKind::ForeignState, "{error}");
            }
            for decision in said {
                assert_eq!(decision.unwrap().verdicts()[0].remaining(), 10);
            }
            assert_eq!(server.command(&["DUMP", name]), before);
        }
    }
}

/// It is reported as a foreign value, and does not travel.
#[tokio::test]
async fn pitfall_a_large_foreign_value_costs_nobody_else_a_decision_and_no_bytes() {
    const ROUNDS: u64 = 20;
    let server = Standalone::start();
    for (n, quota) in every_algorithm(1_000, HOUR).into_iter().enumerate() {
        // given five megabytes in the place of a state, the first byte of which is that of a state
        let backend = connect(&server).await;
        let policy = format!("large-{n}");
        let bad = Budget::of(&policy, quota);
        bad.take(&backend, 1).await.unwrap();
        let keys = server.command(&["KEYS", &format!("*:{policy}:*")]);
        let name = keys.lines().last().unwrap();
        let _grown = server.command(&["SETRANGE", name, "5000000", "x"]);
        let before = (backend.stats().bytes_in, server.command(&["STRLEN", name]));

        // when requests ask for it by itself and together with others
        let good = Budget::of(&format!("small-{n}"), Quota::per_hour(1_000));
        for _ in 0..ROUNDS {
            let alone = bad.take(&backend, 1).await;
            assert_eq!(alone.unwrap_err().kind(), FailureKind::ForeignState);
            let calls = [
                backend.decide(Call::of(&[good.charge(1)])),
                backend.decide(Call::of(&[bad.charge(1)])),
                backend.decide(Call::of(&[good.charge(1)])),
            ];
            let [first, second, third] = calls;
            assert!(first.await.unwrap().is_admitted());
            assert_eq!(second.await.unwrap_err().kind(), FailureKind::ForeignState);
            assert!(third.await.unwrap().is_admitted());
        }

        // then it is unchanged, and each decision has brought a few dozen bytes
        let came = backend.stats().bytes_in - before.0;
        assert!(came < ROUNDS * 4 * 100, "{quota}: {came} bytes");
        assert_eq!(server.command(&["STRLEN", name]), before.1);
    }
}

#[tokio::test]
async fn pitfall_every_state_is_there_while_it_means_something_and_gone_soon_after() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let period = Duration::from_millis(400);
    let quotas = every_algorithm(4, period);
    for (n, quota) in quotas.into_iter().enumerate() {
        // Repeats until four charges and a look at the rest fall into one window, and into a quarter of a period.
        for round in 0.. {
            let budget = Budget::of(&format!("ends-{n}-{round}"), quota);
            let first = budget.take(&backend, 1).await.unwrap().at();
            for _ in 0..3 {
                budget.take(&backend, 1).await.unwrap();
            }
            let last = budget.take(&backend, 0).await.unwrap();
            let [first, looked] = [first, last.at()].map(Timestamp::as_micros);
            let period = u64::try_from(period.as_micros()).unwrap();
            if first / period == looked / period && looked - first < period / 4 {
                let left = last.verdicts()[0].remaining();
                assert!(left <= 1, "{quota}: {left}");
                break;
            }
        }
    }
    // Windows that fade have a meaning for two periods, and for one more to a clock that is behind; the longest cell is one
    // period.
    sleep(period * 4).await;
    assert_eq!(server.command(&["DBSIZE"]), ":0\r\n");
}

/// 1,000 invented keys under a limit per year would otherwise stay for a year.
#[tokio::test]
async fn what_takes_nothing_writes_no_key() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let year = HOUR * 24 * 365;
    let others = ["10/year in UTC", "10/hour warm up 1h"].map(|text| text.parse().unwrap());
    for quota in every_algorithm(10, year).into_iter().chain(others) {
        let spent = Budget::of("spent", Quota::per_day(1));
        backend.decide(Call::of(&[spent.charge(1)])).await.unwrap();
        for n in 0..20 {
            let budget = Budget {
                key: Key::from(&*format!("invented-{n}")),
                ..Budget::of("api", quota)
            };
            let in_mode = |mode, cost| Charge {
                mode,
                ..budget.charge(cost)
            };
            let calls = [
                vec![budget.charge(11)],
                vec![budget.charge(0)],
                vec![in_mode(Mode::Probe, 1)],
                vec![in_mode(Mode::Shadow, 11)],
                vec![spent.charge(1), budget.charge(1)],
            ];
            for charges in calls {
                backend.decide(Call::of(&charges)).await.unwrap();
            }
        }
        assert_eq!(server.command(&["DBSIZE"]).trim(), ":1", "{quota}");
        backend
            .admin()
            .reset(spent.scope, &spent.key)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn pitfall_no_state_lives_for_ever() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let quotas = every_algorithm(30, HOUR);
    for (n, quota) in quotas.iter().enumerate() {
        let budget = Budget::of(&format!("mortal-{n}"), *quota);
        for cost in [1, 2, 3, 0, 40] {
            let charge = [budget.charge(cost)];
            let decision = backend.decide(Call::of(&charge)).await.unwrap();
            for receipt in decision.receipts(&charge) {
                backend.debit(&receipt, 7);
                if cost % 2 == 0 {
                    backend.refund(receipt, 1);
                }
            }
        }
    }
    let keys = server.command(&["KEYS", "*"]);
    let names: Vec<_> = (keys.lines())
        .filter(|line| line.starts_with("tollgate"))
        .collect();
    assert_eq!(names.len(), quotas.len());
    for name in names {
        let ttl = server.command(&["PTTL", name]);
        let ttl: i64 = ttl.trim_start_matches(':').trim().parse().unwrap();
        // A debt of eight budgets, and a drain.
        assert!(ttl > 0 && ttl < 9 * 3_600_000, "{name} {ttl}");
    }
}

#[tokio::test]
async fn an_operator_who_scans_a_server_reads_whose_budgets_there_are() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let keys = [
        (Key::from("alice"), "=alice"),
        (Key::from(IpAddr::from([10, 1, 2, 3])), "10.1.2.3"),
        (Key::from("10.1.2.3"), "=10.1.2.3"),
        (
            Key::from(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 7])),
            "2001:db8::/64",
        ),
        (Key::bytes(b"\xff{\r\n"), "=%ff%7b%0d%0a"),
        (Key::global(), "all"),
    ];
    for (key, _) in &keys {
        let budget = Budget {
            key: key.clone(),
            ..Budget::of("scanned", Quota::per_hour(10))
        };
        assert!(budget.take(&backend, 1).await.unwrap().is_admitted());
    }

    let answer = server.command(&["SCAN", "0", "MATCH", "tollgate:*", "COUNT", "1000"]);

    let names: Vec<_> = (answer.lines())
        .filter(|line| line.starts_with("tollgate:"))
        .collect();
    assert_eq!(names.len(), keys.len(), "{answer}");
    for (key, identity) in &keys {
        let name = format!("tollgate:scanned:0/g:{identity}");
        assert!(names.contains(&&*name), "{name}: {answer}");
        let read = StateName::read(&name).unwrap();
        assert_eq!((read.policy(), read.key()), ("scanned", Some(key)));
        // The names that a pattern finds can be read back.
        let found = server.command(&["KEYS", &name]);
        assert!(found.starts_with("*1\r\n"), "{found}");
    }
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused_by_name() {
    let builder = || RedisBackend::builder("redis://:s3cret@localhost/");
    let cases = [
        (RedisBackend::builder("nonsense s3cret"), "url"),
        (builder().prefix("a{b"), "prefix"),
        (builder().prefix(""), "prefix"),
        (builder().deadline(Duration::ZERO), "deadline"),
        (
            builder().connect_deadline(Duration::ZERO),
            "connect_deadline",
        ),
        (builder().connections(0), "connections"),
        (builder().max_waiting(0), "max_waiting"),
        (builder().client_name("my shop"), "client_name"),
        (RedisBackend::cluster(Vec::<String>::new()), "urls"),
        (
            RedisBackend::sentinel("budgets", Vec::<String>::new()),
            "urls",
        ),
        (
            RedisBackend::cluster(["redis://:s3cret@localhost/"]).partitions(0),
            "partitions",
        ),
        (
            RedisBackend::cluster(["redis://:s3cret@localhost/2"]),
            "database",
        ),
    ];
    for (builder, field) in cases {
        assert!(!format!("{builder:?}").contains("s3cret"));
        let error = builder.start().unwrap_err().to_string();
        assert!(
            error.contains(field) && !error.contains("s3cret"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn the_backend_counts_what_the_server_counts() {
    let server = Standalone::start();
    let builder = RedisBackend::builder(&server.url())
        .patient()
        .connections(1);
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("counted", Quota::per_hour(1_000));
    let received = || {
        let info = server.command(&["INFO", "stats"]);
        let mut lines = info.lines();
        let count = lines.find_map(|line| line.strip_prefix("total_net_input_bytes:"));
        count.unwrap().parse::<u64>().unwrap()
    };
    let question = "*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n".len() as u64;
    // The server has the script then.
    budget.take(&backend, 1).await.unwrap();
    let (before, first) = (received(), backend.stats());

    for n in 1..=70 {
        budget.take(&backend, n % 3).await.unwrap();
    }

    let stats = backend.stats();
    let made = (stats.calls - first.calls, stats.requests - first.requests);
    assert_eq!(made, (70, 70));
    let sent = stats.bytes_out - first.bytes_out;
    assert_eq!(sent, received() - before - question);
    assert!(stats.bytes_in - first.bytes_in > 70 * 25, "{stats:?}");
}

#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
async fn connect_once(server: &Standalone) -> RedisBackend {
    let builder = RedisBackend::builder(&server.url()).connections(1);
    builder.patient().connect().await.unwrap()
}

#[tokio::test]
async fn a_request_that_nobody_polls_keeps_nobody_waiting() {
    let server = Standalone::start();
    let backend = connect_once(&server).await;
    let budget = Budget::of("unpolled", Quota::per_hour(100));

    let never_polled = backend.decide(Call::of(&[budget.charge(1)]));
    assert_eq!(budget.remaining(&backend).await, 99);

    let mut polled_once = Box::pin(backend.decide(Call::of(&[budget.charge(1)])));
    let once = poll_fn(|cx| Poll::Ready(polled_once.as_mut().poll(cx)));
    assert!(once.await.is_pending());
    assert_eq!(budget.remaining(&backend).await, 98);

    assert!(never_polled.await.unwrap().is_admitted());
    assert!(polled_once.await.unwrap().is_admitted());
    assert_eq!(budget.remaining(&backend).await, 98);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_request_that_is_dropped_at_any_time_takes_nothing() {
    let server = Standalone::start();
    let backend = connect_once(&server).await;
    // A window gives back all of the charge, where GCRA may err on the strict side.
    let quota = Quota::new(10_000, HOUR * 24 * 300);
    let window = quota.using(Algorithm::FixedWindow {
        offset: Duration::ZERO,
    });
    let budget = Budget::of("dropped-alone", window);

    let mut answered = 0;
    for n in 0..600 {
        let call = backend.decide(Call::of(&[budget.charge(1)]));
        let other = (n % 3 == 0).then(|| backend.decide(Call::of(&[budget.charge(0)])));
        if n % 5 > 0 && timeout(Duration::from_micros(n), call).await.is_ok() {
            answered += 1;
        }
        // Some are answered on a slow machine, too.
        if n % 50 == 0 {
            backend.decide(Call::of(&[budget.charge(1)])).await.unwrap();
            answered += 1;
        }
        if let Some(other) = other {
            other.await.unwrap();
        }
    }
    // Each fifth is never polled.
    assert!((12..600).contains(&answered), "{answered}");

    let settled = async {
        while budget.remaining(&backend).await != 10_000 - answered {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), settled)
        .await
        .expect("exactly what was answered is taken");
}

#[tokio::test]
async fn a_request_that_is_polled_too_late_is_not_sent() {
    let server = Standalone::start();
    let builder = RedisBackend::builder(&server.url()).connections(1);
    let deadline = Duration::from_millis(50);
    let builder = builder.connect_deadline(PATIENT);
    let backend = builder.deadline(deadline).connect().await.unwrap();
    let budget = Budget::of("late", Quota::per_hour(100));

    let call = backend.decide(Call::of(&[budget.charge(1)]));
    sleep(deadline).await;

    let kind = call.await.unwrap_err().kind();
    assert!(matches!(kind, FailureKind::TimedOut { .. }), "{kind:?}");
    let patient = connect(&server).await;
    assert_eq!(budget.remaining(&patient).await, 100);
}
