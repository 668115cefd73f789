//! Classes of requests: a share of every budget is kept for the important.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::tokio_clock::in_tokio_time;
use crate::common::{Body, Strict, Waiting, at_a_standstill, from, header};
use http::{Request, Response};
use tokio::task::yield_now;
use tollgate::key::{Global, Header, PathParam, Query};
use tollgate::{
    Admin, Algorithm, Answer, Backend, Call, Charge, CheckError, CheckOutcome, Concurrent,
    ConfigError, Decision, Event, FailureKind, HeaderForm, Key, Limiter, MemoryBackend, Mode,
    OnFailure, Policy, Quota, Quotas, RateLimitHeaders, RateLimitLayer, RateLimitStatus, Scope,
    Settlement, Share, Tiers,
};
use tower::{Layer, ServiceExt, service_fn};

const TEN: Quota = Quota::per_hour(10);

/// Of ten, a normal request leaves two, and a request of no class five.
fn classed(policy: Policy) -> Policy {
    policy
        .class_by(Header::new("x-class"))
        .keep_for("critical", Share::percent(20))
        .keep_for("normal", Share::percent(30))
}

fn api(quotas: impl Into<Quotas>) -> Policy {
    classed(Policy::new("api", quotas).key(Global))
}

fn limiter(policy: Policy) -> Limiter {
    let (backend, _) = at_a_standstill();
    let limiter = Limiter::builder().policy(policy).backend(backend);
    limiter.build().unwrap()
}

fn of(class: &str) -> Request<Body> {
    let mut request = from("10.0.0.1");
    if !class.is_empty() {
        let class = class.parse().unwrap();
        request.headers_mut().insert("x-class", class);
    }
    request
}

async fn send(limiter: &Limiter, request: Request<Body>) -> Response<Body> {
    let service = RateLimitLayer::new(limiter).layer(Strict::default());
    service.oneshot(request).await.unwrap()
}

/// The number of requests of a class that pass before one is refused.
async fn passing(limiter: &Limiter, class: &str) -> usize {
    let mut passed = 0;
    while send(limiter, of(class)).await.status() == 200 {
        passed += 1;
    }
    passed
}

#[tokio::test]
async fn a_request_leaves_what_is_kept_for_the_classes_before_its_own() {
    let limiter = limiter(api(TEN));

    assert_eq!(passing(&limiter, "").await, 5);
    assert_eq!(passing(&limiter, "normal").await, 3);
    assert_eq!(passing(&limiter, "critical").await, 2);
}

#[tokio::test]
async fn the_important_may_use_all_of_a_budget() {
    let limiter = limiter(api(TEN));

    assert_eq!(passing(&limiter, "critical").await, 10);
    assert_eq!(passing(&limiter, "normal").await, 0);
}

/// No name that is unknown makes a request important.
#[tokio::test]
async fn a_request_of_an_unknown_class_is_one_of_the_least_important() {
    let limiter = limiter(api(TEN));
    let odd = ["Critical", "critica", "normal, critical", ""];

    for (left, class) in [4, 3, 2, 1].into_iter().zip(odd) {
        let request = of(class);
        let answer = send(&limiter, request).await;
        let told = header(&answer, "ratelimit");
        assert!(told.starts_with(&format!("\"api\";r={left};")), "{told}");
    }

    assert_eq!(passing(&limiter, "").await, 1);
    assert_eq!(passing(&limiter, "critical").await, 5);
}

#[tokio::test]
async fn a_request_that_names_two_classes_has_none() {
    let policy = Policy::new("api", TEN)
        .key(Global)
        .class_by(Query::new("class"));
    let limiter = limiter(policy.keep_for("critical", Share::percent(50)));
    let asks = async |path: &str| {
        let mut request = from("10.0.0.1");
        *request.uri_mut() = path.parse().unwrap();
        header(&send(&limiter, request).await, "ratelimit").to_owned()
    };

    let left = asks("/?class=critical&class=normal").await;
    assert!(left.starts_with("\"api\";r=4;"), "{left}");
    let left = asks("/?class=critical").await;
    assert!(left.starts_with("\"api\";r=8;"), "{left}");
}

#[tokio::test]
async fn a_request_with_two_lines_of_a_class_has_none() {
    for lines in [
        ["critical", "normal"],
        ["normal", "critical"],
        ["critical", ""],
    ] {
        let mut request = of(lines[0]);
        request
            .headers_mut()
            .append("x-class", lines[1].parse().unwrap());
        let left = header(&send(&limiter(api(TEN)), request).await, "ratelimit").to_owned();
        assert!(left.starts_with("\"api\";r=4;"), "{lines:?}: {left}");
    }
}

