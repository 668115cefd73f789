//! Requests wait for their turn: told by tokio's clock, which stands still while any task works and jumps to the next timer.

use std::convert::Infallible;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::quotas_only::QuotasOnly;
use crate::common::tokio_clock::in_tokio_time;
use crate::common::{Body, from};
use http::header::RETRY_AFTER;
use http::{HeaderName, Request, Response, StatusCode};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::key::Global;
use tollgate::{
    Algorithm, Ban, Cause, CheckError, Concurrent, Event, Key, Limiter, LimiterBuilder, Policy,
    Quota, RateLimitLayer, RateLimitStatus, Tiers, Verdict,
};
use tower::{Layer, Service, ServiceExt, service_fn};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Ten a second, one at a time.
const SMOOTH: Quota = Quota::per_second(10).burst(1).wait_up_to(millis(2_000));

fn smooth() -> LimiterBuilder {
    limiter_of(Policy::new("smooth", SMOOTH).key(Global))
}

fn limiter_of(policy: Policy) -> LimiterBuilder {
    Limiter::builder().policy(policy).backend(in_tokio_time())
}

/// The calls that came through: the path, how long the handler hears that they waited, and when they came.
#[derive(Clone)]
struct Calls {
    began: Instant,
    seen: Arc<Mutex<Vec<(String, Duration, Duration)>>>,
}

impl Calls {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            seen: Arc::default(),
        }
    }

    fn behind(
        &self,
        limiter: &Limiter,
    ) -> impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + use<> {
        let calls = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let calls = calls.clone();
            async move {
                let status = request.extensions().get::<RateLimitStatus>();
                let waited = status.map(RateLimitStatus::waited).unwrap_or_default();
                let path = request.uri().path().to_owned();
                let mut seen = calls.seen.lock().unwrap();
                seen.push((path, waited, calls.began.elapsed()));
                Ok(Response::new(Body::default()))
            }
        });
        RateLimitLayer::new(limiter).layer(service)
    }

    fn take(&self) -> Vec<(String, Duration, Duration)> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// The time at which each came.
    fn times(&self) -> Vec<Duration> {
        self.take().into_iter().map(|(.., at)| at).collect()
    }
}

fn to(path: &str) -> Request<Body> {
    let mut request = from("203.0.113.7");
    *request.uri_mut() = path.parse().unwrap();
    request
}

fn until_turns(turns: impl IntoIterator<Item = u64>) -> Vec<Duration> {
    turns.into_iter().map(millis).collect()
}

