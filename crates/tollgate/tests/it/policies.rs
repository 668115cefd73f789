//! Several policies on one request, several quotas in one policy, policies on trial, callers that cannot be told apart.

use std::convert::Infallible;
use std::future::ready;
use std::net::IpAddr;
use std::time::Duration;

use crate::common::{Strict, at_a_standstill, from, header};
use http::{Method, Request, Response};
use tollgate::config::{PolicyConfig, Registry};
use tollgate::key::{
    AsyncKeyExtractor, Cookie, Global, Header, KeyMissing, MatchedRoute, PathParam, from_async_fn,
};
use tollgate::{
    Block, ClientAddress, ClientIp, Key, Limiter, OnMissing, Policy, Quota, Quotas, RateLimitLayer,
    RateLimitStatus, RequestView, Tiers,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::common::Body;

/// Sends one request through a fresh service of the layer.
async fn send(layer: &RateLimitLayer, request: Request<Body>) -> Response<Body> {
    layer
        .layer(Strict::default())
        .oneshot(request)
        .await
        .unwrap()
}

async fn status(layer: &RateLimitLayer, request: Request<Body>) -> u16 {
    send(layer, request).await.status().as_u16()
}

fn with_header(name: &str, value: &[u8]) -> Request<Body> {
    let mut request = from("10.0.0.1");
    let name: http::HeaderName = name.parse().unwrap();
    request
        .headers_mut()
        .append(name, http::HeaderValue::from_bytes(value).unwrap());
    request
}

fn layer(policies: impl IntoIterator<Item = Policy>) -> (RateLimitLayer, tollgate::ManualClock) {
    let (backend, clock) = at_a_standstill();
    let limiter = Limiter::builder()
        .policies(policies)
        .backend(backend)
        .build()
        .unwrap();
    (RateLimitLayer::new(limiter), clock)
}

#[tokio::test]
async fn each_address_has_a_budget_of_its_own() {
    let layer = RateLimitLayer::new(Quota::per_hour(1));

    assert_eq!(status(&layer, from("10.0.0.1")).await, 200);
    assert_eq!(status(&layer, from("10.0.0.1")).await, 429);
    assert_eq!(status(&layer, from("10.0.0.2")).await, 200);
    assert_eq!(status(&layer, from("[::ffff:10.0.0.2]")).await, 429);
    assert_eq!(status(&layer, from("[2001:db8::1]")).await, 200);
    assert_eq!(status(&layer, from("[2001:db8::2]")).await, 429);
}

#[tokio::test]
async fn pitfall_several_limits_the_first_charged_although_the_second_denied() {
    // given a caller with three left, and all callers together with one
    let (layer, clock) = layer([
        Policy::new("caller", Quota::per_hour(3)),
        Policy::new("everybody", Quota::per_minute(1)).key(Global),
    ]);
    assert_eq!(status(&layer, from("10.0.0.1")).await, 200);

    // when the second policy refuses the caller many times
    for _ in 0..10 {
        let response = send(&layer, from("10.0.0.1")).await;
        assert_eq!(header(&response, "ratelimit"), "\"everybody\";r=0;t=60");
    }

    // then the first still has two
    for _ in 0..2 {
        clock.advance(Duration::from_secs(60));
        assert_eq!(status(&layer, from("10.0.0.1")).await, 200);
    }
    clock.advance(Duration::from_secs(60));
    let response = send(&layer, from("10.0.0.1")).await;
    assert!(header(&response, "ratelimit").starts_with("\"caller\";r=0;"));
}

#[tokio::test]
async fn the_quotas_of_one_policy_are_decided_together() {
    let quotas = [("second", Quota::per_second(2)), ("day", Quota::per_day(3))];
    let (layer, clock) = layer([Policy::new("api", quotas)]);

    assert_eq!(status(&layer, from("10.0.0.1")).await, 200);
    assert_eq!(status(&layer, from("10.0.0.1")).await, 200);
    assert_eq!(
        header(&send(&layer, from("10.0.0.1")).await, "ratelimit"),
        "\"api-second\";r=0;t=1"
    );
    clock.advance(Duration::from_secs(1));
    assert_eq!(status(&layer, from("10.0.0.1")).await, 200);
    let response = send(&layer, from("10.0.0.1")).await;
    assert_eq!(
        header(&response, "ratelimit-policy"),
        "\"api-second\";q=2;w=1, \"api-day\";q=3;w=86400"
    );
    assert!(header(&response, "ratelimit").starts_with("\"api-day\";r=0;"));
}

#[tokio::test]
async fn a_policy_covers_what_its_condition_says() {
    let login =
        Policy::new("login", Quota::per_hour(1)).when(|request| request.uri().path() == "/login");
    let (layer, _) = layer([login]);
    let to = |path: &str| {
        let mut request = from("10.0.0.1");
        *request.uri_mut() = path.parse().unwrap();
        request
    };

    assert_eq!(status(&layer, to("/login")).await, 200);
    assert_eq!(status(&layer, to("/login")).await, 429);
    let uncovered = send(&layer, to("/elsewhere")).await;
    assert_eq!(
        (uncovered.status().as_u16(), header(&uncovered, "ratelimit")),
        (200, "")
    );
}

#[tokio::test]
async fn a_cost_is_taken_whole_or_not_at_all() {
    let (layer, _) = layer([Policy::new("heavy", Quota::per_hour(5)).cost(2)]);

    assert_eq!(
        header(&send(&layer, from("10.0.0.1")).await, "ratelimit"),
        "\"heavy\";r=3;t=1440"
    );
    assert_eq!(
        header(&send(&layer, from("10.0.0.1")).await, "ratelimit"),
        "\"heavy\";r=1;t=2880"
    );
    assert_eq!(status(&layer, from("10.0.0.1")).await, 429);
}

#[tokio::test]
async fn pitfall_a_cost_above_the_burst_got_a_finite_retry_after() {
    let (layer, _) = layer([Policy::new("heavy", Quota::per_hour(5)).cost_by(|_| 6)]);

    let response = send(&layer, from("10.0.0.1")).await;

    assert_eq!(response.status(), 429);
    assert!(!response.headers().contains_key("retry-after"));
    assert_eq!(header(&response, "ratelimit"), "\"heavy\";r=0");
}

#[tokio::test]
async fn a_policy_on_trial_is_never_in_the_way() {
    let (layer, _) = layer([
        Policy::new("trial", Quota::per_hour(1)).shadow(),
        Policy::new("real", Quota::per_hour(3)),
    ]);

    for left in [2, 1, 0] {
        let response = send(&layer, from("10.0.0.1")).await;
        assert_eq!(response.status(), 200);
        assert!(header(&response, "ratelimit").starts_with(&format!("\"real\";r={left};")));
        assert_eq!(header(&response, "ratelimit-policy"), "\"real\";q=3;w=3600");
    }
    let refused = send(&layer, from("10.0.0.1")).await;
    assert_eq!(refused.status(), 429);
    assert!(String::from_utf8_lossy(&body(refused).await).contains("[\"real\"]"));
}

#[tokio::test]
async fn what_a_policy_on_trial_would_have_said_reaches_the_handler() {
    let (layer, _) = layer([Policy::new("trial", Quota::per_hour(1)).shadow()]);
    let told = service_fn(async |request: Request<Body>| {
        let status = request.extensions().get::<RateLimitStatus>().unwrap();
        let verdicts = status.verdicts();
        let told = verdicts.iter().map(|one| {
            (
                one.policy().to_owned(),
                one.is_enforced(),
                one.verdict().is_denied(),
            )
        });
        let mut response = Response::new(Body::default());
        response.extensions_mut().insert(told.collect::<Vec<_>>());
        Ok::<_, Infallible>(response)
    });

    for denied in [false, true, true] {
        let response = layer.layer(told).oneshot(from("10.0.0.1")).await.unwrap();
        let told: &Vec<(String, bool, bool)> = response.extensions().get().unwrap();
        assert_eq!(*told, [("trial".to_owned(), false, denied)]);
    }
}

#[tokio::test]
async fn callers_that_cannot_be_told_apart_share_one_budget_unless_told_otherwise() {
    let policy = || Policy::new("keyed", Quota::per_hour(1)).key(Header::new("x-api-key"));

    let (share, _) = layer([policy()]);
    assert_eq!(status(&share, from("10.0.0.1")).await, 200);
    assert_eq!(status(&share, from("10.0.0.2")).await, 429);
    assert_eq!(status(&share, with_header("x-api-key", b"mine")).await, 200);

    let (pass, _) = layer([policy().on_missing(OnMissing::Pass)]);
    assert_eq!(status(&pass, from("10.0.0.1")).await, 200);
    assert_eq!(status(&pass, from("10.0.0.1")).await, 200);

    let (deny, _) = layer([policy().on_missing(OnMissing::Deny)]);
    let refused = send(&deny, from("10.0.0.1")).await;
    assert_eq!(refused.status(), 403);
    assert_eq!(header(&refused, "retry-after"), "");
    assert_eq!(header(&refused, "cache-control"), "no-store");
    assert!(String::from_utf8_lossy(&body(refused).await).contains("no header x-api-key"));
}

/// Otherwise one caller who leaves a part out locks out all others who lack it.
#[tokio::test]
async fn who_lacks_a_part_of_a_key_shares_a_budget_only_with_those_who_agree_in_the_others() {
    let keys: [fn(Policy) -> Policy; 5] = [
        |policy| policy.key((ClientIp, Cookie::new("session"))),
        |policy| policy.key((Cookie::new("device"), (ClientIp, Cookie::new("session")))),
        |_| {
            let address = |request: &RequestView<'_>| request.client_ip().map(|ip| ip.to_string());
            waiting_for(
                from_async_fn(move |request| ready(address(request))),
                OnMissing::Share,
            )
        },
        |policy| policy.key((Header::new("x-none"), ClientIp, MatchedRoute)),
        |policy| policy.key_async((ClientIp, from_async_fn(|_| ready(None::<&str>)))),
    ];
    for key in keys {
        let (layer, _) = layer([key(Policy::new("keyed", Quota::per_hour(1)))]);

        for caller in ["10.0.0.1", "10.0.0.2"] {
            assert_eq!(status(&layer, from(caller)).await, 200, "{caller}");
            assert_eq!(status(&layer, from(caller)).await, 429, "{caller}");
        }
    }
}

/// A policy of a file whose key has a first part that is waited for.
fn waiting_for(caller: impl AsyncKeyExtractor, on_missing: OnMissing) -> Policy {
    let file = r#"{ "name": "keyed", "quotas": "1/h", "key": [{ "registered": "caller" }, { "header": "x-none" }] }"#;
    let mut config: PolicyConfig = serde_json::from_str(file).unwrap();
    config.on_missing = on_missing;
    let registry = Registry::new().register_key_async("caller", caller);
    config.build(&registry, &ClientAddress::peer()).unwrap()
}

/// A part that is waited for is asked for even if another one is missing.
#[tokio::test]
async fn an_ambiguous_part_that_is_waited_for_never_passes_for_an_absent_one() {
    let unclear = || Err::<Key, _>(KeyMissing::new("caller").ambiguous("it has several values"));
    let policy = waiting_for(from_async_fn(move |_| ready(unclear())), OnMissing::Pass);
    let (layer, _) = layer([policy]);
    assert_eq!(status(&layer, from("10.0.0.1")).await, 200);
    assert_eq!(status(&layer, from("10.0.0.1")).await, 429);
}

#[tokio::test]
async fn an_ambiguous_part_of_a_key_is_charged_to_those_who_agree_in_the_others() {
    let policy = Policy::new("keyed", Quota::per_hour(1))
        .key((ClientIp, Cookie::new("session")))
        .on_missing(OnMissing::Pass);
    let (layer, _) = layer([policy]);
    let ambiguous = |caller: &str, cookie: &'static str| {
        let mut request = from(caller);
        let cookie = http::HeaderValue::from_static(cookie);
        request.headers_mut().append("cookie", cookie);
        request
    };

    let first = ambiguous("10.0.0.1", "session=a; session=b");
    assert_eq!(status(&layer, first).await, 200);
    let again = ambiguous("10.0.0.1", "session=c; session=d");
    assert_eq!(status(&layer, again).await, 429);
    let other = ambiguous("10.0.0.2", "session=c; session=d");
    assert_eq!(status(&layer, other).await, 200);
    assert_eq!(status(&layer, from("10.0.0.1")).await, 200);
}

