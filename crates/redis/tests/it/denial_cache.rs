//! Known denials on a real server: what is asked, and what is felt at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Budget, HOUR, Patience, connect, every_algorithm};
use tokio::time::{sleep, timeout};
use tollgate::{Cause, Event, Limiter, Policy};
use tollgate_core::{
    Algorithm, Backend, Ban, Call, Charge, Concurrent, Decision, Key, Mode, Once, Quota, Scope,
    Timestamp, Verdict,
};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

const DAY: Duration = Duration::from_secs(86_400);

/// The requests of a backend that its server has heard of.
fn asked(backend: &RedisBackend) -> u64 {
    backend.stats().requests
}

/// Takes all of a budget, and one more, which is denied by the server.
async fn exhaust(backend: &RedisBackend, budget: &Budget) -> Vec<Decision> {
    let mut decisions = Vec::new();
    loop {
        let decision = budget.take(backend, 1).await.unwrap();
        let is_admitted = decision.is_admitted();
        decisions.push(decision);
        if !is_admitted {
            return decisions;
        }
    }
}

/// Exhausts a budget until a denial of it is known. The machine may be too busy for a moment.
async fn until_known(backend: &RedisBackend, budget: &Budget) -> Vec<Decision> {
    let known = async {
        let mut decisions = exhaust(backend, budget).await;
        loop {
            let decision = budget.take(backend, 1).await.unwrap();
            assert!(!decision.is_admitted());
            let is_known = decision.is_known();
            decisions.push(decision);
            if is_known {
                return decisions;
            }
        }
    };
    timeout(crate::common::PATIENT, known)
        .await
        .expect("a state is remembered")
}

/// The server's own account of the calls of scripts.
fn calls(server: &Standalone) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

/// Asks for three seconds: eight callers at a time, some 10,000 requests a second by all processes together. Returns the requests,
/// the admitted ones, and the seconds.
async fn ask_far_above(backends: &[RedisBackend], pause: Duration) -> (u64, u64, u64) {
    const CALLERS: usize = 8;
    let started = Instant::now();
    let ends = started + Duration::from_secs(3);
    let mut asking = tokio::task::JoinSet::new();
    for backend in backends.iter().flat_map(|backend| vec![backend; CALLERS]) {
        let backend = backend.clone();
        asking.spawn(async move {
            let budget = Budget::of("hot", Quota::per_second(10));
            let (mut all, mut admitted) = (0, 0);
            while Instant::now() < ends {
                all += 1;
                admitted += u64::from(budget.take(&backend, 1).await.unwrap().is_admitted());
                sleep(pause).await;
            }
            (all, admitted)
        });
    }
    let counts = asking.join_all().await;
    let all = counts.iter().map(|(all, _)| all).sum();
    let admitted = counts.iter().map(|(_, admitted)| admitted).sum();
    (all, admitted, started.elapsed().as_secs() + 1)
}

