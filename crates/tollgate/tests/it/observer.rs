//! One point hears of every decision, however it came about.

#![cfg(feature = "axum")]

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::{Body, Strict, Waiting, at_a_standstill, from};
use axum::Router;
use axum::routing::get;
use http::{Method, Request, StatusCode};
use tollgate::key::{Global, Header};
use tollgate::{
    Ban, Block, Cause, Event, FailureKind, Key, Limiter, LimiterBuilder, ManualClock,
    MemoryBackend, MethodRouterExt, OnFailure, OnMissing, Policy, Quota, Quotas, RateLimitLayer,
    Share, Tiers, Verdict,
};
use tollgate_testkit::Log;
use tower::{Layer, ServiceExt};

/// The event of one quota or policy: its name, how it came about, and whether it was denied if it was asked.
type Heard = (String, Cause, Option<bool>);

#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<Heard>>>);

impl Ear {
    fn listening(&self) -> LimiterBuilder {
        let heard = Arc::clone(&self.0);
        Limiter::builder().observe(move |event: &Event<'_>| {
            let name = event.quota().unwrap_or(event.policy()).to_owned();
            let denied = event.verdict().map(Verdict::is_denied);
            heard.lock().unwrap().push((name, event.cause(), denied));
        })
    }

    fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn heard(name: &str, cause: Cause, denied: Option<bool>) -> Heard {
    (name.to_owned(), cause, denied)
}

async fn send(limiter: &Limiter, request: Request<Body>) -> StatusCode {
    let service = RateLimitLayer::new(limiter).layer(Strict::default());
    service.oneshot(request).await.unwrap().status()
}

/// One case for each of the four ways in which a limiter looks for the policies of a request.
#[tokio::test]
async fn each_way_to_find_the_policies_decides_alike_and_tells_the_same() {
    let api = || Policy::new("api", Quota::per_hour(2));
    let wide = || Policy::new("wide", Quota::per_day(1_000)).on_demand();
    let ways = [
        ("by peer", vec![api()]),
        ("sole", vec![api().when(|_| true)]),
        ("by path", vec![api().route("/{*rest}").route("/")]),
        ("each", vec![api().exempt_preflights(), wide()]),
    ];
    for (way, policies) in ways {
        let ear = Ear::default();
        let limiter = ear.listening().policies(policies);
        let limiter = limiter.backend(at_a_standstill().0).build().unwrap();
        let service = RateLimitLayer::new(&limiter).layer(Strict::default());
        let mut answers = Vec::new();
        for caller in ["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"] {
            let answer = service.clone().oneshot(from(caller)).await.unwrap();
            let field = |name| answer.headers().get(name).cloned();
            let limit = ["ratelimit", "retry-after"].map(field);
            answers.push((
                answer.status().as_u16(),
                limit.map(|it| it.map(|it| it.to_str().unwrap().to_owned())),
            ));
        }
        let rest = |left: u32, s: u32| Some(format!("\"api\";r={left};t={s}"));
        let wait = Some("1800".to_owned());
        let expected = [
            (200, [rest(1, 1_800), None]),
            (200, [rest(0, 3_600), None]),
            (429, [rest(0, 1_800), wait]),
            (200, [rest(1, 1_800), None]),
        ];
        assert_eq!(answers, expected, "{way}");
        let told =
            [false, false, true, false].map(|denied| heard("api", Cause::Backend, Some(denied)));
        assert_eq!(ear.take(), told, "{way}");
    }
}

