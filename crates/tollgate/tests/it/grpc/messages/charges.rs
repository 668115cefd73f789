//! The charges of messages, and the callers that pay.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::key::{Global, Metadata};
use tollgate::{
    Cause, Event, Key, Limiter, Messages, OnMissing, Policy, Quota, QuotaLookup, Tiers, key,
};
use tollgate_testkit::shop::Order;
use tonic::Code;

use super::{limiter, orders, served, three, twenty_ms};
use crate::common::{Waiting, at_a_standstill};

#[tokio::test]
async fn bytes_are_those_on_the_wire() {
    // given messages of 102 bytes, two of them for their note, and five before each
    let note = vec![7; 100];
    let order = Order {
        note,
        ..Order::default()
    };
    let orders = move |count| tokio_stream::iter(vec![order.clone(); count]);
    let policy = |bytes| {
        Policy::new("messages", Quota::per_hour(bytes))
            .key(Global)
            .per_message(Messages::received().by_bytes().end_stream())
    };

    // when there is room for ten, and for one byte less
    let enough = limiter(policy(1_070));
    let (mut client, _, _) = served(&enough).await;
    assert_eq!(
        client.upload(orders(10)).await.unwrap().into_inner().count,
        10
    );
    let left = enough
        .check("messages", Key::global())
        .cost(0)
        .await
        .unwrap();
    assert!(
        left.remaining() < 3,
        "what an hour's budget refills meanwhile"
    );

    let (mut client, _, _) = served(&limiter(policy(1_069))).await;
    let denied = client.upload(orders(10)).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn the_next_stream_obeys_the_policies_that_were_replaced_last() {
    let limiter = limiter(three(Messages::received().end_stream()));
    let (mut client, _, _) = served(&limiter).await;
    let denied = client.upload(orders(4)).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);

    let ten = Policy::new("ten", Quota::per_hour(10)).key(Global);
    let ten = ten.per_message(Messages::received().end_stream());
    limiter.replace([ten]).unwrap();

    let uploaded = client.upload(orders(4)).await.unwrap();
    assert_eq!(uploaded.into_inner().count, 4);
}

#[tokio::test]
async fn calls_and_messages_are_charged_by_whom_they_concern() {
    let limiter = Limiter::builder()
        .policy(Policy::new("calls", Quota::per_hour(2)).key(Global))
        .policy(three(Messages::received().end_stream()).grpc("shop.v1.Orders/Upload"))
        .build()
        .unwrap();
    let (mut client, _, _) = served(&limiter).await;
    let left = async |policy| {
        let asked = limiter.check(policy, Key::global()).cost(0).await;
        asked.unwrap().remaining()
    };

    client.upload(orders(2)).await.unwrap();
    assert_eq!((left("calls").await, left("messages").await), (1, 1));
    // Another method, which the messages' policy does not cover.
    client.place(Order::default()).await.unwrap();
    assert_eq!((left("calls").await, left("messages").await), (0, 1));
}

#[tokio::test]
async fn an_observer_hears_of_each_message() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let limiter = Limiter::builder()
        .policy(three(Messages::received().end_stream()))
        .observe(move |event: &Event<'_>| {
            let is_denied = event.verdict().unwrap().is_denied();
            heard.lock().unwrap().push((event.cause(), is_denied));
        })
        .build()
        .unwrap();
    let (mut client, _, _) = served(&limiter).await;

    client.upload(orders(4)).await.unwrap_err();

    let mut expected = [(Cause::Backend, false); 4];
    expected[3].1 = true;
    assert_eq!(*events.lock().unwrap(), expected);
}

#[tokio::test]
async fn names_keys_tiers_lists_trial_and_costs_are_as_for_requests() {
    let tenant = |policy: Policy| {
        policy
            .key(Metadata::new("tenant"))
            .on_missing(OnMissing::Deny)
    };
    let gold = Tiers::by_key([("golden", "gold")]).tier("gold", Quota::per_hour(8));
    let stated = QuotaLookup::new(Duration::from_secs(60), async |_: Key| {
        Ok::<_, String>(Quota::per_hour(6))
    });
    let cases = [
        (
            tenant(three(Messages::received())).quota_by_async(stated),
            "4711",
            6,
        ),
        (tenant(three(Messages::received())), "a", 3),
        (tenant(three(Messages::received())).tiers(gold), "golden", 8),
        (tenant(three(Messages::received())).cost(2), "a", 1),
        (tenant(three(Messages::received())).shadow(), "a", 20),
        (tenant(three(Messages::received())).on_demand(), "a", 20),
        (
            three(Messages::received())
                .key_async(key::from_async_fn(|_| async { Some("somebody") })),
            "a",
            3,
        ),
    ];
    for (policy, tenant, passes) in cases {
        let policy = policy.per_message(Messages::received().end_stream());
        let case = format!("{policy:?}");
        let limiter = limiter(policy);
        let call = async |count| {
            let (mut client, _, _) = served(&limiter).await;
            let mut request = tonic::Request::new(orders(count));
            request
                .metadata_mut()
                .insert("tenant", tenant.parse().unwrap());
            let receipt = client.upload(request).await;
            receipt.map_or_else(|status| status.code(), |_| Code::Ok)
        };
        assert_eq!(call(passes).await, Code::Ok, "{case}");
        if passes < 20 {
            assert_eq!(call(1).await, Code::ResourceExhausted, "{case}");
        }
    }

    // A caller without an identity is refused at once.
    let limiter = limiter(tenant(three(Messages::received())));
    let (mut client, shop, _) = served(&limiter).await;
    let refused = client.upload(orders(1)).await.unwrap_err();
    assert_eq!((refused.code(), shop.calls()), (Code::PermissionDenied, 0));
}

#[tokio::test]
async fn a_policy_on_trial_is_in_nobodys_way_whether_the_backend_waits_or_not() {
    let waiting = Waiting::new(at_a_standstill().0);
    waiting.gate.add_permits(10_000);
    for backend in [None, Some(waiting)] {
        let mut limiter = Limiter::builder()
            .policy(twenty_ms(Messages::received()))
            .policy(
                // It would end the stream at the second message.
                Policy::new("trial", Quota::per_hour(1))
                    .per_message(Messages::received().end_stream())
                    .shadow(),
            );
        let messages = if let Some(backend) = backend {
            limiter = limiter.backend(backend);
            // Its clock stands still.
            5
        } else {
            10
        };
        let (mut client, _, _) = served(&limiter.build().unwrap()).await;
        let received = client.upload(orders(messages)).await.unwrap();
        assert_eq!(received.into_inner().count as usize, messages);
    }
}
