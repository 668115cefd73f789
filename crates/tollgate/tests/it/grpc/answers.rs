//! Answers to callers.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tollgate::key::{self, Global, Header, KeyList};
use tollgate::{
    Block, FailureKind, GrpcAnswers, GrpcCode, GrpcStatus, Limiter, OnFailure, OnMissing, Policy,
    Quota, RateLimitHeaders, RateLimitLayer, RefusalReason,
};
use tollgate_testkit::shop::Order;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::common::{Waiting, at_a_standstill};
use crate::grpc::serving::Served;

fn metadata<'a>(status: &'a Status, name: &str) -> Option<&'a str> {
    let value = status.metadata().get(name)?;
    Some(value.to_str().unwrap())
}

fn pushback_ms(status: &Status) -> Option<i32> {
    let value = metadata(status, "grpc-retry-pushback-ms")?;
    Some(value.parse().unwrap())
}

#[tokio::test]
async fn a_denial_says_why_and_when_to_come_back() {
    // given a budget of one for each hour, which is spent
    let (backend, _) = at_a_standstill();
    let limiter = Limiter::builder()
        .policy(Policy::new("orders", Quota::per_hour(1)))
        .backend(backend)
        .build()
        .unwrap();
    let served = Served::behind(RateLimitLayer::new(limiter)).await;
    served.place().await.unwrap();

    // when another call comes
    let denied = served.place().await.unwrap_err();

    // then the service does not see it, and the caller is told everything once
    assert_eq!(served.shop.calls(), 1);
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(denied.message(), "quota exceeded");
    let pushback_ms = pushback_ms(&denied).unwrap();
    assert!(
        (3_600_000..=3_960_000).contains(&pushback_ms),
        "{pushback_ms}"
    );
    assert_eq!(metadata(&denied, "retry-after"), Some("3600"));
    assert_eq!(metadata(&denied, "ratelimit"), None);

    let details = denied.get_error_details();
    let retry = details.retry_info().unwrap();
    assert_eq!(retry.retry_delay, Some(Duration::from_secs(3_600)));
    let [violation] = &details.quota_failure().unwrap().violations[..] else {
        panic!("{details:?}");
    };
    assert_eq!(violation.subject, "policy:orders");
    assert_eq!(violation.quota_id, "orders");
    assert_eq!(violation.quota_value, 1);
    assert_eq!(violation.description, "exceeds 1/h");
    let info = details.error_info().unwrap();
    assert_eq!(
        (&*info.reason, &*info.domain),
        ("RATE_LIMIT_EXCEEDED", "tollgate")
    );
}

#[tokio::test]
async fn a_call_is_refused_in_grpc_and_other_methods_in_http() {
    for names in [&["one"][..], &["one", "two"]] {
        // given limits that are spent
        let mut limiter = Limiter::builder();
        for name in names {
            let policy = Policy::new(name, Quota::per_hour(1));
            limiter = limiter.policy(policy.key(Global));
        }
        let layer = RateLimitLayer::new(limiter.build().unwrap());
        let served = Served::behind(layer).await;
        served.place().await.unwrap();

        // when calls come, also by methods that no gRPC client uses and tonic runs all the same
        for method in ["POST", "PUT", "GET", "OPTIONS", "LABEL"] {
            let mut client = Client::builder(TokioExecutor::new());
            let client = client.http2_only(true).build_http::<Full<Bytes>>();
            let call = http::Request::builder()
                .method(method)
                .uri(format!("http://{}/shop.v1.Orders/Place", served.address))
                .header("content-type", "application/grpc")
                .body(Full::new(Bytes::from_static(&[0; 5])));
            let answer = client.request(call.unwrap()).await.unwrap();

            // then clients of gRPC are answered in gRPC, and others in HTTP
            let told = ["grpc-status", "content-type"];
            let told = told.map(|name| answer.headers().get(name).map(HeaderValue::as_bytes));
            let expected = match method {
                "POST" => (200, [Some(&b"8"[..]), Some(b"application/grpc")]),
                _ => (429, [None, Some(&b"application/problem+json"[..])]),
            };
            assert_eq!((answer.status().as_u16(), told), expected, "{method}");
        }
        assert_eq!(served.shop.calls(), 1);
    }
}