#[tokio::test(start_paused = true)]
async fn requests_pass_one_by_one_in_the_order_of_their_arrival() {
    let calls = Calls::new();
    let service = calls.behind(&smooth().build().unwrap());

    let mut answers = JoinSet::new();
    for n in 0..25 {
        drop(answers.spawn(service.clone().oneshot(to(&format!("/{n}")))));
        tokio::task::yield_now().await;
    }
    let answers = answers.join_all().await;

    let seen = calls.take();
    assert_eq!(seen.len(), 21);
    for (n, (path, waited, at)) in (0..).zip(seen) {
        assert_eq!(path, format!("/{n}"));
        assert_eq!((waited, at), (millis(n * 100), millis(n * 100)));
    }
    // The others would have had to wait for longer than two seconds.
    let refused: Vec<_> = { answers.into_iter().map(Result::unwrap) }
        .filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS)
        .collect();
    assert_eq!(refused.len(), 4);
    assert!(
        refused
            .iter()
            .all(|answer| answer.headers()[RETRY_AFTER] == "1")
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_gives_the_turn_to_the_next() {
    let calls = Calls::new();
    let limiter = smooth().build().unwrap();
    let service = calls.behind(&limiter);
    let mut answers = JoinSet::new();
    drop(answers.spawn(service.clone().oneshot(to("/first"))));
    tokio::task::yield_now().await;
    let leaves = timeout(millis(50), service.clone().oneshot(to("/leaves")));
    let leaves = tokio::spawn(leaves);
    tokio::task::yield_now().await;
    drop(answers.spawn(service.clone().oneshot(to("/second"))));
    tokio::task::yield_now().await;
    assert_eq!(limiter.waiting(), 2);

    assert!(leaves.await.unwrap().is_err());
    assert_eq!(limiter.waiting(), 1);
    drop(answers.spawn(service.oneshot(to("/third"))));
    drop(answers.join_all().await);

    let seen: Vec<_> = calls
        .take()
        .into_iter()
        .map(|(path, _, at)| (path, at))
        .collect();
    let expected = [("/first", 0), ("/third", 100), ("/second", 200)];
    assert_eq!(
        seen,
        expected.map(|(path, at)| (path.to_owned(), millis(at)))
    );
    assert_eq!(limiter.waiting(), 0);
}

/// A quota without a wait beside it is charged when the request is decided, and given back if the request leaves.
#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_gives_back_what_other_quotas_charged() {
    let day = Quota::per_day(3).using(Algorithm::FixedWindow {
        offset: Duration::ZERO,
    });
    let limiter = limiter_of(Policy::new("both", [SMOOTH, day]).key(Global));
    let limiter = limiter.build().unwrap();
    let service = Calls::new().behind(&limiter);
    drop(service.clone().oneshot(to("/")).await);
    assert!(timeout(millis(20), service.oneshot(to("/"))).await.is_err());

    let left = limiter.check("both", Key::global()).probe().await;
    assert_eq!(left.unwrap().verdicts()[1].remaining(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_policy_on_trial_lets_nobody_wait_and_says_how_long_it_would() {
    let heard: Arc<Mutex<Vec<(Cause, Duration)>>> = Arc::default();
    let ear = Arc::clone(&heard);
    let limiter = limiter_of(Policy::new("trial", SMOOTH).key(Global).shadow());
    let limiter = limiter.observe(move |event: &Event<'_>| {
        let wait = event.verdict().map(Verdict::wait);
        ear.lock().unwrap().push((event.cause(), wait.unwrap()));
    });
    let calls = Calls::new();
    let service = calls.behind(&limiter.build().unwrap());

    for _ in 0..3 {
        drop(service.clone().oneshot(to("/")).await);
    }

    let waits: Vec<_> = calls
        .take()
        .into_iter()
        .map(|(_, waited, at)| (waited, at))
        .collect();
    assert_eq!(waits, [(Duration::ZERO, Duration::ZERO); 3]);
    let expected = [0, 100, 200].map(|wait| (Cause::Backend, millis(wait)));
    assert_eq!(*heard.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_observer_hears_how_long_a_request_waits_and_that_it_left() {
    let heard: Arc<Mutex<Vec<(Cause, Duration)>>> = Arc::default();
    let ear = Arc::clone(&heard);
    let limiter = smooth().observe(move |event: &Event<'_>| {
        let wait = event.verdict().map(Verdict::wait);
        ear.lock().unwrap().push((event.cause(), wait.unwrap()));
    });
    let service = Calls::new().behind(&limiter.build().unwrap());
    drop(service.clone().oneshot(to("/")).await);
    assert!(timeout(millis(20), service.oneshot(to("/"))).await.is_err());

    let expected = [
        (Cause::Backend, Duration::ZERO),
        (Cause::Backend, millis(100)),
        (Cause::Left, millis(100)),
    ];
    assert_eq!(*heard.lock().unwrap(), expected);
}

/// A caller that says for how long it waits is refused at once if its turn comes later, and nothing is reserved for it.
#[tokio::test(start_paused = true)]
async fn a_deadline_of_the_caller_limits_the_wait_within_the_decision() {
    let header = HeaderName::from_static("x-envoy-expected-rq-timeout-ms");
    for (name, soon, late) in [
        ("grpc-timeout", "50m", "150m"),
        ("x-envoy-expected-rq-timeout-ms", "50", "150"),
    ] {
        let calls = Calls::new();
        let limiter = smooth().deadline_header(header.clone()).build().unwrap();
        let service = calls.behind(&limiter);
        let within = |value: &str| {
            let mut request = to("/");
            let name = HeaderName::try_from(name).unwrap();
            drop(request.headers_mut().insert(name, value.parse().unwrap()));
            service.clone().oneshot(request)
        };
        assert_eq!(within(soon).await.unwrap().status(), StatusCode::OK);
        for _ in 0..3 {
            let refused = within(soon).await.unwrap();
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{name}");
        }
        assert_eq!(within(late).await.unwrap().status(), StatusCode::OK);
        assert_eq!(calls.times(), until_turns([0, 100]), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_wait_than_the_limiter_lets() {
    let calls = Calls::new();
    let limiter = smooth().max_waiting(2).build().unwrap();
    let service = calls.behind(&limiter);
    let mut answers = JoinSet::new();
    for _ in 0..5 {
        drop(answers.spawn(service.clone().oneshot(to("/"))));
    }
    let answers = answers.join_all().await.into_iter();
    let passed = answers.filter(|answer| answer.as_ref().unwrap().status() == StatusCode::OK);
    assert_eq!(passed.count(), 3);
    assert_eq!(calls.times(), until_turns([0, 100, 200]));

    let nobody = smooth().max_waiting(0).build().unwrap();
    assert!(
        nobody
            .acquire("smooth", Key::global())
            .await
            .unwrap()
            .is_allowed()
    );
    assert!(
        !nobody
            .acquire("smooth", Key::global())
            .await
            .unwrap()
            .is_allowed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_shuts_down_refuses_those_who_wait() {
    let calls = Calls::new();
    let limiter = smooth().build().unwrap();
    let service = calls.behind(&limiter);
    drop(service.clone().oneshot(to("/")).await);
    let waits = tokio::spawn(service.clone().oneshot(to("/")));
    sleep(millis(30)).await;

    limiter.stop_waiting();

    let refused = waits.await.unwrap().unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(calls.began.elapsed(), millis(30));
    let refused = service.clone().oneshot(to("/")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    // The turn was given back.
    sleep(millis(70)).await;
    let passes = service.oneshot(to("/")).await.unwrap();
    assert_eq!(passes.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_worker_paces_itself() {
    let policy = Policy::new("smooth", SMOOTH);
    let limiter = limiter_of(policy).build().unwrap();
    let began = Instant::now();
    for turn in 0..4 {
        let acquired = limiter.acquire("smooth", "account").await.unwrap();
        assert!(acquired.is_allowed());
        assert_eq!(began.elapsed(), millis(turn * 100));
    }
    // A check never waits.
    let checked = limiter.check("smooth", "account").await.unwrap();
    assert_eq!(
        (checked.is_allowed(), checked.waited()),
        (false, Duration::ZERO)
    );
    let refused = limiter.acquire("smooth", "account").up_to(millis(99)).await;
    let refused = refused.unwrap();
    assert!(!refused.is_allowed());
    assert_eq!(refused.retry_after(), Some(millis(1)));
    let acquired = limiter
        .acquire("smooth", "account")
        .up_to(millis(100))
        .await;
    assert_eq!(acquired.unwrap().waited(), millis(100));

    let unknown = limiter.acquire("smoth", "account").await.unwrap_err();
    assert!(matches!(unknown, CheckError::UnknownPolicy { .. }));
    let never = Limiter::from(Policy::new("plain", Quota::per_second(1)));
    assert_eq!(
        never
            .acquire("plain", "account")
            .await
            .unwrap_err()
            .to_string(),
        "policy \"plain\": none of its quotas lets a request wait: use `check`, or add `.wait_up_to(..)` to one"
    );
}

/// The tier of a caller may let it wait where others are refused.
#[tokio::test(start_paused = true)]
async fn a_tier_may_wait() {
    let tiers = Tiers::by_key([("gold", "paying")]).tier("paying", SMOOTH);
    let policy = Policy::new("api", Quota::per_second(10).burst(1)).tiers(tiers);
    let limiter = limiter_of(policy).build().unwrap();
    for (key, passes) in [("gold", true), ("iron", false)] {
        drop(limiter.acquire("api", key).await.unwrap());
        let second = limiter.acquire("api", key).await.unwrap();
        assert_eq!(second.is_allowed(), passes, "{key}");
    }
}

/// Two quotas let a request wait: it goes on at the later of the two turns.
#[tokio::test(start_paused = true)]
async fn the_longest_wait_counts() {
    let slow = Quota::per_second(4).burst(1).wait_up_to(millis(2_000));
    let limiter = limiter_of(Policy::new("both", [SMOOTH, slow]))
        .build()
        .unwrap();
    let began = Instant::now();
    for turn in 0..3 {
        let acquired = limiter.acquire("both", "a").await.unwrap();
        assert_eq!(
            acquired.waited(),
            began.elapsed() - millis(turn.max(1) * 250 - 250)
        );
        assert_eq!(began.elapsed(), millis(turn * 250));
    }
}

#[test]
fn a_backend_that_lets_nobody_wait_is_refused_with_the_policy() {
    let refused = Limiter::builder()
        .policy(Policy::new("smooth", SMOOTH))
        .backend(QuotasOnly::new())
        .build();
    assert_eq!(
        refused.unwrap_err().to_string(),
        "policy \"smooth\": the backend does not support waiting in line"
    );
}

#[test]
fn waits_that_are_none_are_refused_with_the_policy() {
    for (text, reason) in [
        ("10/s wait 0s", "a wait of 0 has no effect: leave it out"),
        (
            "10/s wait 101s",
            "a wait of 101s is longer than an hour, or than 1000 intervals of the rate",
        ),
        ("1/min wait 2h", "a wait of 7200s is longer than an hour"),
        (
            "10/s sliding-window wait 1s",
            "requests cannot wait for a window, a log or a refill, which give them no turns: use gcra",
        ),
        (
            "10/s wait 1s fixed-window",
            "requests cannot wait for a window, a log or a refill, which give them no turns: use gcra",
        ),
        (
            "10/s rolling-window wait 1s",
            "requests cannot wait for a window, a log or a refill, which give them no turns: use gcra",
        ),
        (
            "10/s sliding-log wait 1s",
            "requests cannot wait for a window, a log or a refill, which give them no turns: use gcra",
        ),
        (
            "10/s interval-refill wait 1s",
            "requests cannot wait for a window, a log or a refill, which give them no turns: use gcra",
        ),
        (
            "10/day in UTC wait 1s",
            "requests cannot wait for a window, a log or a refill, which give them no turns: use gcra",
        ),
        (
            "10/s warm up 9s wait 1s",
            "requests cannot wait for their turn under a quota that warms up: leave out one of them",
        ),
        (
            "5 at once wait 0s",
            "a wait of 0 has no effect: leave it out",
        ),
        (
            "5 at once wait 2h",
            "a wait of 7200s is longer than an hour",
        ),
    ] {
        let refused = Policy::try_new("smooth", text).unwrap_err().to_string();
        assert!(refused.contains("\"smooth\""), "{refused}");
        assert!(refused.contains(reason), "{refused}");
    }
}

/// Five a millisecond: a turn falls between two of them, and is not rounded to one.
#[tokio::test(start_paused = true)]
async fn turns_may_be_closer_than_a_millisecond() {
    const INTERVAL: Duration = Duration::from_micros(200);

    let policy = Policy::new("fast", "5000/s burst 1 wait 100ms");
    let limiter = limiter_of(policy).build().unwrap();
    let began = Instant::now();
    let passed: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let mut asking = JoinSet::new();
    for _ in 0..600 {
        let (limiter, passed) = (limiter.clone(), Arc::clone(&passed));
        drop(asking.spawn(async move {
            let acquired = limiter.acquire("fast", "a").await.unwrap();
            if acquired.is_allowed() {
                assert!(began.elapsed() >= acquired.waited(), "before its turn");
                passed.lock().unwrap().push(acquired.waited());
            }
        }));
    }
    drop(asking.join_all().await);

    let turns: Vec<_> = (0..=500).map(|turn| INTERVAL * turn).collect();
    assert_eq!(*passed.lock().unwrap(), turns);
}

/// Two at once, and a wait of a second for a place.
const PLACES: Concurrent = Concurrent::at_most(2).wait_up_to(millis(1_000));

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_place_in_the_order_of_arrival() {
    let limiter = limiter_of(Policy::new("uploads", PLACES)).build().unwrap();
    let mut held = vec![
        limiter.check("uploads", "a").await.unwrap(),
        limiter.check("uploads", "a").await.unwrap(),
    ];
    let order: Arc<Mutex<Vec<u32>>> = Arc::default();
    let mut waiting = JoinSet::new();
    for n in 0..3 {
        let (limiter, order) = (limiter.clone(), Arc::clone(&order));
        drop(waiting.spawn(async move {
            let acquired = limiter.acquire("uploads", "a").await.unwrap();
            order.lock().unwrap().push(n);
            sleep(millis(10)).await;
            acquired.is_allowed()
        }));
        tokio::task::yield_now().await;
    }
    assert_eq!(limiter.waiting(), 3);
    let began = Instant::now();
    sleep(millis(5)).await;

    drop(held.pop());

    assert_eq!(waiting.join_all().await, [true; 3]);
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    // Each goes on as soon as the one before is done: no request waited for the clock.
    assert_eq!(began.elapsed(), millis(35));
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_overtakes_those_who_wait_for_a_place() {
    let limiter = limiter_of(Policy::new("uploads", PLACES)).build().unwrap();
    let held = limiter.check("uploads", "a").cost(2).await.unwrap();
    // A heavy request at the head.
    let heavy = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("uploads", "a").cost(2).await.unwrap() }
    });
    tokio::task::yield_now().await;
    let light = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("uploads", "a").await.unwrap() }
    });
    tokio::task::yield_now().await;
    drop(held);

    let heavy = heavy.await.unwrap();
    assert!(heavy.is_allowed());
    assert_eq!(limiter.waiting(), 1);
    // Others have places of their own.
    assert!(limiter.check("uploads", "b").await.unwrap().is_allowed());
    drop(heavy);
    assert!(light.await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_place_ends() {
    let limiter = limiter_of(Policy::new("uploads", PLACES)).build().unwrap();
    let held = limiter.check("uploads", "a").cost(2).await.unwrap();
    let began = Instant::now();
    let refused = limiter.acquire("uploads", "a").await.unwrap();
    assert_eq!((refused.is_allowed(), refused.retry_after()), (false, None));
    assert_eq!(began.elapsed(), millis(1_000));
    let refused = limiter
        .acquire("uploads", "a")
        .up_to(millis(30))
        .await
        .unwrap();
    assert!(!refused.is_allowed());
    assert_eq!(began.elapsed(), millis(1_030));
    // A caller that leaves is forgotten.
    assert!(
        timeout(millis(5), limiter.acquire("uploads", "a"))
            .await
            .is_err()
    );
    assert_eq!(limiter.waiting(), 0);

    let waits = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("uploads", "a").await.unwrap() }
    });
    tokio::task::yield_now().await;
    limiter.stop_waiting();
    assert!(!waits.await.unwrap().is_allowed());
    assert_eq!(began.elapsed(), millis(1_035));
    drop(held);
    assert!(limiter.acquire("uploads", "a").await.unwrap().is_allowed());
}

/// Another limiter on the same backend, as another process, frees a place: the first of the queue finds it by itself.
#[tokio::test(start_paused = true)]
async fn a_place_that_others_free_is_found() {
    let backend = Arc::new(in_tokio_time());
    let limiter = || {
        let policy = Policy::new("uploads", PLACES);
        let limiter = Limiter::builder().policy(policy);
        limiter.backend(Arc::clone(&backend)).build().unwrap()
    };
    let (ours, theirs) = (limiter(), limiter());
    let held = theirs.check("uploads", "a").cost(2).await.unwrap();
    let began = Instant::now();
    drop(tokio::spawn(async move {
        sleep(millis(230)).await;
        drop(held);
    }));

    let acquired = ours.acquire("uploads", "a").await.unwrap();

    assert!(acquired.is_allowed());
    assert!(began.elapsed() <= millis(330), "{:?}", began.elapsed());
    assert_eq!(acquired.waited(), began.elapsed());
}

/// A turn and a place: nothing is held while the request waits for its turn.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_turn_holds_nothing_yet() {
    let policy = Policy::new("both", (SMOOTH, Concurrent::at_most(1)));
    let limiter = limiter_of(policy).build().unwrap();
    drop(limiter.acquire("both", "a").await.unwrap());
    let waits = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("both", "a").await.unwrap() }
    });
    sleep(millis(50)).await;
    let probe = limiter.check("both", "a").probe().await.unwrap();
    assert_eq!(probe.verdicts()[1].remaining(), 1);
    let acquired = waits.await.unwrap();
    assert!(acquired.is_allowed());
    let probe = limiter.check("both", "a").probe().await.unwrap();
    assert_eq!(probe.verdicts()[1].remaining(), 0);
    drop(acquired);
    let probe = limiter.check("both", "a").probe().await.unwrap();
    assert_eq!(probe.verdicts()[1].remaining(), 1);
}

/// No place is free when the request comes. It waits for its turn all the same, and one may be free then.
#[tokio::test(start_paused = true)]
async fn a_place_is_asked_for_when_the_turn_has_come() {
    for is_free_then in [true, false] {
        let policy = Policy::new("both", (SMOOTH, Concurrent::at_most(1)));
        let limiter = limiter_of(policy).build().unwrap();
        let holds = limiter.acquire("both", "a").await.unwrap();
        let began = Instant::now();
        let waits = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire("both", "a").await.unwrap() }
        });
        sleep(millis(99)).await;
        assert_eq!(limiter.waiting(), 1);
        let holds = Some(holds).filter(|_| !is_free_then);

        let acquired = waits.await.unwrap();

        assert_eq!(acquired.is_allowed(), is_free_then);
        let waited = (acquired.waited(), began.elapsed());
        assert_eq!(waited, (millis(100), millis(100)));
        assert_eq!(acquired.verdicts().len(), 2);
        drop((holds, acquired));
        let probe = limiter.check("both", "a").probe().await.unwrap();
        assert_eq!(probe.verdicts()[1].remaining(), 1);
    }
}