#[tokio::test]
async fn orders_of_operators_are_no_decisions_and_what_they_refuse_is_heard_of() {
    // given a policy under which responses are strikes
    let ear = Ear::default();
    let minute = Duration::from_secs(60);
    let login = Policy::new("login", Quota::per_hour(9)).key(Global);
    let login = login.ban(Ban::after(1, minute)).strike_if(|_| true);
    let limiter = ear.listening().policy(login).backend(at_a_standstill().0);
    let limiter = limiter.build().unwrap();
    let all = Key::global;

    // when an operator bans, asks, and bans again after an end of it
    limiter.ban("login", all(), minute).await.unwrap();
    limiter.unban("login", all()).await.unwrap();
    limiter.reset("login", all()).await.unwrap();
    limiter.ban("login", all(), minute).await.unwrap();
    assert_eq!(limiter.banned("login", all()).await.unwrap(), Some(minute));
    assert_eq!(limiter.bans("login").await.unwrap().callers().len(), 1);

    // then nothing is heard, until a request is refused
    assert_eq!(ear.take(), []);
    assert_eq!(send(&limiter, from("10.0.0.1")).await, 429);
    let refused = ear.take();
    assert!(
        refused
            .iter()
            .any(|(_, cause, denied)| *cause == Cause::Backend && *denied == Some(true)),
        "{refused:?}"
    );

    // nor is the strike of a response
    limiter.unban("login", all()).await.unwrap();
    assert_eq!(send(&limiter, from("10.0.0.1")).await, 200);
    assert!(
        ear.take()
            .iter()
            .all(|(_, _, denied)| *denied == Some(false))
    );
    assert_eq!(limiter.banned("login", all()).await.unwrap(), Some(minute));
}

#[tokio::test]
async fn each_quota_that_took_part_is_heard_of_and_a_trial_also_when_another_policy_refuses() {
    let ear = Ear::default();
    let limiter = ear
        .listening()
        .policy(Policy::new("api", [("second", "9/s"), ("hour", "1/h")]))
        .policy(Policy::new("trial", Quota::per_hour(5)).shadow())
        .backend(at_a_standstill().0)
        .build()
        .unwrap();

    for denied in [false, true] {
        send(&limiter, from("10.0.0.1")).await;
        assert_eq!(
            ear.take(),
            [
                heard("api-second", Cause::Backend, Some(false)),
                heard("api-hour", Cause::Backend, Some(denied)),
                heard("trial", Cause::Backend, Some(false)),
            ]
        );
    }
}