/// The runtime has one thread, as it has for each caller when all of its threads have callers that ask again at once.
#[tokio::test]
async fn a_caller_that_asks_again_at_once_lets_other_tasks_run() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("hot", Quota::new(1, DAY));
    let turns = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&turns);
    tokio::spawn(async move {
        loop {
            counter.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    until_known(&backend, &budget).await;
    let (mut known_in_a_row, mut turns_before) = (0, turns.load(Ordering::Relaxed));

    // A stretch that a question ends shows nothing: a question lets others run anyway.
    while known_in_a_row < 127 {
        let decision = budget.take(&backend, 1).await.unwrap();
        known_in_a_row += 1;
        if !decision.is_known() {
            (known_in_a_row, turns_before) = (0, turns.load(Ordering::Relaxed));
        }
    }

    assert!(turns.load(Ordering::Relaxed) > turns_before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_far_above_its_limit_reaches_the_server_a_few_times_for_each_unit_that_comes_back() {
    const PROCESSES: usize = 4;
    // Each connection asks for its rights first, and may find no script.
    const OF_CONNECTIONS: u64 = 4 * 2 * 3;
    let [server, other] = [(); 2].map(|()| Standalone::start());
    let (mut knowing, mut asking) = (Vec::new(), Vec::new());
    for _ in 0..PROCESSES {
        let builder = RedisBackend::builder(&server.url());
        knowing.push(builder.patient().connect().await.unwrap());
        let builder = RedisBackend::builder(&other.url()).ask_every_denial();
        asking.push(builder.patient().connect().await.unwrap());
    }
    let before = calls(&server);

    let (all, admitted, seconds) = ask_far_above(&knowing, Duration::from_millis(2)).await;

    let reached: u64 = knowing.iter().map(asked).sum();
    let known = knowing.iter().map(|backend| backend.stats().known_denials);
    assert_eq!(reached + known.sum::<u64>(), all);
    // By the server's own account.
    let called = calls(&server) - before;
    assert!(
        called <= reached + OF_CONNECTIONS,
        "{called} calls, {reached} requests"
    );
    // Each process asks once in each life, and for each unit, which one of them takes; and again if it was a little early.
    let most = PROCESSES as u64 * seconds * (10 + 2 * 10);
    assert!(reached <= most, "{reached} of {all}, at most {most}");

    let (_all, of_all, longer) = ask_far_above(&asking, Duration::from_millis(20)).await;
    let rate = |admitted: u64, seconds: u64| admitted.div_ceil(seconds);
    let apart = rate(admitted, seconds).abs_diff(rate(of_all, longer));
    assert!(apart <= PROCESSES as u64, "{admitted} and {of_all}");
}

/// Each window begins with ten units that pass, whichever request asks first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_waited_for_an_answer_with_room_are_admitted_as_well() {
    const WINDOW_MS: u64 = 200;
    let server = Standalone::start();
    let backend = connect(&server).await;
    let window = Algorithm::FixedWindow {
        offset: Duration::ZERO,
    };
    let quota = Quota::new(10, Duration::from_millis(WINDOW_MS)).using(window);
    let budget = Budget::of("window", quota);
    let rounds = async {
        let mut rounds = 0;
        while rounds < 5 {
            let denied = until_known(&backend, &budget).await;
            sleep(denied.last().unwrap().retry_after().unwrap()).await;
            let mut asking = tokio::task::JoinSet::new();
            for _ in 0..20 {
                let backend = backend.clone();
                asking.spawn(async move {
                    let budget = Budget::of("window", quota);
                    budget.take(&backend, 1).await.unwrap()
                });
            }
            let decisions = asking.join_all().await;
            let window = |at: Timestamp| at.as_micros() / (WINDOW_MS * 1_000);
            let first = window(decisions[0].at());
            // A window that the machine sleeps through shows nothing.
            if decisions
                .iter()
                .any(|decision| window(decision.at()) != first)
            {
                continue;
            }
            let admitted = decisions.iter().filter(|decision| decision.is_admitted());
            assert_eq!(admitted.count(), 10);
            rounds += 1;
        }
    };
    timeout(crate::common::PATIENT, rounds)
        .await
        .expect("full windows");
}

/// A request whose answer is not waited for, or that fails, keeps none of the others for longer than its deadline.
#[tokio::test]
async fn no_request_depends_on_the_polling_of_the_one_that_asks() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("api", Quota::per_day(1));
    until_known(&backend, &budget).await;
    sleep(Duration::from_millis(150)).await;

    let before = asked(&backend);
    let asks = budget.take(&backend, 1);
    let mut asks = std::pin::pin!(asks);
    let waker = std::task::Waker::noop();
    let polled = asks
        .as_mut()
        .poll(&mut std::task::Context::from_waker(waker));
    assert!(polled.is_pending());
    // The deadline is longer.
    let others = timeout(crate::common::PATIENT / 2, budget.take(&backend, 1));
    let denied = others.await.expect("the call goes on by itself").unwrap();
    assert!(!denied.is_admitted() && asked(&backend) > before);
    assert!(!asks.await.unwrap().is_known());
}

#[tokio::test]
async fn every_algorithm_is_denied_without_the_server_and_another_cost_is_judged_anew() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    for (number, quota) in every_algorithm(10, HOUR * 24 * 300).into_iter().enumerate() {
        let budget = Budget::of(&format!("p{number}"), quota);
        assert!(budget.take(&backend, 6).await.unwrap().is_admitted());
        let deny = async {
            loop {
                let denied = budget.take(&backend, 10).await.unwrap();
                assert!(!denied.is_admitted(), "{quota}");
                if denied.is_known() {
                    return denied;
                }
            }
        };
        let denied = timeout(crate::common::PATIENT, deny)
            .await
            .expect("it is known");
        assert_eq!(denied.verdicts()[0].remaining(), 4, "{quota}");

        let (before, taken) = (asked(&backend), budget.take(&backend, 4).await.unwrap());

        assert!(taken.is_admitted() && !taken.is_known(), "{quota}");
        assert_eq!(asked(&backend), before + 1);
    }
}

#[tokio::test]
async fn the_time_until_a_retry_is_the_servers_counted_down_and_a_promise() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("api", Quota::new(1, Duration::from_millis(400)));
    let started = Instant::now();
    let decisions = exhaust(&backend, &budget).await;
    let told = decisions.last().unwrap().retry_after().unwrap();
    let at = decisions.last().unwrap().at();

    let passes = async {
        loop {
            let decision = budget.take(&backend, 1).await.unwrap();
            if decision.is_admitted() {
                return decision.at();
            }
            if decision.is_known() {
                // One time, whether the server or the process tells it.
                let passes_at =
                    |at: Timestamp, wait: Duration| Duration::from_micros(at.as_micros()) + wait;
                let counted = decision.retry_after().unwrap();
                assert_eq!(passes_at(decision.at(), counted), passes_at(at, told));
                sleep(counted).await;
            }
        }
    };
    let admitted_at = timeout(crate::common::PATIENT, passes)
        .await
        .expect("it passes");

    assert!(started.elapsed() >= told, "{told:?}");
    let waited = Duration::from_micros(admitted_at.as_micros() - at.as_micros());
    assert!(waited >= told, "{waited:?}");
    assert!(backend.stats().known_denials > 0);
}