/// A request whose turn is now is refused at once for want of a place, and takes no turn. One that waits is not a strike if it
/// passes.
#[tokio::test(start_paused = true)]
async fn a_request_whose_turn_is_now_does_not_wait_for_a_place() {
    let smooth = Quota::per_second(10).burst(2).wait_up_to(millis(2_000));
    let ban = Ban::after(2, Duration::from_secs(60)).lasting(Duration::from_secs(60));
    let policy = Policy::new("both", (smooth, Concurrent::at_most(1))).ban(ban);
    let limiter = limiter_of(policy).build().unwrap();
    let began = Instant::now();
    let acquire = || async { limiter.acquire("both", "a").await.unwrap() };
    let holds = acquire().await;

    let refused = acquire().await;

    assert_eq!((refused.is_allowed(), refused.retry_after()), (false, None));
    assert_eq!((refused.waited(), began.elapsed()), (millis(0), millis(0)));
    drop(holds);
    // It has struck once and taken no turn. One that finds no place when it comes strikes only if it finds none at its turn.
    let holds = acquire().await;
    assert_eq!((holds.is_allowed(), began.elapsed()), (true, millis(0)));
    let (passes, ()) = tokio::join!(acquire(), async {
        sleep(millis(50)).await;
        drop(holds);
    });
    let at = (passes.is_allowed(), began.elapsed());
    assert_eq!(at, (true, millis(100)));
    drop(passes);
    assert!(acquire().await.is_allowed());
}