#[tokio::test]
async fn a_check_is_heard_of_as_a_request_is() {
    let ear = Ear::default();
    let policy = Policy::new("mail", Quota::per_hour(1)).key(Global);
    let limiter = ear.listening().policy(policy).build().unwrap();

    limiter.check("mail", Key::global()).await.unwrap();
    limiter.check("mail", Key::global()).await.unwrap();

    let denied = ear
        .take()
        .into_iter()
        .map(|(_, cause, denied)| (cause, denied));
    let expected = [(Cause::Backend, Some(false)), (Cause::Backend, Some(true))];
    assert_eq!(denied.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_limit_at_a_route_is_heard_of_and_so_is_the_credit_of_the_layer_around_it() {
    let ear = Ear::default();
    let everything = Policy::new("all", Quota::per_hour(9)).key(Global);
    let limiter = ear.listening().policy(everything).build().unwrap();
    let app = Router::new()
        .route("/export", get(|| async {}).rate_limit("1/hour"))
        .layer(RateLimitLayer::new(limiter));
    let send = async || {
        let request = Request::get("/export").body(axum::body::Body::empty());
        let response = app.clone().oneshot(request.unwrap()).await.unwrap();
        response.status()
    };

    let decided = |denied| {
        [
            heard("all", Cause::Backend, Some(false)),
            heard("get/export", Cause::Backend, Some(denied)),
        ]
    };
    assert_eq!(send().await, 200);
    assert_eq!(ear.take(), decided(false));
    assert_eq!(send().await, 429);
    let mut with_credit = decided(true).to_vec();
    with_credit.push(heard("all", Cause::Settled, Some(false)));
    assert_eq!(ear.take(), with_credit);
}

#[tokio::test]
async fn what_no_quota_decides_is_heard_of_with_its_cause() {
    // given a policy of each kind, on a path of its own
    let ear = Ear::default();
    let policy = |name: &str| {
        Policy::new(name, Quota::per_hour(1))
            .route(&format!("/{name}"))
            .key(Header::new("x-caller"))
    };
    let tiers = Tiers::by_key([("bad", "closed"), ("good", "open")])
        .tier("closed", Quotas::none())
        .unlimited("open");
    let limiter = ear
        .listening()
        .policy(
            policy("exempt").exempt_keys(["alice"].into_iter().collect::<tollgate::key::KeyList>()),
        )
        .policy(policy("blocked").block_keys(
            ["alice"].into_iter().collect::<tollgate::key::KeyList>(),
            Block::Forbidden,
        ))
        .policy(policy("unidentified").on_missing(OnMissing::Deny))
        .policy(policy("tiers").tiers(tiers.clone()))
        .policy(
            policy("trial")
                .tiers(tiers)
                .on_missing(OnMissing::Deny)
                .shadow(),
        )
        .policy(policy("passed").on_missing(OnMissing::Pass))
        .policy(policy("preflights").exempt_preflights())
        .build()
        .unwrap();
    let request = |path: &str, caller: Option<&str>| {
        let mut request = from("10.0.0.1");
        *request.uri_mut() = path.parse().unwrap();
        if let Some(caller) = caller {
            request
                .headers_mut()
                .insert("x-caller", caller.parse().unwrap());
        }
        request
    };

    // then each is heard of once
    let cases = [
        (
            request("/exempt", Some("alice")),
            "exempt",
            Cause::Exempt,
            200,
        ),
        (
            request("/blocked", Some("alice")),
            "blocked",
            Cause::Blocked,
            403,
        ),
        (
            request("/unidentified", None),
            "unidentified",
            Cause::Unidentified,
            403,
        ),
        (
            request("/passed", None),
            "passed",
            Cause::PassedUnidentified,
            200,
        ),
        (request("/tiers", Some("bad")), "tiers", Cause::Blocked, 403),
        (request("/tiers", Some("good")), "tiers", Cause::Exempt, 200),
    ];
    for (request, name, cause, status) in cases {
        assert_eq!(send(&limiter, request).await.as_u16(), status, "{name}");
        assert_eq!(ear.take(), [heard(name, cause, None)]);
    }
    // and so is a policy on trial, which refuses nothing
    for (request, name, cause) in [
        (request("/trial", None), "trial", Cause::Unidentified),
        (request("/trial", Some("bad")), "trial", Cause::Blocked),
    ] {
        assert_eq!(send(&limiter, request).await, 200);
        assert_eq!(ear.take(), [heard(name, cause, None)]);
    }
    let mut preflight = request("/preflights", None);
    *preflight.method_mut() = Method::OPTIONS;
    preflight
        .headers_mut()
        .insert("origin", "https://a.example".parse().unwrap());
    let asks = "access-control-request-method";
    preflight.headers_mut().insert(asks, "GET".parse().unwrap());
    assert_eq!(send(&limiter, preflight).await, 200);
    assert_eq!(ear.take(), [heard("preflights", Cause::Exempt, None)]);
}

#[tokio::test]
async fn a_caller_whose_tier_nobody_knows_is_heard_of() {
    let ear = Ear::default();
    let fails = |_: Key| async { Err::<Option<&str>, _>("the database is down") };
    let tiers = Tiers::by_async(Duration::from_secs(60), fails)
        .tier("paying", Quota::per_hour(9))
        .on_unknown(tollgate::OnUnknown::Deny);
    let policy = Policy::new("api", Quota::per_hour(1)).key(Global);
    let limiter = ear.listening().policy(policy.tiers(tiers)).build().unwrap();

    assert_eq!(send(&limiter, from("10.0.0.1")).await, 503);
    assert_eq!(ear.take(), [heard("api", Cause::TierUnknown, None)]);
}

#[tokio::test]
async fn a_trial_that_would_refuse_an_unknown_tier_says_so_and_goes_on_by_its_own_quota() {
    let ear = Ear::default();
    let fails = |_: Key| async { Err::<Option<&str>, _>("the database is down") };
    let tiers = Tiers::by_async(Duration::from_secs(60), fails)
        .tier("paying", Quota::per_hour(9))
        .on_unknown(tollgate::OnUnknown::Deny);
    let policy = Policy::new("api", Quota::per_hour(1)).key(Global).shadow();
    let limiter = ear.listening().policy(policy.tiers(tiers)).build().unwrap();

    assert_eq!(send(&limiter, from("10.0.0.1")).await, 200);

    let heard = [
        heard("api", Cause::TierUnknown, None),
        heard("api", Cause::Backend, Some(false)),
    ];
    assert_eq!(ear.take(), heard);
}

#[tokio::test]
async fn what_is_decided_without_the_backend_is_heard_of_with_its_cause() {
    let cases = [
        (OnFailure::Allow, Cause::PassedUndecided, None, 200),
        (OnFailure::Deny, Cause::RefusedUndecided, None, 503),
        (
            OnFailure::Local(Share::WHOLE),
            Cause::Local,
            Some(false),
            200,
        ),
    ];
    for (rule, cause, denied, status) in cases {
        let ear = Ear::default();
        let backend = Waiting::new(MemoryBackend::new());
        backend.gate.add_permits(10);
        backend.fail_with(Some(FailureKind::Unreachable));
        let limiter = ear
            .listening()
            .policy(Policy::new("api", Quota::per_hour(1)).on_failure(rule))
            .backend(backend)
            .build()
            .unwrap();

        assert_eq!(send(&limiter, from("10.0.0.1")).await.as_u16(), status);
        assert_eq!(ear.take(), [heard("api", cause, denied)]);
    }
}

#[tokio::test]
async fn policies_without_a_say_beside_a_local_budget_are_heard_of_too() {
    let ear = Ear::default();
    let backend = Waiting::new(MemoryBackend::new());
    backend.gate.add_permits(10);
    backend.fail_with(Some(FailureKind::Unreachable));
    let policy = |name, rule| Policy::new(name, Quota::per_hour(1)).on_failure(rule);
    let local = OnFailure::Local(Share::WHOLE);
    let limiter = ear
        .listening()
        .policy(policy("open", OnFailure::Allow))
        .policy(policy("local", local))
        .policy(policy("trial", local).shadow())
        .backend(backend)
        .build()
        .unwrap();

    assert_eq!(send(&limiter, from("10.0.0.1")).await, 200);

    assert_eq!(
        ear.take(),
        [
            heard("local", Cause::Local, Some(false)),
            heard("open", Cause::PassedUndecided, None),
            heard("trial", Cause::PassedUndecided, None),
        ]
    );
}

#[tokio::test]
async fn what_is_given_back_is_heard_of() {
    let ear = Ear::default();
    let policy = Policy::new("failures", Quota::per_hour(5));
    let limiter = ear
        .listening()
        .policy(policy.count_if(|response| response.status().is_client_error()))
        .build()
        .unwrap();

    assert_eq!(send(&limiter, from("10.0.0.1")).await, 200);

    assert_eq!(
        ear.take(),
        [
            heard("failures", Cause::Backend, Some(false)),
            heard("failures", Cause::Settled, Some(false)),
        ]
    );
}

#[tokio::test]
async fn an_observer_hears_whose_budget_it_is() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&keys);
    let limiter = Limiter::builder()
        .policy(Policy::new("mail", Quota::per_hour(1)))
        .observe(move |event: &Event<'_>| {
            told.lock().unwrap().push(event.key().cloned());
        })
        .build()
        .unwrap();

    limiter.check("mail", "alice").await.unwrap();

    assert_eq!(*keys.lock().unwrap(), [Some(Key::from("alice"))]);
}