/// The limit is the policy's, and what remains is the class's.
#[tokio::test]
async fn headers_say_the_limit_of_the_policy_and_the_rest_of_the_class() {
    let limiter = limiter(api(TEN));
    let headers = RateLimitHeaders::new([HeaderForm::Draft11, HeaderForm::Legacy]);
    let layer = RateLimitLayer::new(&limiter).headers(headers);
    for (class, remaining) in [("critical", 9), ("normal", 6), ("", 2), ("critical", 6)] {
        let answer = layer
            .layer(Strict::default())
            .oneshot(of(class))
            .await
            .unwrap();
        assert_eq!(header(&answer, "ratelimit-policy"), "\"api\";q=10;w=3600");
        let left = header(&answer, "ratelimit");
        assert!(
            left.starts_with(&format!("\"api\";r={remaining};")),
            "{left}"
        );
        assert_eq!(header(&answer, "x-ratelimit-limit"), "10");
        assert_eq!(
            header(&answer, "x-ratelimit-remaining"),
            remaining.to_string()
        );
    }
}

#[tokio::test]
async fn handlers_and_observers_hear_the_class() {
    type Seen = Arc<Mutex<Vec<(Option<String>, u64)>>>;
    let (observed, handled) = (Seen::default(), Seen::default());
    let (events, (backend, _)) = (Arc::clone(&observed), at_a_standstill());
    let limiter = Limiter::builder().policy(api(TEN)).backend(backend);
    let limiter = limiter.observe(move |event: &Event<'_>| {
        let seen = event.verdict().unwrap().limit();
        events
            .lock()
            .unwrap()
            .push((event.class().map(str::to_owned), seen));
    });
    let layer = RateLimitLayer::new(limiter.build().unwrap());
    let handler = Arc::clone(&handled);
    let service = layer.layer(service_fn(move |request: Request<Body>| {
        let status = request.extensions().get::<RateLimitStatus>().unwrap();
        let verdict = &status.verdicts()[0];
        let told = (verdict.class().map(str::to_owned), verdict.limit());
        handler.lock().unwrap().push(told);
        async { Ok::<_, std::convert::Infallible>(Response::new(Body::default())) }
    }));

    for class in ["critical", "normal", "other"] {
        service.clone().oneshot(of(class)).await.unwrap();
    }

    let named = |class: &str, limit| (Some(class.to_owned()), limit);
    let seen = std::mem::take(&mut *observed.lock().unwrap());
    assert_eq!(seen, [named("critical", 10), named("normal", 8), (None, 5)]);
    let seen = std::mem::take(&mut *handled.lock().unwrap());
    assert_eq!(
        seen,
        [named("critical", 10), named("normal", 10), (None, 10)]
    );
}

#[tokio::test]
async fn a_share_is_kept_in_every_tier_and_of_every_quota() {
    let tiers =
        Tiers::by(|_, request| Some(request?.headers().get("x-tier")?.to_str().ok()?.to_owned()))
            .tier(
                "gold",
                [Quota::per_hour(100), Quota::per_day(1_000).burst(50)],
            )
            .unlimited("staff");
    let limiter = limiter(api(TEN).tiers(tiers));
    let remaining = async |tier: &str, class: &str| {
        let mut request = of(class);
        request
            .headers_mut()
            .insert("x-tier", tier.parse().unwrap());
        let answer = send(&limiter, request).await;
        let told = answer.headers().get("ratelimit");
        told.map(|told| {
            told.to_str()
                .unwrap()
                .split_once(";t=")
                .unwrap()
                .0
                .to_owned()
        })
    };
    let left = |of: &str, n: u64| Some(format!("\"{of}\";r={n}"));

    // Of the hundred a request of no class leaves fifty, and of the fifty 25. What was spent in a tier counts in the others.
    assert_eq!(remaining("gold", "").await, left("api-2", 24));
    assert_eq!(remaining("gold", "critical").await, left("api-2", 48));
    assert_eq!(remaining("none", "normal").await, left("api", 6));
    assert_eq!(remaining("staff", "").await, None);
}