#[tokio::test]
async fn a_policy_on_trial_refuses_nobody_for_want_of_a_key() {
    let policy = Policy::new("keyed", Quota::per_hour(1))
        .key(Header::new("x-api-key"))
        .on_missing(OnMissing::Deny)
        .shadow();
    let (layer, _) = layer([policy]);

    assert_eq!(status(&layer, from("10.0.0.1")).await, 200);
}

#[tokio::test]
async fn nothing_that_a_request_brings_spends_the_budget_of_those_without_a_key() {
    let (layer, _) =
        layer([Policy::new("keyed", Quota::per_hour(1)).key(Header::new("x-api-key"))]);

    assert_eq!(status(&layer, from("10.0.0.1")).await, 200);
    for value in [&b"\x01"[..], b"-", b"missing", b"\xff"] {
        let allowed = http::HeaderValue::from_bytes(value).is_ok();
        assert!(!allowed || status(&layer, with_header("x-api-key", value)).await == 200);
    }
}

#[tokio::test]
async fn keys_of_a_megabyte_and_keys_that_are_not_utf_8_work_like_any_other() {
    let (layer, _) =
        layer([Policy::new("keyed", Quota::per_hour(1)).key(Header::new("x-api-key"))]);
    let mut long = vec![b'k'; 1 << 20];

    assert_eq!(status(&layer, with_header("x-api-key", &long)).await, 200);
    assert_eq!(status(&layer, with_header("x-api-key", &long)).await, 429);
    long[0] = b'K';
    assert_eq!(status(&layer, with_header("x-api-key", &long)).await, 200);
    assert_eq!(
        status(&layer, with_header("x-api-key", b"\xff\xfe")).await,
        200
    );
    assert_eq!(
        status(&layer, with_header("x-api-key", b"\xff\xfe")).await,
        429
    );
}

