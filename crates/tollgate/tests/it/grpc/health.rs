//! Calls that load balancers and tools make unasked.

use std::convert::Infallible;

use http::{Method, Request, Response};
use tollgate::key::Global;
use tollgate::{Key, Limiter, LimiterBuilder, Policy, Quota, RateLimitLayer};
use tonic::Code;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::ServiceExt;
use tower_layer::Layer;

use crate::grpc::serving::incoming;

/// The results of three health checks.
async fn three_checks(limiter: LimiterBuilder) -> [Code; 3] {
    let layer = RateLimitLayer::new(limiter.build().unwrap());
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    let (address, incoming) = incoming().await;
    tokio::spawn(server.serve_with_incoming(incoming));

    let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let mut codes = [Code::Ok; 3];
    for code in &mut codes {
        let checked = client.check(HealthCheckRequest::default()).await;
        *code = checked.map_or_else(|status| status.code(), |_| Code::Ok);
    }
    codes
}

fn one() -> Policy {
    Policy::new("one", Quota::per_hour(1)).key(Global)
}

#[tokio::test]
async fn pitfall_health_checks_burn_the_quota_unless_the_operator_exempts_them() {
    let exempt = || Limiter::builder().exempt_health_checks();
    for limiter in [
        exempt().policy(one()),
        exempt().policy(one().grpc("grpc.health.*")),
        Limiter::builder().policy(one().exempt_health_checks()),
    ] {
        assert_eq!(three_checks(limiter).await, [Code::Ok; 3]);
    }

    let charged = [
        Limiter::builder().policy(one()),
        // A policy that names the service means it.
        exempt().policy(one().grpc("grpc.health.v1.Health/Check")),
        exempt().policy(one().route("/grpc.health.v1.Health/{method}")),
        Limiter::builder().policy(one().exempt_health_checks().grpc("grpc.health.v1.Health/*")),
    ];
    for limiter in charged {
        let denied = Code::ResourceExhausted;
        assert_eq!(three_checks(limiter).await, [Code::Ok, denied, denied]);
    }
}

/// The rest of a budget of one after this call.
async fn left(limiter: LimiterBuilder, call: Request<tonic::body::Body>) -> u64 {
    let limiter = limiter.build().unwrap();
    let service = RateLimitLayer::new(&limiter).layer(tower::service_fn(async |_| {
        Ok::<_, Infallible>(Response::new(tonic::body::Body::empty()))
    }));
    service.oneshot(call).await.unwrap();
    let asked = limiter.check("one", Key::global()).cost(0).await;
    asked.unwrap().remaining()
}

fn call(path: &str) -> Request<tonic::body::Body> {
    Request::post(path)
        .header("content-type", "application/grpc")
        .body(tonic::body::Body::empty())
        .unwrap()
}

#[tokio::test]
async fn reflection_is_exempt_with_health_checks() {
    for service in [
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ] {
        let limiter = || Limiter::builder().policy(one());
        let path = format!("/{service}/ServerReflectionInfo");
        assert_eq!(left(limiter(), call(&path)).await, 0, "{service}");
        let exempt = limiter().exempt_health_checks();
        assert_eq!(left(exempt, call(&path)).await, 1, "{service}");
    }
}

#[tokio::test]
async fn an_exempt_health_check_is_one_in_everything() {
    let check = "/grpc.health.v1.Health/Check";
    let mut others: Vec<_> = [
        "/grpc.health.v1.Health/x",
        "/grpc.health.v1.Health/check",
        "/grpc.health.v1.Health/Check/",
        "/grpc.health.v1.Health//Check",
        "/grpc.health.v1.Health/%43heck",
        "/grpc.health.v1.Health/../../admin/login",
        "/api/grpc.health.v1.Health/Check",
        "/shop.reflection.v1.ServerReflection/ServerReflectionInfo",
    ]
    .map(call)
    .into();
    for method in [Method::GET, Method::PUT, Method::OPTIONS] {
        let mut other = call(check);
        *other.method_mut() = method;
        others.push(other);
    }
    for content in ["application/json", "application/grpcx", ""] {
        let mut other = call(check);
        let content = content.parse().unwrap();
        other.headers_mut().insert("content-type", content);
        others.push(other);
    }
    let mut twice = call(check);
    let json = "application/json".parse().unwrap();
    twice.headers_mut().append("content-type", json);
    others.push(twice);
    let mut none = call(check);
    none.headers_mut().remove("content-type");
    others.push(none);

    let limiter = || Limiter::builder().policy(one()).exempt_health_checks();
    assert_eq!(left(limiter(), call(check)).await, 1);
    for other in others {
        let asked = format!("{other:?}");
        assert_eq!(left(limiter(), other).await, 0, "{asked}");
    }
}