#[tokio::test]
async fn a_check_says_its_class() {
    let limiter = limiter(api(TEN));
    let check = || limiter.check("api", Key::global());

    assert_eq!(check().probe().await.unwrap().remaining(), 5);
    assert_eq!(
        check().class("normal").probe().await.unwrap().remaining(),
        8
    );
    let all = check().class("critical").cost(10).await.unwrap();
    assert!(all.is_allowed());
    let refused = check().class("normal").await.unwrap();
    // Until three are left.
    let wait = refused.retry_after().unwrap();
    assert_eq!(wait, Duration::from_secs(3 * 360));
    for receipt in all.into_receipts() {
        limiter.refund(receipt, 3);
    }
    assert!(check().class("normal").await.unwrap().is_allowed());

    let unknown = check().class("Critical").await.unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "policy \"api\": class \"Critical\": there is no class of this name"
    );
    let plain = Limiter::from(Policy::new("plain", TEN));
    let unknown = plain.check("plain", "a").class("critical").await;
    assert!(matches!(unknown, Err(CheckError::UnknownClass { .. })));
}

/// The charges that the backend is asked for.
#[derive(Debug, Default)]
struct Recorder {
    inner: MemoryBackend,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Backend for Recorder {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        self.asked
            .lock()
            .unwrap()
            .push(format!("{:?}", call.charges));
        self.inner.decide(call)
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.inner.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self.inner.admin()
    }
}

/// So it costs the backend, and the server behind it, what any other charge costs.
#[tokio::test]
async fn a_backend_is_asked_the_same_question_about_a_smaller_quota() {
    let backend = Recorder::default();
    let asked = Arc::clone(&backend.asked);
    let limiter = Limiter::builder().policy(api(TEN)).backend(backend);
    let limiter = limiter.build().unwrap();

    for (class, burst) in [("critical", 10), ("normal", 8), ("", 5)] {
        send(&limiter, of(class)).await;

        let quota = TEN.burst(burst);
        let question = [Charge {
            scope: Scope::of("api", 0, &TEN),
            quota: &quota,
            key: &Key::global(),
            cost: 1,
            mode: Mode::Enforce,
        }];
        let asked = std::mem::take(&mut *asked.lock().unwrap());
        assert_eq!(asked, [format!("{question:?}")]);
    }
}

#[tokio::test]
async fn a_policy_on_trial_says_what_its_classes_would_do() {
    let limiter = limiter(api(TEN).shadow());

    for _ in 0..6 {
        let passes = limiter.check("api", Key::global()).await.unwrap();
        assert!(passes.is_allowed());
    }

    let would = limiter.check("api", Key::global()).await.unwrap();
    assert!(would.is_allowed() && would.verdicts()[0].is_denied());
}

#[tokio::test]
async fn budgets_of_the_process_keep_the_share_while_the_backend_fails() {
    let backend = Waiting::new(at_a_standstill().0);
    backend.fail_with(Some(FailureKind::Unreachable));
    backend.gate.add_permits(100);
    let half = OnFailure::Local(Share::percent(50));
    let policy = api(Quota::per_hour(100)).on_failure(half);
    let limiter = Limiter::builder()
        .policy(policy)
        .backend(backend)
        .build()
        .unwrap();

    assert_eq!(passing(&limiter, "").await, 25);
    assert_eq!(passing(&limiter, "normal").await, 15);
    assert_eq!(passing(&limiter, "critical").await, 10);
}

#[tokio::test]
async fn policies_are_replaced_with_other_shares_and_budgets_go_on() {
    let limiter = limiter(api(TEN));
    assert_eq!(passing(&limiter, "").await, 5);

    let present = Policy::clone(&limiter.policy("api").unwrap());
    limiter
        .replace([present.keep_for("low", Share::percent(10))])
        .unwrap();

    assert_eq!(passing(&limiter, "").await, 0);
    assert_eq!(passing(&limiter, "low").await, 0);
    assert_eq!(passing(&limiter, "normal").await, 3);
}

#[tokio::test]
async fn limiters_that_name_other_shares_keep_each_its_own_of_one_budget() {
    // given two limiters on one backend: one keeps two and three of ten, and the other four
    let (backend, _) = at_a_standstill();
    let backend = Arc::new(backend);
    let on = |policy: Policy| {
        let limiter = Limiter::builder().policy(policy);
        limiter.backend(Arc::clone(&backend)).build().unwrap()
    };
    let other = Policy::new("api", TEN)
        .key(Global)
        .class_by(Header::new("x-class"))
        .keep_for("premium", Share::percent(40));
    let (one, other) = (on(api(TEN)), on(other));

    // when both admit requests of no class
    assert_eq!(passing(&one, "").await, 5);

    // then each leaves of the one budget what it keeps itself
    assert_eq!(
        passing(&other, "critical").await,
        1,
        "the other knows no such class"
    );
    assert_eq!(passing(&one, "normal").await, 2);
    assert_eq!(passing(&other, "").await, 0);
    assert_eq!(passing(&other, "premium").await, 2);
    assert_eq!(passing(&one, "critical").await, 0);
}

