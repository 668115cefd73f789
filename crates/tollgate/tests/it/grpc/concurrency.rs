//! Limits on how many calls at once: calls of each kind hold until they are over, and an interceptor cannot hold.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::key::Global;
use tollgate::{
    Concurrent, Key, Limiter, MemoryBackend, Policy, Quota, RateLimitInterceptor, RateLimitLayer,
};
use tollgate_testkit::shop::Order;
use tonic::Code;
use tonic::service::Interceptor;
use tonic_types::StatusExt;

use crate::grpc::serving::{Served, place};

fn two() -> Limiter {
    Limiter::from(Policy::new("calls", Concurrent::at_most(2)).key(Global))
}

async fn free(limiter: &Limiter) -> u64 {
    let probe = limiter.check("calls", Key::global()).cost(0);
    probe.await.unwrap().remaining()
}

/// Waits until so many more calls would pass, which the server knows a moment after the client.
async fn comes_to(limiter: &Limiter, expected: u64) {
    let reached = async {
        while free(limiter).await != expected {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(30), reached);
    assert!(within.await.is_ok(), "{} are free", free(limiter).await);
}

#[tokio::test]
async fn a_call_of_each_kind_holds_until_it_is_over() {
    let limiter = two();
    let served = Served::behind(RateLimitLayer::new(&limiter)).await;
    let mut client = served.client().await;

    // One answer: over when it is there.
    for _ in 0..5 {
        place(&mut client).await.unwrap();
        comes_to(&limiter, 2).await;
    }

    // A stream of requests: over when the answer to it is.
    let (orders, sent) = mpsc::channel(4);
    let mut uploading = client.clone();
    let upload =
        tokio::spawn(async move { uploading.upload(ReceiverStream::new(sent)).await.map(drop) });
    orders.send(Order::default()).await.unwrap();
    comes_to(&limiter, 1).await;
    drop(orders);
    upload.await.unwrap().unwrap();
    comes_to(&limiter, 2).await;

    // A stream of answers, which the client leaves in the middle.
    let watch = client
        .watch(Order {
            count: 1_000_000,
            ..Order::default()
        })
        .await
        .unwrap();
    comes_to(&limiter, 1).await;
    drop(watch);
    comes_to(&limiter, 2).await;

    // Both directions.
    let (orders, sent) = mpsc::channel(4);
    let chat = client.chat(ReceiverStream::new(sent)).await.unwrap();
    let mut receipts = chat.into_inner();
    for _ in 0..3 {
        orders.send(Order::default()).await.unwrap();
        receipts.message().await.unwrap().unwrap();
        assert_eq!(free(&limiter).await, 1);
    }
    drop(orders);
    assert!(receipts.message().await.unwrap().is_none());
    comes_to(&limiter, 2).await;

    // One that the client resets before it is answered.
    let (_orders, sent) = mpsc::channel(4);
    let mut uploading = client.clone();
    let upload =
        tokio::spawn(async move { uploading.upload(ReceiverStream::new(sent)).await.map(drop) });
    comes_to(&limiter, 1).await;
    upload.abort();
    comes_to(&limiter, 2).await;
}

#[tokio::test]
async fn a_refused_call_is_told_no_time_unless_there_is_a_hint() {
    for hint in [None, Some(Duration::from_secs(3))] {
        let policy = Policy::new("calls", Concurrent::at_most(1)).key(Global);
        let policy = match hint {
            Some(hint) => policy.retry_hint(hint),
            None => policy,
        };
        let served = Served::behind(RateLimitLayer::new(policy)).await;
        let mut client = served.client().await;
        let (orders, sent) = mpsc::channel(1);
        orders.send(Order::default()).await.unwrap();
        let _chat = client.chat(ReceiverStream::new(sent)).await.unwrap();

        let refused = place(&mut client).await.unwrap_err();

        assert_eq!(refused.code(), Code::ResourceExhausted);
        let pushback = refused.metadata().get("grpc-retry-pushback-ms");
        let details = refused.get_error_details();
        let told = details.retry_info().and_then(|info| info.retry_delay);
        let violation = &details.quota_failure().unwrap().violations[0];
        assert_eq!(violation.description, "exceeds 1 at once");
        assert_eq!(told, hint);
        match hint {
            None => assert_eq!(pushback, None),
            Some(hint) => {
                let ms: u128 = pushback.unwrap().to_str().unwrap().parse().unwrap();
                assert!(ms >= hint.as_millis() && ms <= 2 * hint.as_millis());
            }
        }
    }
}

#[test]
fn an_interceptor_cannot_hold() {
    let expected = "policy \"calls\": limits how many at once, and an interceptor does not see when a call is over; use \
                    RateLimitLayer";
    for quotas in ["5 at once", "10/s; 5 at once"] {
        let builder = Limiter::builder().policy(Policy::new("calls", quotas));
        let refused = RateLimitInterceptor::new(builder, MemoryBackend::new()).unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
    let tiers = tollgate::Tiers::by_key([("a", "gold")]).tier("gold", "5 at once");
    let policy = Policy::new("calls", Quota::per_second(1)).key(Global);
    let policy = policy.key(tollgate::key::Header::new("x-key")).tiers(tiers);
    let builder = Limiter::builder().policy(policy.clone());
    let refused = RateLimitInterceptor::new(builder, MemoryBackend::new()).unwrap_err();
    assert_eq!(refused.to_string(), expected);

    // Nor can one whose policies are replaced. Those that it has stay.
    let builder = Limiter::builder().policy(Policy::new("calls", Quota::per_hour(1)).key(Global));
    let interceptor = RateLimitInterceptor::new(builder, MemoryBackend::new()).unwrap();
    for held in [Policy::new("calls", "10/s; 5 at once"), policy] {
        let refused = interceptor.limiter().replace([held]).unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
    let passed = [(); 2].map(|()| interceptor.clone().call(tonic::Request::new(())).is_ok());
    assert_eq!(passed, [true, false]);
}