#[tokio::test]
async fn a_call_is_refused_in_grpc_however_its_content_type_is_spelled() {
    // given a limit that one call has spent
    let layer = || RateLimitLayer::new(Policy::new("calls", Quota::per_hour(1)).key(Global));
    let call = |address, content_type: &'static str| {
        let call = http::Request::post(format!("http://{address}/shop.v1.Orders/Place"))
            .header("content-type", content_type)
            .body(Full::new(Bytes::from_static(&[0; 5])));
        let mut client = Client::builder(TokioExecutor::new());
        let client = client.http2_only(true).build_http::<Full<Bytes>>();
        async move { client.request(call.unwrap()).await.unwrap() }
    };
    for (content_type, expected) in [
        ("application/GRPC", "application/grpc"),
        ("Application/gRPC+proto", "application/grpc"),
        ("APPLICATION/GRPC;charset=utf-8", "application/grpc"),
        ("application/grpc ; charset=utf-8", "application/grpc"),
        (" application/grpc", "application/grpc"),
        ("application/grpc-Web+proto", "application/grpc-web+proto"),
    ] {
        let served = Served::behind(layer()).await;

        // when tonic runs a call of this type, and another one comes
        let passed = call(served.address, content_type).await;
        assert_eq!((passed.status().as_u16(), served.shop.calls()), (200, 1));
        let refused = call(served.address, content_type).await;

        // then its caller is told in gRPC, in the headers, since there is nothing else
        let told = ["grpc-status", "content-type"];
        let told = told.map(|name| refused.headers().get(name).map(HeaderValue::as_bytes));
        let expected = [Some(&b"8"[..]), Some(expected.as_bytes())];
        assert_eq!(
            (refused.status().as_u16(), told),
            (200, expected),
            "{content_type}"
        );
        assert_eq!(served.shop.calls(), 1);
    }
}

#[tokio::test]
async fn an_allowed_call_carries_the_fields_as_metadata_if_they_are_asked_for() {
    for (headers, expected) in [
        (RateLimitHeaders::default(), None),
        (
            RateLimitHeaders::default().over_grpc(),
            Some("\"orders\";r=2;t=1200"),
        ),
    ] {
        let policy = Policy::new("orders", Quota::per_hour(3));
        let served = Served::behind(RateLimitLayer::new(policy).headers(headers)).await;

        let order = Order::default();
        let receipt = served.client().await.place(order).await.unwrap();

        let field = receipt.metadata().get("ratelimit");
        assert_eq!(field.map(|field| field.to_str().unwrap()), expected);
    }
}

#[tokio::test]
async fn each_policy_that_refuses_is_one_violation() {
    // given three policies, of which two refuse, one of them with two quotas
    let (backend, _) = at_a_standstill();
    let limiter = Limiter::builder()
        .policy(Policy::new("roomy", Quota::per_hour(100)).key(Global))
        .policy(Policy::new("narrow", Quota::per_hour(1)).key(Global))
        .policy(Policy::new("twice", [Quota::per_minute(1), Quota::per_day(1)]).key(Global))
        .backend(backend)
        .build()
        .unwrap();
    let served = Served::behind(RateLimitLayer::new(limiter)).await;
    served.place().await.unwrap();

    let denied = served.place().await.unwrap_err();

    let details = denied.get_error_details();
    let violations = &details.quota_failure().unwrap().violations;
    let violations: Vec<_> = violations
        .iter()
        .map(|one| (&*one.quota_id, &*one.description))
        .collect();
    assert_eq!(
        violations,
        [
            ("narrow", "exceeds 1/h"),
            ("twice", "exceeds 1/min and 1/day")
        ]
    );
    assert_eq!(
        details.retry_info().unwrap().retry_delay,
        Some(Duration::from_secs(86_400))
    );
}

#[tokio::test]
async fn what_can_never_pass_is_not_to_be_retried() {
    let policy = Policy::new("orders", Quota::per_hour(1)).cost_by(|_| 2);
    let served = Served::behind(RateLimitLayer::new(policy)).await;

    let denied = served.place().await.unwrap_err();

    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(pushback_ms(&denied), Some(-1));
    assert_eq!(metadata(&denied, "retry-after"), None);
    let details = denied.get_error_details();
    assert!(details.retry_info().is_none());
    assert!(details.quota_failure().is_some());
}

#[tokio::test]
async fn details_and_pushback_can_be_switched_off() {
    let cases = [
        (GrpcAnswers::new(), true, true),
        (GrpcAnswers::new().without_details(), false, true),
        (GrpcAnswers::new().without_pushback(), true, false),
    ];
    for (answers, has_details, has_pushback) in cases {
        let layer = RateLimitLayer::new(Quota::per_hour(1)).grpc(answers.clone());
        let served = Served::behind(layer).await;
        served.place().await.unwrap();
        let denied = served.place().await.unwrap_err();

        assert_eq!(denied.code(), Code::ResourceExhausted);
        assert_eq!(!denied.details().is_empty(), has_details, "{answers:?}");
        assert_eq!(pushback_ms(&denied).is_some(), has_pushback, "{answers:?}");
    }
}

#[tokio::test]
async fn the_jitter_of_the_layer_is_the_one_of_every_answer() {
    let hour = Duration::from_secs(3_600);
    let layer = RateLimitLayer::new(Quota::per_hour(1)).jitter(hour);
    let served = Served::behind(layer).await;
    served.place().await.unwrap();

    let denied = served.place().await.unwrap_err();

    let retry = denied.get_error_details().retry_info().cloned();
    let delay = retry.and_then(|retry| retry.retry_delay).unwrap();
    let pushback = Duration::from_millis(pushback_ms(&denied).unwrap().try_into().unwrap());
    assert!(delay <= pushback && pushback < delay + Duration::from_millis(1));
    assert!(
        hour - Duration::from_secs(60) < delay && delay <= 2 * hour,
        "{delay:?}"
    );
}