#[tokio::test]
async fn pitfall_leftmost_x_forwarded_for_trusted() {
    // An attacker who sets a new address with each request still has one budget.
    let (layer, _) = layer([Policy::new("ip", Quota::per_hour(1)).key(ClientIp)]);

    assert_eq!(
        status(&layer, with_header("x-forwarded-for", b"203.0.113.1")).await,
        200
    );
    for n in 2..20 {
        let forged = format!("203.0.113.{n}");
        for name in [
            "x-forwarded-for",
            "forwarded",
            "x-real-ip",
            "cf-connecting-ip",
        ] {
            assert_eq!(
                status(&layer, with_header(name, forged.as_bytes())).await,
                429
            );
        }
    }
}

async fn body(response: Response<Body>) -> bytes::Bytes {
    use http_body_util::BodyExt;

    response.into_body().collect().await.unwrap().to_bytes()
}

/// Requests that differ in all that a policy may look at.
fn all_sorts() -> Vec<Request<Body>> {
    let mut requests = Vec::new();
    for path in ["/v1/7", "/v1//7/", "/v1/%37", "/v1/8", "/v2/7"] {
        for method in [Method::GET, Method::HEAD, Method::POST, Method::OPTIONS] {
            for peer in [Some("10.0.0.1"), Some("[2001:db8::1]"), None] {
                let mut request = peer.map_or_else(|| Request::new(Body::default()), from);
                *request.uri_mut() = path.parse().unwrap();
                *request.method_mut() = method.clone();
                let names = ["origin", "access-control-request-method", "x-key"];
                for name in names {
                    let value = http::HeaderValue::from_static("x");
                    request.headers_mut().insert(name, value);
                }
                requests.push(request);
            }
        }
    }
    requests
}