#[tokio::test]
async fn denials_are_logged_for_debugging_without_identities_and_a_flood_of_them_in_part() {
    let log = Log::default();
    let _guard = log.listen_from(tracing::Level::DEBUG);
    let policy = Policy::new("mail", Quota::per_day(1)).key(Header::new("x-api-key"));
    let limiter = Limiter::from(policy);

    for _ in 0..5_000 {
        limiter.check("mail", "a-secret").await.unwrap();
    }

    let text = log.text();
    let lines = text.lines().filter(|line| line.contains("denied"));
    let lines: Vec<_> = lines.collect();
    assert!(lines[0].contains("policy=\"mail\"") && lines[0].contains("retry_after"));
    assert!(!text.contains("a-secret"), "{}", lines[0]);
    // A second has 100 lines, and this takes some seconds at most.
    assert!((100..=1_000).contains(&lines.len()), "{}", lines.len());
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_nothing_of_a_full_line_and_of_a_cold_budget() {
    let log = Log::default();
    let _guard = log.listen();
    let shared = MemoryBackend::builder().clock(ManualClock::new()).build();
    let limiter = Limiter::builder()
        .policy(Policy::new("line", "10/s burst 1 wait 2s"))
        .policy(Policy::new("cold", "10/s burst 100 warm up 1min"))
        .backend(shared);
    let limiter = limiter.build().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut line: Vec<_> = (0..22)
        .map(|_| Box::pin(limiter.acquire("line", "alice").into_future()))
        .collect();

    let mut waiting = 0;
    for request in &mut line {
        waiting += usize::from(request.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(waiting, 20);
    for (cost, passes) in [(100, true), (1, false)] {
        let checked = limiter.check("cold", "alice").cost(cost).await.unwrap();
        assert_eq!(checked.is_allowed(), passes);
    }

    let text = log.text();
    assert!(!text.contains("owes more"), "{text}");
}

#[tokio::test]
async fn the_log_tells_of_callers_who_wait_for_what_another_quota_of_their_budget_charged() {
    // given two processes in the middle of a deploy that shortens a full drain from a minute to a second
    let log = Log::default();
    let _guard = log.listen();
    let shared = MemoryBackend::builder().clock(ManualClock::new()).build();
    let shared = Arc::new(shared);
    let limiter = |quota: Quota| {
        let policy = Policy::new("api", quota).key(Header::new("x-api-key"));
        let builder = Limiter::builder().policy(policy);
        builder.backend(Arc::clone(&shared)).build().unwrap()
    };
    let (old, new) = (
        limiter(Quota::per_minute(10)),
        limiter(Quota::per_second(10)),
    );
    let is_refused = async |limiter: &Limiter, caller: &str| {
        let check = limiter.check("api", caller).await.unwrap();
        !check.is_allowed()
    };

    // when callers have spent their budgets, then nothing is told
    for (limiter, caller) in [(&old, "a-secret"), (&new, "another")] {
        while !is_refused(limiter, caller).await {}
    }
    let text = log.text();
    assert!(!text.contains("owes more"), "{text}");

    // when the new process refuses the caller of the old one again and again
    for _ in 0..100 {
        assert!(is_refused(&new, "a-secret").await);
    }

    // then it is told once, with how long that lasts, and without the caller
    let text = log.text();
    let lines: Vec<_> = text.lines().filter(|it| it.contains("owes more")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    for word in [
        "INFO",
        "policy=\"api\"",
        "retry_after=Some(59.1s)",
        "full_after=60s",
    ] {
        assert!(lines[0].contains(word), "{word}: {}", lines[0]);
    }
    assert!(!text.contains("a-secret"), "{text}");
}

#[tokio::test]
async fn the_lines_of_a_flood_of_denials_are_bounded_in_each_second_for_each_policy_and_for_all() {
    const POLICIES: usize = 15;
    let log = Log::default();
    let _guard = log.listen_from(tracing::Level::DEBUG);
    let policies = (0..POLICIES).map(|n| Policy::new(&format!("policy-{n}"), Quota::per_day(1)));
    let limiter = Limiter::builder().policies(policies).build().unwrap();
    let began = std::time::Instant::now();

    // when all are flooded, the first of them first
    for n in 0..POLICIES {
        for _ in 0..500 {
            limiter
                .check(&format!("policy-{n}"), "caller")
                .await
                .unwrap();
        }
    }

    // then each has lines, and none more than its share of each second that has begun
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 2;
    let text = log.text();
    let of = |n: usize| text.matches(&format!("policy=\"policy-{n}\"")).count();
    let lines: Vec<_> = (0..POLICIES).map(of).collect();
    let most = lines.iter().max().copied().unwrap_or_default();
    assert!(lines[..10].iter().all(|lines| *lines >= 100), "{lines:?}");
    assert!(most <= 100 * seconds, "{lines:?}");
    assert!(lines.iter().sum::<usize>() <= 1_000 * seconds, "{lines:?}");
}

#[tokio::test]
async fn an_observer_that_panics_changes_no_decision_and_is_told_of_the_next_ones() {
    // given
    let log = Log::default();
    let _guard = log.listen();
    let told = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&told);
    let observed = Limiter::builder().observe(move |_: &Event<'_>| {
        *counted.lock().unwrap() += 1;
        // Without the message of a panic in the output of the test.
        std::panic::resume_unwind(Box::new("a defect"));
    });
    let policy = || Policy::new("api", Quota::per_hour(3));
    let observed = observed.policy(policy()).build().unwrap();
    let alone = Limiter::from(policy());

    // when, then
    for asked in 1..=6 {
        let answers = [&observed, &alone].map(|limiter| send(limiter, from("10.0.0.1")));
        let [with, without] = answers;
        assert_eq!(with.await, without.await);
        assert_eq!(*told.lock().unwrap(), asked);
    }
    let text = log.text();
    assert_eq!(text.matches("the observer panics").count(), 1, "{text}");
}

/// No lock is held while an observer is told, so that it holds up its own request and no other.
#[test]
fn an_observer_that_stands_still_holds_up_its_own_request_and_no_other() {
    use std::sync::mpsc;

    // given an observer that waits for a word when it hears of one caller
    let (arrive, arrived) = mpsc::channel();
    let (say, word) = mpsc::channel::<()>();
    let word = Mutex::new(word);
    let slow = Key::from("slow");
    let observed = Limiter::builder().observe(move |event: &Event<'_>| {
        if event.key() == Some(&slow) {
            arrive.send(()).unwrap();
            word.lock().unwrap().recv().unwrap();
        }
    });
    let policy = Policy::new("api", Quota::per_hour(3));
    let limiter = observed.policy(policy).track_offenders().build().unwrap();
    let ask = |limiter: &Limiter, caller: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let asked = runtime.block_on(limiter.check("api", caller).into_future());
        asked.unwrap().is_allowed()
    };

    // when it stands still, in a thread of its own
    let held_up = limiter.clone();
    let held_up = std::thread::spawn(move || ask(&held_up, "slow"));
    arrived.recv().unwrap();

    // then others are let in and refused, policies are replaced, and offenders are read
    for allowed in [true, true, true, false] {
        assert_eq!(ask(&limiter, "quick"), allowed);
    }
    assert_eq!(limiter.offenders("api").unwrap().denials(), 1);
    limiter
        .replace([Policy::new("api", Quota::per_hour(3))])
        .unwrap();
    assert!(ask(&limiter, "other"));

    // and its own request has been decided
    say.send(()).unwrap();
    assert!(held_up.join().unwrap());
}

#[tokio::test]
async fn offenders_are_kept_only_if_asked_for_and_those_of_a_trial_as_well() {
    for is_tracked in [false, true] {
        for is_trial in [false, true] {
            let policy = Policy::new("api", Quota::per_hour(1));
            let policy = if is_trial { policy.shadow() } else { policy };
            let builder = Limiter::builder().policy(policy);
            let builder = match is_tracked {
                true => builder.track_offenders(),
                false => builder,
            };
            let limiter = builder.build().unwrap();
            for caller in ["flood", "flood", "flood", "other", "other"] {
                let _asked = limiter.check("api", caller).await.unwrap();
            }

            let denials = limiter.offenders("api").unwrap().denials();
            assert_eq!(denials, if is_tracked { 3 } else { 0 }, "{is_trial}");
        }
    }
}