/// The place is gone when the turn has come: the request is refused, and holds nothing. Its turn goes to the next, unless another
/// request waits: then it is lost, since a charge that has passed gives nothing back meanwhile.
#[tokio::test(start_paused = true)]
async fn a_request_whose_place_is_gone_when_its_turn_comes_is_refused() {
    for others_wait in [false, true] {
        let slow = Policy::new("both", (SMOOTH, Concurrent::at_most(1)));
        let limiter = limiter_of(slow).build().unwrap();
        let began = Instant::now();
        drop(limiter.acquire("both", "a").await.unwrap());
        let acquire = || {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire("both", "a").await.unwrap() })
        };
        let (first, second) = (acquire(), acquire());
        tokio::task::yield_now().await;
        let third = others_wait.then(acquire);
        let first = first.await.unwrap();
        assert!(first.is_allowed());

        let second = second.await.unwrap();

        assert_eq!((second.is_allowed(), second.retry_after()), (false, None));
        let waited = (second.waited(), began.elapsed());
        assert_eq!(waited, (millis(200), millis(200)));
        drop(first);
        let next = acquire();
        if let Some(third) = third {
            let third = third.await.unwrap();
            assert!(third.is_allowed());
            assert_eq!(began.elapsed(), millis(300));
        }
        let next = next.await.unwrap();
        assert!(next.is_allowed());
        let at = if others_wait { 400 } else { 200 };
        assert_eq!(began.elapsed(), millis(at));
    }
}