#[tokio::test]
async fn a_policy_charges_the_same_whether_requests_meet_others_or_not() {
    // given policies of every kind, each by itself and beside one that is on trial
    let policy = || Policy::new("paths", Quota::per_hour(3)).route("/v1/{id}");
    let policies = [
        policy(),
        policy().method(Method::POST),
        policy().exempt_method(Method::GET),
        policy().exempt_preflights(),
        policy().exempt_route("/v1/8"),
        policy().key(Header::new("x-key")),
        policy().key(PathParam::new("id")),
        policy()
            .key(Header::new("x-none"))
            .on_missing(OnMissing::Pass),
        policy()
            .key(Header::new("x-none"))
            .on_missing(OnMissing::Deny),
        Policy::new("anywhere", Quota::per_hour(3)).exempt_route("/v2/{*rest}"),
    ];
    for policy in policies {
        let name = format!("{policy:?}");
        let other = Policy::new("other", Quota::per_hour(3))
            .key(Global)
            .shadow();
        let (alone, _clock) = layer([policy.clone()]);
        let (among, _clock) = layer([policy, other]);
        let mut refused = 0;

        // when both get the same requests
        for (request, same) in all_sorts().into_iter().zip(all_sorts()) {
            let asked = format!("{name}: {request:?}");
            let alone = status(&alone, request).await;
            let among = status(&among, same).await;

            // then both say the same
            assert_eq!(alone, among, "{asked}");
            refused += usize::from(alone != 200);
        }
        let passes_all = name.contains("on_missing: Pass");
        assert_eq!(refused == 0, passes_all, "{name}");
    }
}