#[tokio::test]
async fn what_the_process_gives_back_resets_or_replaces_is_felt_at_once() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    for round in 0..20 {
        let budget = Budget::of(&format!("p{round}"), Quota::per_day(2));
        let charge = [budget.charge(1)];
        let receipt = || async {
            let decisions = until_known(&backend, &budget).await;
            let receipt = decisions[0].receipts(&charge).next();
            receipt.unwrap()
        };

        let credited = receipt().await;
        backend.refund(credited, 1);
        assert!(
            budget.take(&backend, 1).await.unwrap().is_admitted(),
            "a credit"
        );

        until_known(&backend, &budget).await;
        backend
            .admin()
            .reset(budget.scope, &budget.key)
            .await
            .unwrap();
        let after = exhaust(&backend, &budget).await;
        assert_eq!(after.len(), 3, "a reset");

        until_known(&backend, &budget).await;
        let larger = Quota::per_day(2).burst(4);
        let charge = Charge {
            quota: &larger,
            ..budget.charge(1)
        };
        assert!(
            backend
                .decide(Call::of(&[charge]))
                .await
                .unwrap()
                .is_admitted(),
            "another quota"
        );
    }
}

/// The wait grows by what was debited.
#[tokio::test]
async fn a_debit_is_felt_at_once() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("api", Quota::per_hour(2));
    let decisions = until_known(&backend, &budget).await;
    let before = decisions.last().unwrap().retry_after().unwrap();
    let receipt = decisions[0].receipts(&[budget.charge(1)]).next().unwrap();

    backend.debit(&receipt, 2);

    let denied = budget.take(&backend, 1).await.unwrap();
    assert!(!denied.is_known());
    assert!(denied.retry_after().unwrap() > before + HOUR / 2);
}