#[test]
fn the_name_of_a_class_may_have_64_bytes() {
    let policy = Policy::new("api", TEN).class_by(Header::new("x-class"));
    let policy = policy.keep_for(&"x".repeat(64), Share::percent(20));
    assert!(Limiter::builder().policy(policy).build().is_ok());
}

#[test]
fn classes_that_make_no_sense_are_refused_with_their_policy() {
    let wait = Duration::from_secs(1);
    let plain = || Policy::new("api", TEN);
    let by = || plain().class_by(Header::new("x-class"));
    let keeps = |class: &str, percent| by().keep_for(class, Share::percent(percent));
    let tiers = Tiers::by(|_, _| None::<String>).tier("small", Quota::per_hour(4));
    let waits = Tiers::by(|_, _| None::<String>).tier("patient", TEN.wait_up_to(wait));
    let cases = [
        (keeps("a", 0), "class \"a\": a share of 0 % keeps nothing"),
        (
            keeps("a", 100),
            "class \"a\": a share of 100 % leaves nothing to all others: their requests never pass",
        ),
        (
            keeps("a", 50).keep_for("b", Share::percent(50)),
            "class \"b\": this share and those before it keep 100 %: all other requests never pass",
        ),
        (
            keeps("a", 40)
                .keep_for("b", Share::one_in(3))
                .keep_for("c", Share::percent(30)),
            "class \"c\": this share and those before it keep 100 %: all other requests never pass",
        ),
        (
            keeps("a", 9),
            "class \"a\": its share of the 10 of \"api\" is less than one",
        ),
        (
            keeps("a", 20).tiers(tiers),
            "class \"a\": its share of the 4 of \"api\" of tier \"small\" is less than one",
        ),
        (
            keeps("a", 20).keep_for("a", Share::percent(20)),
            "class \"a\": two classes have this name",
        ),
        (keeps("", 20), "class \"\": invalid name; use 1 to 64 bytes"),
        (
            keeps(&"x".repeat(65), 20),
            "class \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\": invalid name; use 1 to 64 bytes",
        ),
        (
            by(),
            "classes: `class_by` names classes, and no share is kept for any: add `keep_for`",
        ),
        (
            plain().keep_for("a", Share::percent(20)),
            "classes: a share is kept, and nothing names the class of a request: add `class_by`",
        ),
        (
            classed(Policy::new("api", TEN.wait_up_to(wait))),
            "classes: no share can be kept where requests wait for their turn: a line of turns has no classes",
        ),
        (
            classed(Policy::new("api", TEN.warm_up(3_600 * wait))),
            "classes: no share can be kept of a quota that warms up: cold units take more room than one each, and would take the share",
        ),
        (
            keeps("a", 20).tiers(waits),
            "classes: no share can be kept where requests wait for their turn: a line of turns has no classes",
        ),
        (
            keeps("a", 20).cost(9),
            "class \"all others\": a cost of 9 never passes: the part of this class in \"api\" is 8",
        ),
        (
            plain()
                .route("/a/{id}")
                .class_by(PathParam::new("ID"))
                .keep_for("a", Share::percent(20)),
            "classes: path parameter \"ID\": no route of the policy has it; its routes have id",
        ),
    ];
    for (policy, reason) in cases {
        let refused = Limiter::builder().policy(policy).build().unwrap_err();
        let is_about_classes = matches!(
            refused,
            ConfigError::Class { .. } | ConfigError::Classes { .. }
        );
        assert!(is_about_classes, "{refused:?}");
        assert_eq!(refused.to_string(), format!("policy \"api\": {reason}"));
    }
    // The largest that make sense: four and five of ten leave one.
    let most = keeps("a", 49).keep_for("b", Share::percent(50));
    assert!(Limiter::builder().policy(most).build().is_ok());
    for quota in [TEN, TEN.using(Algorithm::SlidingLog)] {
        let most = classed(Policy::new("api", quota)).cost(5);
        assert!(Limiter::builder().policy(most).build().is_ok());
    }
}

/// Four places of which one is kept, and requests that wait for them.
fn places() -> Limiter {
    places_on(in_tokio_time())
}