#[tokio::test]
async fn two_policies_may_each_have_a_quota_of_one_name() {
    let quotas = || [("second", "5/s"), ("day", "2 per day")];
    let (layer, _) = layer([
        Policy::new("api", quotas()),
        Policy::new("web", quotas()).key(Global),
    ]);

    assert_eq!(status(&layer, from("10.0.0.1")).await, 200);
    let response = send(&layer, from("10.0.0.1")).await;
    let members = header(&response, "ratelimit-policy");
    for name in ["api-second", "api-day", "web-second", "web-day"] {
        assert!(members.contains(&format!("\"{name}\";q=")), "{members}");
    }
    // Each has a state of its own: another address has its own day, and the day of all callers is over.
    assert_eq!(status(&layer, from("10.0.0.2")).await, 429);
}

#[tokio::test]
async fn a_limit_of_0_refuses_everybody_and_a_policy_on_trial_nobody() {
    let (closed, _) = layer([
        Policy::new("api", "5/s"),
        Policy::new("closed", Quotas::none()),
    ]);
    for _ in 0..6 {
        let response = send(&closed, from("10.0.0.1")).await;
        assert_eq!(response.status(), 403);
        assert_eq!(header(&response, "retry-after"), "");
    }
    let (trial, _) = layer([Policy::new("closed", "none").shadow()]);
    assert_eq!(status(&trial, from("10.0.0.1")).await, 200);

    // A tier opens what is closed, and closes what is open; the other policies are not charged.
    let partners = Tiers::by_key([("10.0.0.7".parse::<IpAddr>().unwrap(), "partner")]);
    let policy = Policy::new("closed", "none").tiers(partners.tier("partner", "1/h"));
    let limiter = Limiter::from(policy);
    let opened = RateLimitLayer::new(&limiter);
    assert_eq!(status(&opened, from("10.0.0.1")).await, 403);
    assert_eq!(status(&opened, from("10.0.0.7")).await, 200);
    assert_eq!(status(&opened, from("10.0.0.7")).await, 429);
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let checked = limiter.check("closed", ip("10.0.0.1")).await.unwrap();
    assert!(!checked.is_allowed() && checked.blocked() == Some(Block::Forbidden));
    let blocked = Tiers::by_key([(ip("10.0.0.9"), "blocked")]).tier("blocked", Quotas::none());
    let (layer, _) = layer([Policy::new("api", "1/h").tiers(blocked)]);
    assert_eq!(status(&layer, from("10.0.0.9")).await, 403);
    assert_eq!(status(&layer, from("10.0.0.1")).await, 200);
}
