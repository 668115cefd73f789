//! Calls that load balancers and tools make unasked.

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::key::Global;
use tollgate::{Key, Limiter, LimiterBuilder, Policy, Quota, RateLimitLayer};
use tonic::Code;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::ServiceExt;
use tower_layer::Layer;

use crate::serving::incoming;

/// What comes of three health checks.
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
async fn pitfall_health_checks_do_not_burn_the_quota_unless_somebody_says_so() {
    let exempt = [
        Limiter::builder().policy(one()),
        Limiter::builder().policy(one().exempt_route("/x")),
        Limiter::builder().policy(one().grpc("grpc.health.*")),
    ];
    for limiter in exempt {
        assert_eq!(three_checks(limiter).await, [Code::Ok; 3]);
    }

    let charged = [
        Limiter::builder().policy(one()).charge_health_checks(),
        Limiter::builder().policy(one().charge_health_checks()),
        // Whoever names the service means it.
        Limiter::builder().policy(one().grpc("grpc.health.v1.Health/Check")),
        Limiter::builder().policy(one().route("/grpc.health.v1.Health/{method}")),
    ];
    for limiter in charged {
        let denied = Code::ResourceExhausted;
        assert_eq!(three_checks(limiter).await, [Code::Ok, denied, denied]);
    }
}

#[tokio::test]
async fn reflection_is_as_free_as_health_checks() {
    let left = async |limiter: LimiterBuilder, service: &str| {
        let limiter = limiter.build().unwrap();
        let call = Request::post(format!("/{service}/ServerReflectionInfo"))
            .header("content-type", "application/grpc")
            .body(tonic::body::Body::empty());
        let service = RateLimitLayer::new(&limiter).layer(tower::service_fn(async |_| {
            Ok::<_, Infallible>(Response::new(tonic::body::Body::empty()))
        }));
        service.oneshot(call.unwrap()).await.unwrap();
        let asked = limiter.check("one", Key::global()).cost(0).await;
        asked.unwrap().remaining()
    };
    for service in [
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ] {
        let limiter = || Limiter::builder().policy(one());
        assert_eq!(left(limiter(), service).await, 1, "{service}");
        let charged = limiter().charge_health_checks();
        assert_eq!(left(charged, service).await, 0, "{service}");
    }
    // A service of somebody's own is none of these.
    let other = Limiter::builder().policy(one());
    assert_eq!(left(other, "shop.reflection.v1.ServerReflection").await, 0);
}
