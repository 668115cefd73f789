//! Envoy's rate limit service, and questions that make no sense, hostile ones, and clients that hang.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tollgate_server::proto::RateLimitDescriptor;
use tollgate_server::proto::rate_limit_response::Code;
use tonic::Code as Grpc;

use crate::common::asking::{Asker, RULES, account, descriptor, request, statuses, user};

/// A machine that builds beside the test takes its time.
const PATIENCE: Duration = Duration::from_secs(30);
#[tokio::test]
async fn a_request_that_makes_no_sense_is_an_invalid_argument_with_its_reason() {
    let mut asker = Asker::of(RULES).await;
    let mut without_domain = request([account("acme")]);
    without_domain.domain.clear();
    let many = |count: usize| request((0..count).map(|number| account(&number.to_string())));
    let negative = RateLimitDescriptor {
        is_negative_hits: true,
        ..account("acme")
    };
    let cases = [
        (without_domain, "the request has no domain"),
        (request([]), "the request has no descriptors"),
        (
            request([account("acme"), descriptor(&[])]),
            "descriptor 2: it has no entries",
        ),
        (
            request([descriptor(&[("", "x")])]),
            "descriptor 1: an entry has an empty key",
        ),
        (
            request([negative]),
            "descriptor 1: its hits are negative, and nothing is given back: a credit without the receipt of a charge has no bound",
        ),
    ];
    let number = u64::try_from(cases.len()).unwrap();
    for (request, expected) in cases {
        assert_eq!(
            asker.wrong(request).await,
            format!("InvalidArgument: {expected}")
        );
    }
    assert_eq!(asker.served.gateway.counts().invalid, number);
    // Callers choose fields, and so which descriptors there are: an error would let the request pass.
    for count in [33, 5_000] {
        let answer = asker.ask(many(count).descriptors).await;
        assert_eq!(answer.overall_code(), Code::OverLimit);
    }
    // Nothing of it was charged, and as many as fit are decided.
    assert_eq!(
        asker.ask(many(32).descriptors).await.overall_code(),
        Code::Ok
    );
    assert_eq!(asker.left(account("31")).await, 9);
}

#[tokio::test]
async fn hostile_descriptors_have_an_answer() {
    let mut asker = Asker::of(RULES).await;
    // Long values are identities of their own.
    let long = |end: &str| account(&format!("{}{end}", "x".repeat(50_000)));
    let answer = asker.ask([long("a"), long("a"), long("b")]).await;
    assert_eq!(
        statuses(&answer),
        [
            "OK 8 of 10 account per HOUR",
            "OK 8 of 10 account per HOUR",
            "OK 9 of 10 account per HOUR"
        ]
    );
    // Values that would join to the same text are different identities, and so is an empty one.
    for (account, name) in [("a_b", "c"), ("a", "b_c"), ("", "ab_c"), ("ab_c", "")] {
        let answer = asker.ask([user(account, name)]).await;
        assert_eq!(statuses(&answer), ["OK 2 of 3 user per HOUR"]);
    }
    // Ten thousand entries are more than any rule has.
    let entries = vec![("account", "x"); 10_000];
    assert_eq!(statuses(&asker.ask([descriptor(&entries)]).await), ["OK"]);
    // An entry twice is not the entry once.
    let twice = descriptor(&[("account", "x"), ("account", "x")]);
    assert_eq!(statuses(&asker.ask([twice]).await), ["OK"]);
    // Ten thousand descriptors of one budget are one charge.
    let answer = asker.ask(vec![account("crowd"); 10_000]).await;
    assert_eq!(
        (answer.overall_code(), answer.statuses.len()),
        (Code::OverLimit, 10_000)
    );
    // A message above the bound is refused, and the connection goes on.
    let status = asker
        .send(request([account(&"x".repeat(5_000_000))]))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Grpc::OutOfRange, "{status}");
    assert_eq!(asker.ask([account("next")]).await.overall_code(), Code::Ok);
}

#[tokio::test]
async fn a_client_that_hangs_stops_neither_other_clients_nor_the_end() {
    let mut asker = Asker::of(RULES).await;
    let silent = TcpStream::connect(asker.served.address).await.unwrap();
    assert_eq!(asker.ask([account("acme")]).await.overall_code(), Code::Ok);
    let begun = Instant::now();
    asker.served.stop().await;
    assert!(begun.elapsed() < PATIENCE);
    drop(silent);
}