#[tokio::test]
async fn the_domain_is_the_services_own() {
    let answers = GrpcAnswers::new().domain("shop.example.com");
    let layer = RateLimitLayer::new(Quota::per_hour(1)).grpc(answers);
    let served = Served::behind(layer).await;
    served.place().await.unwrap();

    let denied = served.place().await.unwrap_err();

    let details = denied.get_error_details();
    assert_eq!(details.error_info().unwrap().domain, "shop.example.com");
}

#[tokio::test]
async fn a_failure_that_denies_is_unavailable_and_no_quota_failure() {
    let (memory, _) = at_a_standstill();
    let backend = Waiting::new(memory);
    backend.fail_with(Some(FailureKind::Unreachable));
    backend.gate.add_permits(1);
    let limiter = Limiter::builder()
        .policy(Policy::new("orders", Quota::per_hour(1)).on_failure(OnFailure::Deny))
        .backend(backend)
        .build()
        .unwrap();
    let served = Served::behind(RateLimitLayer::new(limiter)).await;

    let refused = served.place().await.unwrap_err();

    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(pushback_ms(&refused), None);
    let details = refused.get_error_details();
    let info = details.error_info().unwrap();
    assert_eq!(info.reason, "RATE_LIMITER_UNAVAILABLE");
    assert!(details.quota_failure().is_none() && details.retry_info().is_none());
    assert_eq!(served.shop.calls(), 0);
}

#[tokio::test]
async fn a_caller_that_must_say_who_it_is_is_told_what_is_missing_and_asked_for_it_where_that_was_asked()
 {
    let policy = || {
        Policy::new("orders", Quota::per_hour(9))
            .key(Header::new("x-api-key"))
            .on_missing(OnMissing::Deny)
    };
    let layer = || RateLimitLayer::new(policy());
    for (layer, code) in [
        (layer(), Code::PermissionDenied),
        (
            layer().grpc(GrpcAnswers::new().unauthenticated()),
            Code::Unauthenticated,
        ),
        (
            layer().challenge(HeaderValue::from_static("Bearer")),
            Code::Unauthenticated,
        ),
    ] {
        let served = Served::behind(layer).await;

        let refused = served.place().await.unwrap_err();

        assert_eq!(refused.code(), code);
        assert_eq!(
            refused.message(),
            "there is no header x-api-key in the request"
        );
        let details = refused.get_error_details();
        assert_eq!(
            details.error_info().unwrap().metadata["missing"],
            "header x-api-key"
        );
        assert_eq!(served.shop.calls(), 0);
    }
}

#[tokio::test]
async fn code_and_message_of_a_refusal_are_the_operators_to_choose() {
    let answers = GrpcAnswers::new().status_by(|refusal, usual| match refusal.reason() {
        RefusalReason::QuotaExceeded => {
            assert_eq!(refusal.request().uri().path(), "/shop.v1.Orders/Place");
            GrpcStatus::new(
                GrpcCode::Aborted,
                format!("{}: 100 % für heute", usual.message),
            )
        }
        _ => usual,
    });
    for details in [answers.clone(), answers.without_details()] {
        let layer = RateLimitLayer::new(Quota::per_hour(1)).grpc(details);
        let served = Served::behind(layer).await;
        served.place().await.unwrap();

        let refused = served.place().await.unwrap_err();

        assert_eq!(refused.code(), Code::Aborted);
        assert_eq!(refused.message(), "quota exceeded: 100 % für heute");
        assert!(pushback_ms(&refused).is_some());
    }
}

#[tokio::test]
async fn callers_that_no_waiting_helps_are_told_not_to_retry() {
    let unidentified = Policy::new("orders", Quota::per_hour(9))
        .key(Header::new("x-api-key"))
        .on_missing(OnMissing::Deny);
    let by_mallory = |how| {
        let blocked = KeyList::new();
        blocked.insert("mallory");
        Policy::new("orders", Quota::per_hour(9))
            .key(key::from_fn(|_| Some("mallory")))
            .block_keys(&blocked, how)
    };
    let cases = [
        (unidentified, Code::PermissionDenied, "CALLER_UNIDENTIFIED"),
        (
            by_mallory(Block::Forbidden),
            Code::PermissionDenied,
            "CALLER_BLOCKED",
        ),
        (
            by_mallory(Block::TooManyRequests),
            Code::ResourceExhausted,
            "CALLER_BLOCKED",
        ),
    ];
    for (policy, code, reason) in cases {
        let served = Served::behind(RateLimitLayer::new(policy)).await;

        let refused = served.place().await.unwrap_err();

        assert_eq!(refused.code(), code);
        assert_eq!(pushback_ms(&refused), Some(-1));
        assert_eq!(
            refused.get_error_details().error_info().unwrap().reason,
            reason
        );
    }
}
