//! An event says by which way its request came, whatever became of it.

#![cfg(feature = "tonic")]

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::{Body, Strict, Waiting, at_a_standstill, from};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tollgate::key::{Global, Header, KeyList};
use tollgate::{
    Block, Cause, Concurrent, Event, FailureKind, Key, Limiter, LimiterBuilder, MessageBody,
    MessageLimitLayer, Messages, OnFailure, OnMissing, OnUnknown, Policy, PressureGauge, Quota,
    QuotaLookup, Quotas, RateLimitInterceptor, RateLimitLayer, Share, Switch, Tiers, Transport,
};
use tonic::service::Interceptor;
use tower::{Layer, ServiceExt, service_fn};

#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<(Cause, Transport)>>>);

impl Ear {
    fn listening(&self) -> LimiterBuilder {
        let heard = Arc::clone(&self.0);
        Limiter::builder().observe(move |event: &Event<'_>| {
            let mut heard = heard.lock().unwrap();
            heard.push((event.cause(), event.transport()));
        })
    }

    /// The transport of all events since the last question, if there are any and they agree.
    #[track_caller]
    fn transport(&self) -> Transport {
        let heard = std::mem::take(&mut *self.0.lock().unwrap());
        let transports: HashSet<_> = heard.iter().map(|(_, transport)| *transport).collect();
        assert_eq!(transports.len(), 1, "{heard:?}");
        heard[0].1
    }

    /// The causes and the transports of all events since the last question.
    fn take(&self) -> Vec<(Cause, Transport)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn typed(content_type: Option<&str>) -> Request<Body> {
    let mut request = from("10.0.0.1");
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = "/shop.v1.Orders/Place".parse().unwrap();
    if let Some(content_type) = content_type {
        let value = content_type.parse().unwrap();
        request.headers_mut().insert("content-type", value);
    }
    request
}

const TYPES: [(Option<&str>, Transport); 6] = [
    (None, Transport::Http),
    (Some("application/json"), Transport::Http),
    (Some("application/grpcish"), Transport::Http),
    (Some("application/grpc"), Transport::Grpc),
    (Some("Application/gRPC+proto"), Transport::Grpc),
    (Some("application/grpc-web-text"), Transport::Grpc),
];

#[tokio::test]
async fn each_way_to_find_the_policies_and_each_end_tells_of_the_transport() {
    let api = || Policy::new("api", Quota::per_hour(2)).count_if(|answer| answer.status() == 503);
    let slots = || Policy::new("slots", Concurrent::at_most(1)).on_demand();
    let ways = [
        vec![Policy::new("api", Quota::per_hour(1))],
        vec![api().when(|_| true)],
        vec![api().route("/{*rest}").route("/")],
        vec![api().exempt_preflights(), slots()],
    ];
    for policies in ways {
        for (content_type, expected) in TYPES {
            let ear = Ear::default();
            let limiter = ear.listening().policies(policies.clone());
            let limiter = limiter.backend(at_a_standstill().0).build().unwrap();
            let service = RateLimitLayer::new(&limiter).layer(Strict::default());
            // One that passes, with the correction of its charge, and one that may be denied.
            for _ in 0..2 {
                let answer = service.clone().oneshot(typed(content_type)).await.unwrap();
                assert_eq!(ear.transport(), expected, "{policies:?}, {content_type:?}");
                drop(answer);
            }
        }
    }
}

#[tokio::test]
async fn a_request_whose_backend_is_far_or_fails_keeps_its_transport() {
    for (content_type, expected) in TYPES {
        for failure in [None, Some(FailureKind::Unreachable)] {
            for on_failure in [
                OnFailure::Allow,
                OnFailure::Deny,
                OnFailure::Local(Share::WHOLE),
            ] {
                let ear = Ear::default();
                let backend = Waiting::new(at_a_standstill().0);
                let places = Concurrent::at_most(1);
                let limiter = ear.listening().backend(backend.clone()).policies([
                    Policy::new("api", Quota::per_hour(1)).on_failure(on_failure),
                    Policy::new("places", places).on_failure(on_failure),
                ]);
                let limiter = limiter.build().unwrap();
                let service = RateLimitLayer::new(&limiter).layer(Strict::default());

                // One that leaves while the backend is asked,
                let mut asks = Box::pin(service.clone().oneshot(typed(content_type)));
                let waits = Future::poll(asks.as_mut(), &mut Context::from_waker(Waker::noop()));
                assert!(waits.is_pending());
                drop(asks);
                assert_eq!(ear.transport(), expected);

                // and one that is answered, and gives back what it holds.
                backend.fail_with(failure);
                backend.gate.add_permits(8);
                let answer = service.oneshot(typed(content_type)).await.unwrap();
                drop(answer.into_body().collect().await);
                assert_eq!(ear.transport(), expected);
            }
        }
    }
}