fn places_on(backend: impl Backend) -> Limiter {
    let four = Concurrent::at_most(4).wait_up_to(Duration::from_secs(10));
    let policy = Policy::new("places", four)
        .class_by(Header::new("x-class"))
        .keep_for("critical", Share::percent(25));
    Limiter::builder()
        .policy(policy)
        .backend(backend)
        .build()
        .unwrap()
}

/// A caller that waits for a place and writes its name down when it has one.
fn waits(
    limiter: &Limiter,
    seen: &Arc<Mutex<Vec<&'static str>>>,
    class: Option<&'static str>,
    name: &'static str,
) -> tokio::task::JoinHandle<CheckOutcome> {
    let (limiter, seen) = (limiter.clone(), Arc::clone(seen));
    tokio::spawn(async move {
        let acquire = limiter.acquire("places", "alice");
        let acquire = match class {
            Some(class) => acquire.class(class),
            None => acquire,
        };
        let place = acquire.await.unwrap();
        assert!(place.is_allowed(), "{name}");
        seen.lock().unwrap().push(name);
        place
    })
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_a_place_stand_in_the_order_of_their_classes() {
    let limiter = places();
    let seen = Arc::default();
    let take = async |class: &str| {
        limiter
            .acquire("places", "alice")
            .class(class)
            .await
            .unwrap()
    };
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(take("critical").await);
    }

    // given two of no class, and then two critical ones
    let order = [
        (None, "first"),
        (None, "second"),
        (Some("critical"), "urgent"),
        (Some("critical"), "urgent too"),
    ];
    let mut waiting = Vec::new();
    for (class, name) in order {
        waiting.push(waits(&limiter, &seen, class, name));
        for _ in 0..5 {
            yield_now().await;
        }
    }
    assert_eq!(limiter.waiting(), 4);

    // when all places are given back, one by one
    while let Some(place) = held.pop() {
        drop(place);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }

    // then the critical ones come first, and one place stays free for others of them
    let got = seen.lock().unwrap().clone();
    assert_eq!(got, ["urgent", "urgent too", "first"]);
    assert!(
        limiter
            .check("places", "alice")
            .class("critical")
            .probe()
            .await
            .unwrap()
            .is_allowed()
    );
    drop(waiting.remove(2).await.unwrap());
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(seen.lock().unwrap().last(), Some(&"second"));
}

/// A request that is more important than all that wait asks at once, because a free place may be kept for it.
#[tokio::test(start_paused = true)]
async fn the_important_do_not_stand_behind_others_while_their_share_is_free() {
    let limiter = places();
    let seen = Arc::default();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(limiter.acquire("places", "alice").await.unwrap());
    }
    let waiting = waits(&limiter, &seen, None, "other");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(limiter.waiting(), 1);

    let urgent = limiter
        .acquire("places", "alice")
        .class("critical")
        .await
        .unwrap();

    assert_eq!(
        (urgent.is_allowed(), urgent.waited()),
        (true, Duration::ZERO)
    );
    drop((held.pop(), urgent));
    assert!(waiting.await.unwrap().is_allowed());
}

/// A backend during whose answer something else happens.
#[derive(Clone)]
struct Meanwhile {
    inner: Arc<MemoryBackend>,
    happens: Arc<Mutex<Option<CheckOutcome>>>,
}

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Backend for Meanwhile {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let answer = self.inner.decide(call);
        let given_back = self.happens.lock().unwrap().take();
        drop(given_back);
        answer
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.inner.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self.inner.admin()
    }
}

/// A place is given back after an urgent request was refused and before it stands in the line: the first of the line is told, and
/// tells the urgent one, which stands before it by then.
#[tokio::test(start_paused = true)]
async fn a_release_is_passed_on_to_the_more_important_who_came_in_between() {
    let happens = Arc::default();
    let limiter = places_on(Meanwhile {
        inner: Arc::new(in_tokio_time()),
        happens: Arc::clone(&happens),
    });
    let seen = Arc::default();
    let mut held = Vec::new();
    for _ in 0..4 {
        let place = limiter.acquire("places", "alice").class("critical");
        held.push(place.await.unwrap());
    }
    let other = waits(&limiter, &seen, None, "other");
    // Between two times at which the first asks by itself.
    tokio::time::sleep(Duration::from_millis(130)).await;
    *happens.lock().unwrap() = held.pop();

    let urgent = limiter.acquire("places", "alice").class("critical");
    let urgent = urgent.await.unwrap();

    assert_eq!(
        (urgent.is_allowed(), urgent.waited()),
        (true, Duration::ZERO)
    );
    drop((urgent, held.pop()));
    assert!(other.await.unwrap().is_allowed());
}
