//! Policies for messages that make no sense, or that no layer enforces.

use tollgate::key::Global;
use tollgate::{
    Limiter, LimiterBuilder, MessageLimitLayer, Messages, Policy, Quota, RateLimitLayer,
};
use tollgate_testkit::Log;
use tollgate_testkit::shop::{Order, OrdersClient, OrdersServer, Shop};
use tonic::transport::{Channel, Server};

use super::{limiter, three};
use crate::grpc::serving::{Served, client, incoming};

#[test]
fn policies_that_make_no_sense_for_messages_are_refused() {
    let built = |builder: LimiterBuilder| builder.build().unwrap_err().to_string();
    let policy = three(Messages::received()).free_if(|_| true);
    assert_eq!(
        built(Limiter::builder().policy(policy)),
        "policy \"messages\": charges messages, for which no response can say what they cost"
    );
    let many = (0..33).map(|n| {
        Policy::new(&format!("p{n}"), Quota::per_hour(1)).per_message(Messages::received())
    });
    assert!(built(Limiter::builder().policies(many)).starts_with("33 quotas could meet"));
}

#[tokio::test]
async fn a_policy_for_messages_that_nobody_charges_is_warned_of_once() {
    let log = Log::default();
    let _guard = log.listen();
    let warned = |log: &Log| log.text().matches("messages pass uncharged").count();

    let forgotten = limiter(three(Messages::received()));
    let served = Served::behind(RateLimitLayer::new(&forgotten)).await;
    served.place().await.unwrap();
    served.place().await.unwrap();
    assert_eq!(warned(&log), 1, "{}", log.text());

    let (mut client, _, _) = super::served(&limiter(three(Messages::received()))).await;
    client.place(Order::default()).await.unwrap();
    assert_eq!(warned(&log), 1, "{}", log.text());
}

/// Policies that limit nothing here, for methods that are called, for others, and for all.
fn of_methods() -> [Policy; 4] {
    let roomy = |name| Policy::new(name, Quota::per_hour(1_000_000)).key(Global);
    [
        roomy("met").grpc("shop.v1.Orders/Place"),
        roomy("unmet")
            .grpc("shop.v1.Orders/Uplaod")
            .grpc("shop.v1.Order/*"),
        roomy("unmet-package").grpc("shops.*"),
        roomy("everywhere"),
    ]
}

async fn place(client: &mut OrdersClient<Channel>, times: usize) {
    for _ in 0..times {
        client.place(Order::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_policy_for_messages_whose_methods_meet_none_of_many_calls_is_told_of_once() {
    // given policies for messages
    let log = Log::default();
    let _guard = log.listen();
    let policies = of_methods().map(|policy| policy.per_message(Messages::received()));
    let limiter = Limiter::builder().policies(policies).build().unwrap();
    let (mut client, _, _) = super::served(&limiter).await;

    // when as many calls come as are looked at, no word is said before the last
    place(&mut client, 999).await;
    assert_eq!(log.text(), "");
    place(&mut client, 1_500).await;

    // then each policy that no call has met is told of once, with the line to change
    let text = log.text();
    assert_eq!(text.matches("WARN").count(), 2, "{text}");
    for (policy, line) in [
        ("unmet", "change `.grpc(\"shop.v1.Orders/Uplaod\")`"),
        ("unmet-package", "change `.grpc(\"shops.*\")`"),
    ] {
        let told =
            |said: &str| said.contains(&format!("policy=\"{policy}\"")) && said.contains(line);
        assert_eq!(text.lines().filter(|said| told(said)).count(), 1, "{text}");
    }
}

#[tokio::test]
async fn a_policy_for_calls_whose_methods_meet_none_of_many_is_told_of_as_it_was_written() {
    let log = Log::default();
    let _guard = log.listen();
    let limiter = Limiter::builder().policies(of_methods()).build().unwrap();
    let (mut client, _, _) = super::served(&limiter).await;

    place(&mut client, 1_000).await;

    let text = log.text();
    assert_eq!(text.matches("WARN").count(), 2, "{text}");
    assert!(
        text.contains("change `.grpc(\"shop.v1.Orders/Uplaod\")`"),
        "{text}"
    );
}

#[tokio::test]
async fn a_forwarding_header_of_a_caller_that_is_not_trusted_is_told_of_where_only_messages_are_charged()
 {
    // given a server whose only layer is the one for messages, of which each address has a budget
    let log = Log::default();
    let _guard = log.listen();
    let policy = Policy::new("messages", Quota::per_hour(9)).per_message(Messages::received());
    let server = Server::builder()
        .layer(MessageLimitLayer::new(limiter(policy)))
        .add_service(OrdersServer::new(Shop::default()));
    let (address, incoming) = incoming().await;
    tokio::spawn(server.serve_with_incoming(incoming));

    // when a proxy that the operator did not name brings calls of others
    let mut client = client(address).await;
    for _ in 0..3 {
        let mut order = tonic::Request::new(Order::default());
        let caller = "203.0.113.7".parse().unwrap();
        order.metadata_mut().insert("x-forwarded-for", caller);
        client.place(order).await.unwrap();
    }

    let text = log.text();
    assert_eq!(text.matches("WARN").count(), 1, "{text}");
    assert!(text.contains("header=\"x-forwarded-for\""), "{text}");
}