#[tokio::test]
async fn what_no_quota_decides_tells_of_the_transport_too() {
    let alice = || ["alice"].into_iter().collect::<KeyList>();
    let named = |name: &str| Policy::new(name, Quota::per_hour(1)).key(Header::new("x-caller"));
    let tiers = Tiers::by_key([("alice", "closed")]).tier("closed", Quotas::none());
    let ear = Ear::default();
    let policies = || {
        [
            named("exempt").exempt_keys(alice()),
            named("off"),
            named("passed").on_missing(OnMissing::Pass),
            named("blocked")
                .block_keys(alice(), Block::Forbidden)
                .shadow(),
            named("tiers").tiers(tiers.clone()).shadow(),
            named("unidentified").on_missing(OnMissing::Deny),
        ]
    };
    let later = policies().map(|policy| {
        let name = format!("{}-later", policy.name());
        let unknown = async |_: Key| Err::<Option<Quota>, _>("the database is down");
        let lookup = QuotaLookup::new(Duration::from_secs(60), unknown).on_unknown(OnUnknown::Deny);
        named(&name).quota_by_async(lookup).shadow()
    });
    let limiter = ear.listening().policies(policies()).policies(later);
    let limiter = limiter.build().unwrap();
    limiter.switch("off", Switch::Off).unwrap();
    for caller in [None, Some("alice")] {
        for (content_type, expected) in TYPES {
            let mut request = typed(content_type);
            if let Some(caller) = caller {
                let headers = request.headers_mut();
                headers.insert("x-caller", caller.parse().unwrap());
            }
            let service = RateLimitLayer::new(&limiter).layer(Strict::default());
            drop(service.oneshot(request).await.unwrap());
            assert_eq!(ear.transport(), expected);
        }
    }
}

#[tokio::test]
async fn a_request_that_is_shed_has_a_transport_and_work_of_the_application_has_none() {
    let ear = Ear::default();
    let gauge = PressureGauge::new();
    let limiter = ear
        .listening()
        .policy(Policy::new("api", Quota::per_hour(9)));
    let limiter = limiter
        .classes(["normal", "batch"], Header::new("x-class"))
        .shed(&gauge, [("batch", 0.5)])
        .build()
        .unwrap();
    gauge.set(1.0);
    let service = RateLimitLayer::new(&limiter).layer(Strict::default());
    for (content_type, expected) in TYPES {
        let answer = service.clone().oneshot(typed(content_type)).await.unwrap();
        assert_eq!(
            answer.status(),
            if expected == Transport::Grpc {
                200
            } else {
                503
            }
        );
        assert_eq!(ear.take(), [(Cause::Shed, expected)]);
    }
    assert!(!limiter.check("api", "alice").await.unwrap().is_allowed());
    assert_eq!(ear.take(), [(Cause::Shed, Transport::Application)]);
}

#[tokio::test]
async fn what_the_application_asks_and_corrects_came_by_no_transport() {
    let ear = Ear::default();
    let limiter = ear
        .listening()
        .policies([
            Policy::new(
                "tokens",
                Quota::per_hour(9).wait_up_to(Duration::from_secs(1)),
            )
            .key(Global),
            Policy::new("places", Concurrent::at_most(2)).key(Global),
        ])
        .build()
        .unwrap();
    let both = || {
        let checks = ["tokens", "places"].map(|policy| limiter.check(policy, Key::global()));
        limiter.check_all(checks)
    };

    let held = both().await.unwrap();
    assert_eq!(ear.transport(), Transport::Application);
    drop(held);
    assert_eq!(ear.transport(), Transport::Application);
    let acquired = limiter.acquire("tokens", Key::global()).await.unwrap();
    let receipts = acquired.into_receipts();
    limiter.debit(&receipts[0], 1);
    limiter.refund(receipts.into_iter().next().unwrap(), 1);
    assert_eq!(
        ear.take(),
        [Cause::Backend, Cause::Debited, Cause::Credited]
            .map(|cause| (cause, Transport::Application))
    );
}

/// tonic runs a call whatever its content type says, and nothing but calls comes to an interceptor.
#[tokio::test]
async fn what_comes_to_an_interceptor_is_a_call_and_so_is_the_message_of_one() {
    for (content_type, _) in TYPES {
        let ear = Ear::default();
        let api = Policy::new("api", Quota::per_hour(1)).key(Global);
        let interceptor =
            RateLimitInterceptor::new(ear.listening().policy(api), at_a_standstill().0);
        let mut interceptor = interceptor.unwrap();
        for passes in [true, false] {
            let mut call = tonic::Request::new(());
            if let Some(content_type) = content_type {
                let value = content_type.parse().unwrap();
                call.metadata_mut().insert("content-type", value);
            }
            assert_eq!(interceptor.call(call).is_ok(), passes);
            assert_eq!(ear.transport(), Transport::Grpc, "{content_type:?}");
        }
    }

    let ear = Ear::default();
    let messages = Policy::new("messages", Quota::per_hour(2))
        .key(Header::new("x-caller"))
        .on_missing(OnMissing::Deny)
        .grpc("chat.v1.Chat/Talk")
        .per_message(Messages::received());
    let limiter = ear.listening().policy(messages).build().unwrap();
    let talks = service_fn(|request: Request<MessageBody<Full<Bytes>>>| async move {
        drop(request.into_body().collect().await);
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let service = MessageLimitLayer::new(limiter).layer(talks);
    for caller in [None, Some("alice")] {
        let mut call =
            Request::post("/chat.v1.Chat/Talk").header("content-type", "application/grpc");
        if let Some(caller) = caller {
            call = call.header("x-caller", caller);
        }
        let two = Full::from(&[0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 1, 7][..]);
        drop(service.clone().oneshot(call.body(two).unwrap()).await);
        assert_eq!(ear.transport(), Transport::Grpc);
    }
}