/// No timer could tell the turn.
#[test]
fn outside_of_a_runtime_nobody_waits() {
    let policy = Policy::new("smooth", SMOOTH);
    let limiter = Limiter::builder().policy(policy).build().unwrap();
    for passes in [true, false] {
        let acquired = limiter.acquire("smooth", "a").into_future();
        assert_eq!(at_once(acquired).unwrap().is_allowed(), passes);
    }
}

/// The result of a future that is there at once.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut cx = Context::from_waker(Waker::noop());
    match Box::pin(future).as_mut().poll(&mut cx) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

/// A check never waits, and is refused while others wait for what it asks.
#[tokio::test(start_paused = true)]
async fn a_check_does_not_overtake_those_who_wait_for_a_place() {
    let limiter = limiter_of(Policy::new("uploads", PLACES)).build().unwrap();
    let held = limiter.check("uploads", "a").cost(2).await.unwrap();
    let waits = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("uploads", "a").await.unwrap() }
    });
    tokio::task::yield_now().await;
    drop(held);

    // The place is free, and the first of the queue has not looked yet.
    let checked = limiter.check("uploads", "a").await.unwrap();
    assert!(!checked.is_allowed());
    let probe = limiter.check("uploads", "a").probe().await.unwrap();
    assert!(probe.is_allowed());

    assert!(waits.await.unwrap().is_allowed());
    assert!(limiter.check("uploads", "a").await.unwrap().is_allowed());
}