/// A caller that has gone away gives back, whether its answer came or not.
#[tokio::test]
async fn a_decision_that_no_caller_waits_for_denies_no_other() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    for round in 0..30 {
        let budget = Budget::of(&format!("p{round}"), Quota::per_day(1));
        let lost_before = backend.stats().lost_give_backs;
        let mut gone = Box::pin(budget.take(&backend, 1));
        let waker = std::task::Waker::noop();
        let polled = gone
            .as_mut()
            .poll(&mut std::task::Context::from_waker(waker));
        assert!(polled.is_pending());
        // Its answer comes while it is not polled, or after it has gone.
        sleep(Duration::from_millis(round % 3)).await;
        drop(gone);
        let others = async {
            while !budget.take(&backend, 1).await.unwrap().is_admitted() {
                if backend.stats().lost_give_backs > lost_before {
                    break;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(crate::common::PATIENT, others)
            .await
            .expect("it passes");
    }
}

#[tokio::test]
async fn what_another_process_does_is_felt_when_the_life_of_a_known_denial_is_over() {
    let server = Standalone::start();
    let (backend, other) = (connect(&server).await, connect(&server).await);
    let budget = Budget::of("api", Quota::per_day(1));
    until_known(&backend, &budget).await;

    other
        .admin()
        .reset(budget.scope, &budget.key)
        .await
        .unwrap();
    let reset_at = Instant::now();

    loop {
        let before = reset_at.elapsed();
        let decision = budget.take(&backend, 1).await.unwrap();
        if decision.is_admitted() {
            break;
        }
        // A later question is answered by the server.
        assert!(
            decision.is_known() && before < Duration::from_millis(100),
            "{before:?}"
        );
    }
}

#[tokio::test]
async fn a_ban_is_known_its_strikes_are_not_and_lifting_it_is_felt_at_once() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let (budget, key) = (Quota::per_day(1), Key::from("alice"));
    let ban = Quota::from(Ban::after(3, DAY).lasting(DAY));
    let charge = |slot, quota, cost| Charge {
        scope: Scope::of("login", slot, quota),
        quota,
        key: &key,
        cost,
        mode: Mode::Enforce,
    };
    let charges = [charge(0, &budget, 1), charge(1, &ban, 0)];
    // An admission, and three strikes. Each is asked for.
    for n in 1..=4 {
        let decision = backend.decide(Call::of(&charges)).await.unwrap();
        assert!(!decision.is_known());
        assert_eq!((decision.is_admitted(), asked(&backend)), (n == 1, n));
    }
    let known = async {
        loop {
            let decision = backend.decide(Call::of(&charges)).await.unwrap();
            if decision.is_known() {
                return decision;
            }
        }
    };
    let denied = timeout(crate::common::PATIENT, known)
        .await
        .expect("the ban is known");
    assert!(denied.verdicts().iter().all(Verdict::is_denied));
    assert!(denied.retry_after().unwrap() > DAY - HOUR);

    backend.admin().reset(charges[1].scope, &key).await.unwrap();
    let free = backend.decide(Call::of(&charges)).await.unwrap();
    // It is denied by its budget alone, and that is a strike.
    let is_denied: Vec<_> = { free.verdicts() }.iter().map(Verdict::is_denied).collect();
    assert_eq!((free.is_known(), is_denied), (false, vec![true, false]));
}

#[tokio::test]
async fn trials_questions_ids_and_places_are_asked_for_and_everything_is_if_one_asks_for_that() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("api", Quota::per_day(1));
    until_known(&backend, &budget).await;
    let with = |mode| Charge {
        mode,
        ..budget.charge(1)
    };
    let (once, place) = (
        Quota::from(Once::default()),
        Quota::from(Concurrent::at_most(1)),
    );
    let beside = |quota| Charge {
        scope: Scope::of("api", 1, quota),
        quota,
        ..budget.charge(1)
    };
    for charges in [
        vec![with(Mode::Shadow)],
        vec![with(Mode::Probe)],
        vec![budget.charge(0)],
        vec![budget.charge(1), beside(&once)],
        vec![budget.charge(1), beside(&place)],
    ] {
        for _ in 0..3 {
            let before = asked(&backend);
            let decision = backend.decide(Call::of(&charges)).await.unwrap();
            assert_eq!(
                (decision.is_known(), asked(&backend)),
                (false, before + 1),
                "{charges:?}"
            );
        }
    }

    let builder = RedisBackend::builder(&server.url()).ask_every_denial();
    let asking = builder.patient().connect().await.unwrap();
    for n in 1..=20 {
        let decision = budget.take(&asking, 1).await.unwrap();
        assert_eq!((decision.is_known(), asked(&asking)), (false, n));
    }
    assert_eq!(asking.stats().known_denials, 0);
}

/// An observer hears of it as of a denial, and why; the metrics' word is that of any denial.
#[tokio::test]
async fn an_observer_hears_of_a_known_denial_with_its_own_cause() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let limiter = Limiter::builder()
        .policy(Policy::new("api", [Quota::per_day(1), Quota::per_hour(1)]))
        .backend(backend.clone())
        .observe(move |event: &Event<'_>| {
            if let Some(result) = event.result() {
                ear.lock().unwrap().push((event.cause(), result));
            }
        })
        .build()
        .unwrap();

    let known = async {
        while backend.stats().known_denials == 0 {
            let _decided = limiter.check("api", "alice").await;
        }
    };
    timeout(crate::common::PATIENT, known)
        .await
        .expect("a denial is known");

    let heard = heard.lock().unwrap();
    assert_eq!(heard.first(), Some(&(Cause::Backend, "allowed")));
    assert_eq!(heard.get(1), Some(&(Cause::Backend, "denied")));
    assert_eq!(heard.last(), Some(&(Cause::Known, "denied")));
}
